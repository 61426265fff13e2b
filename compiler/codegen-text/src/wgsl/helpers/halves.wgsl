//// hone_64_of_i32(
// Integers of 64 bits are two halves, the low one first.
fn hone_64_of_i32(value: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(value), bitcast<u32>(value >> 31u)); }

//// hone_add_64(
fn hone_add_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

//// hone_subtract_64(
fn hone_subtract_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

//// hone_negate_64(
fn hone_negate_64(a: vec2<u32>) -> vec2<u32> { return hone_subtract_64(vec2<u32>(), a); }

//// hone_abs_i64(
fn hone_abs_i64(a: vec2<u32>) -> vec2<u32> { return select(a, hone_negate_64(a), (a.y >> 31u) != 0u); }

//// hone_product_32(
// All 64 bits of a product, of products of 16 bits.
fn hone_product_32(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let first = (a >> 16u) * (b & 0xffffu);
  let second = (a & 0xffffu) * (b >> 16u);
  let middle = (low >> 16u) + (first & 0xffffu) + (second & 0xffffu);
  let high = (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u) + (middle >> 16u);
  return vec2<u32>((low & 0xffffu) | (middle << 16u), high);
}

//// hone_multiply_64(
fn hone_multiply_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = hone_product_32(a.x, b.x);
  return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}

//// hone_less_u64(
fn hone_less_u64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }

//// hone_less_i64(
fn hone_less_i64(a: vec2<u32>, b: vec2<u32>) -> bool {
  let sign = vec2<u32>(0u, 0x80000000u);
  return hone_less_u64(a ^ sign, b ^ sign);
}

//// hone_left_64(
// By 0 to 63 bits.
fn hone_left_64(a: vec2<u32>, by: u32) -> vec2<u32> {
  if (by == 0u) { return a; }
  if (by >= 32u) { return vec2<u32>(0u, a.x << (by & 31u)); }
  return vec2<u32>(a.x << by, (a.y << by) | (a.x >> (32u - by)));
}

//// hone_right_64(
// By 0 to 63 bits; zeros come in.
fn hone_right_64(a: vec2<u32>, by: u32) -> vec2<u32> {
  if (by == 0u) { return a; }
  if (by >= 32u) { return vec2<u32>(a.y >> (by & 31u), 0u); }
  return vec2<u32>((a.x >> by) | (a.y << (32u - by)), a.y >> by);
}

//// hone_shift_left_64(
// By all bits or more it is 0.
fn hone_shift_left_64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (b.y != 0u || b.x > 63u) { return vec2<u32>(); }
  return hone_left_64(a, b.x);
}

//// hone_shift_right_u64(
fn hone_shift_right_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (b.y != 0u || b.x > 63u) { return vec2<u32>(); }
  return hone_right_64(a, b.x);
}

//// hone_shift_right_i64(
fn hone_shift_right_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (b.y != 0u || b.x > 63u) { return vec2<u32>(); }
  // The bits of a negative number are those of the number below its opposite, turned around.
  let sign = vec2<u32>(bitcast<u32>(bitcast<i32>(a.y) >> 31u));
  return hone_right_64(a ^ sign, b.x) ^ sign;
}

//// hone_quotient_u64(
// Quotient and rest, bit by bit; both are 0 where the divisor is.
fn hone_quotient_u64(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  if (all(b == vec2<u32>())) { return vec4<u32>(); }
  if (a.y == 0u && b.y == 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
  var quotient = a;
  var rest = vec2<u32>();
  for (var bit = 0u; bit < 64u; bit++) {
    let carried = rest.y >> 31u;
    rest = vec2<u32>((rest.x << 1u) | (quotient.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));
    quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
    if (carried != 0u || !hone_less_u64(rest, b)) {
      rest = hone_subtract_64(rest, b);
      quotient.x |= 1u;
    }
  }
  return vec4<u32>(quotient, rest);
}

//// hone_divide_u64(
fn hone_divide_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return hone_quotient_u64(a, b).xy; }

//// hone_floor_divide_u64(
fn hone_floor_divide_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return hone_quotient_u64(a, b).xy; }

//// hone_remainder_u64(
fn hone_remainder_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return hone_quotient_u64(a, b).zw; }

//// hone_modulo_u64(
fn hone_modulo_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return hone_quotient_u64(a, b).zw; }

//// hone_divide_i64(
// Towards zero; by 0 it is 0.
fn hone_divide_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let quotient = hone_quotient_u64(hone_abs_i64(a), hone_abs_i64(b)).xy;
  return select(quotient, hone_negate_64(quotient), ((a.y ^ b.y) >> 31u) != 0u);
}

//// hone_remainder_i64(
// With the dividend's sign.
fn hone_remainder_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let rest = hone_quotient_u64(hone_abs_i64(a), hone_abs_i64(b)).zw;
  return select(rest, hone_negate_64(rest), (a.y >> 31u) != 0u);
}

//// hone_floor_divide_i64(
// Rounded down.
fn hone_floor_divide_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let quotient = hone_divide_i64(a, b);
  let exact = all(hone_remainder_i64(a, b) == vec2<u32>());
  let down = !exact && ((a.y ^ b.y) >> 31u) != 0u;
  return select(quotient, hone_subtract_64(quotient, vec2<u32>(1u, 0u)), down);
}

//// hone_modulo_i64(
// With the divisor's sign.
fn hone_modulo_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let rest = hone_remainder_i64(a, b);
  let other = any(rest != vec2<u32>()) && ((rest.y ^ b.y) >> 31u) != 0u;
  return select(rest, hone_add_64(rest, b), other);
}

//// hone_power_u64(
// Whole powers wrap.
fn hone_power_u64(base: vec2<u32>, exponent: vec2<u32>) -> vec2<u32> {
  var result = vec2<u32>(1u, 0u);
  var square = base;
  var rest = exponent;
  while (any(rest != vec2<u32>())) {
    if ((rest.x & 1u) != 0u) { result = hone_multiply_64(result, square); }
    square = hone_multiply_64(square, square);
    rest = hone_right_64(rest, 1u);
  }
  return result;
}

//// hone_power_i64(
// Negative powers are the quotient, cut.
fn hone_power_i64(base: vec2<u32>, exponent: vec2<u32>) -> vec2<u32> {
  if ((exponent.y >> 31u) == 0u) { return hone_power_u64(base, exponent); }
  let one = vec2<u32>(1u, 0u);
  let all_bits = vec2<u32>(0xffffffffu, 0xffffffffu);
  if (all(base == one)) { return one; }
  if (all(base == all_bits)) { return select(base, one, (exponent.x & 1u) == 0u); }
  return vec2<u32>();
}

//// hone_leading_64(
// The number of zeros in front of the highest bit that is not 0; there is one.
fn hone_leading_64(a: vec2<u32>) -> u32 {
  return select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
}

//// hone_bits_of_u64(
// The bits of the float to which an integer is cut, and whether what is cut off is more than nothing, and how it
// compares with a half: 0 nothing, 1 less, 2 the half, 3 more.
fn hone_bits_of_u64(a: vec2<u32>) -> vec2<u32> {
  if (all(a == vec2<u32>())) { return vec2<u32>(); }
  let zeros = hone_leading_64(a);
  let high = hone_left_64(a, zeros);
  let mantissa = high.y >> 8u;
  let rest = vec2<u32>(high.x, high.y & 0xffu);
  let half = vec2<u32>(0u, 0x80u);
  var kind = select(1u, 3u, hone_less_u64(half, rest));
  if (all(rest == half)) { kind = 2u; }
  if (all(rest == vec2<u32>())) { kind = 0u; }
  return vec2<u32>(((189u - zeros) << 23u) + mantissa, kind);
}

//// hone_f32_of_u64(
// To the nearest, halves to even.
fn hone_f32_of_u64(a: vec2<u32>) -> f32 {
  let cut = hone_bits_of_u64(a);
  let up = cut.y == 3u || (cut.y == 2u && (cut.x & 1u) != 0u);
  return bitcast<f32>(cut.x + select(0u, 1u, up));
}

//// hone_f32_of_i64(
fn hone_f32_of_i64(a: vec2<u32>) -> f32 {
  let magnitude = hone_f32_of_u64(hone_abs_i64(a));
  return select(magnitude, -magnitude, (a.y >> 31u) != 0u);
}

//// hone_odd_f32_of_u64(
// To the odd neighbour, so that rounding once more rounds as if it were the first time.
fn hone_odd_f32_of_u64(a: vec2<u32>) -> f32 {
  let cut = hone_bits_of_u64(a);
  return bitcast<f32>(cut.x | select(0u, 1u, cut.y != 0u));
}

//// hone_odd_f32_of_i64(
fn hone_odd_f32_of_i64(a: vec2<u32>) -> f32 {
  let magnitude = hone_odd_f32_of_u64(hone_abs_i64(a));
  return select(magnitude, -magnitude, (a.y >> 31u) != 0u);
}

//// hone_u64_of_f32(
// Towards zero, to the nearest that there is; what is no number is 0.
fn hone_u64_of_f32(value: f32) -> vec2<u32> {
  let bits = bitcast<u32>(value);
  if (hone_is_nan(value) || (bits >> 31u) != 0u || bits < 0x3f800000u) { return vec2<u32>(); }
  if (bits >= 0x5f800000u) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  let mantissa = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
  let exponent = bits >> 23u;
  if (exponent < 150u) { return hone_right_64(mantissa, 150u - exponent); }
  return hone_left_64(mantissa, exponent - 150u);
}

//// hone_i64_of_f32(
fn hone_i64_of_f32(value: f32) -> vec2<u32> {
  let magnitude = hone_u64_of_f32(abs(value));
  let negative = (bitcast<u32>(value) >> 31u) != 0u;
  if ((magnitude.y >> 31u) != 0u) {
    return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative);
  }
  return select(magnitude, hone_negate_64(magnitude), negative);
}

//// hone_clamp_i64(
fn hone_clamp_i64(a: vec2<u32>, least: vec2<u32>, most: vec2<u32>) -> vec2<u32> {
  if (hone_less_i64(a, least)) { return least; }
  return select(a, most, hone_less_i64(most, a));
}

//// hone_i32_of_clamped(
fn hone_i32_of_clamped(a: vec2<u32>) -> i32 { return bitcast<i32>(a.x); }

//// hone_u32_of_clamped(
fn hone_u32_of_clamped(a: vec2<u32>) -> u32 { return a.x; }

