//// hone_parts_f64(
// The exponent's bits, of which numbers below the normal ones have 1, and the mantissa with its highest bit.
struct HoneParts { exponent: i32, mantissa: vec2<u32> }

fn hone_parts_f64(a: vec2<u32>) -> HoneParts {
  let exponent = (a.y >> 20u) & 0x7ffu;
  let highest = select(0u, 0x100000u, exponent != 0u);
  return HoneParts(i32(max(exponent, 1u)), vec2<u32>(a.x, (a.y & 0xfffffu) | highest));
}

//// hone_normal_f64(
// The parts with the mantissa's highest bit set, whatever the exponent becomes; of what is not 0.
fn hone_normal_f64(a: vec2<u32>) -> HoneParts {
  let parts = hone_parts_f64(a);
  let shift = hone_leading_64(parts.mantissa) - 11u;
  return HoneParts(parts.exponent - i32(shift), hone_left_64(parts.mantissa, shift));
}

//// hone_sticky_64(
// To the right by any number of bits; the lowest one is set where what is cut off is not 0.
fn hone_sticky_64(a: vec2<u32>, by: u32) -> vec2<u32> {
  if (by > 63u) { return vec2<u32>(select(0u, 1u, any(a != vec2<u32>())), 0u); }
  let cut = hone_right_64(a, by);
  return vec2<u32>(cut.x | select(0u, 1u, any(hone_left_64(cut, by) != a)), cut.y);
}

//// hone_round_f64_bits(
// The double of a sign, an exponent's bits and a mantissa whose highest bit is the 55th, or lower where the exponent
// is 1: rounded to the nearest, halves to even. Exponents below 1 are those of numbers below the normal ones.
fn hone_round_f64_bits(sign: u32, exponent: i32, mantissa: vec2<u32>) -> vec2<u32> {
  var scale = exponent;
  var bits = mantissa;
  if (scale < 1i) {
    bits = hone_sticky_64(bits, u32(1i - scale));
    scale = 1i;
  }
  let rest = bits.x & 7u;
  bits = hone_right_64(bits, 3u);
  let up = rest > 4u || (rest == 4u && (bits.x & 1u) != 0u);
  bits = hone_add_64(bits, vec2<u32>(select(0u, 1u, up), 0u));
  // The highest bit is added to the exponent.
  if (scale >= 2047i) { return vec2<u32>(0u, sign | 0x7ff00000u); }
  bits = hone_add_64(bits, vec2<u32>(0u, u32(scale - 1i) << 20u));
  if (bits.y >= 0x7ff00000u) { bits = vec2<u32>(0u, 0x7ff00000u); }
  return vec2<u32>(bits.x, sign | bits.y);
}

//// hone_add_f64(
fn hone_add_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let none = vec2<u32>(0u, 0x7ff80000u);
  if (hone_is_nan_f64(a) || hone_is_nan_f64(b)) { return none; }
  let differ = ((a.y ^ b.y) >> 31u) != 0u;
  if (hone_is_infinite_f64(a)) { return select(a, none, differ && hone_is_infinite_f64(b)); }
  if (hone_is_infinite_f64(b)) { return b; }
  let magnitude = vec2<u32>(0xffffffffu, 0x7fffffffu);
  let swapped = hone_less_u64(a & magnitude, b & magnitude);
  let larger = select(a, b, swapped);
  let x = hone_parts_f64(larger);
  let y = hone_parts_f64(select(b, a, swapped));
  let first = hone_left_64(x.mantissa, 3u);
  let second = hone_sticky_64(hone_left_64(y.mantissa, 3u), u32(x.exponent - y.exponent));
  let sign = larger.y & 0x80000000u;
  if (!differ) {
    let sum = hone_add_64(first, second);
    let carried = (sum.y >> 24u) != 0u;
    return hone_round_f64_bits(sign, x.exponent + select(0i, 1i, carried), hone_sticky_64(sum, select(0u, 1u, carried)));
  }
  let difference = hone_subtract_64(first, second);
  if (all(difference == vec2<u32>())) { return vec2<u32>(); }
  let shift = min(hone_leading_64(difference) - 8u, u32(x.exponent - 1i));
  return hone_round_f64_bits(sign, x.exponent - i32(shift), hone_left_64(difference, shift));
}

//// hone_subtract_f64(
fn hone_subtract_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return hone_add_f64(a, b ^ vec2<u32>(0u, 0x80000000u));
}

//// hone_multiply_f64(
fn hone_multiply_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let none = vec2<u32>(0u, 0x7ff80000u);
  if (hone_is_nan_f64(a) || hone_is_nan_f64(b)) { return none; }
  let sign = (a.y ^ b.y) & 0x80000000u;
  let infinite = hone_is_infinite_f64(a) || hone_is_infinite_f64(b);
  if (!hone_is_not_zero_f64(a) || !hone_is_not_zero_f64(b)) { return select(vec2<u32>(0u, sign), none, infinite); }
  if (infinite) { return vec2<u32>(0u, sign | 0x7ff00000u); }
  let x = hone_normal_f64(a);
  let y = hone_normal_f64(b);
  // All 128 bits of the product of the mantissas, which fill their 64.
  let p = hone_left_64(x.mantissa, 11u);
  let q = hone_left_64(y.mantissa, 11u);
  let lowest = hone_product_32(p.x, q.x);
  let first = hone_add_64(hone_product_32(p.y, q.x), vec2<u32>(lowest.y, 0u));
  let second = hone_add_64(hone_product_32(p.x, q.y), vec2<u32>(first.x, 0u));
  let high = hone_add_64(hone_add_64(hone_product_32(p.y, q.y), vec2<u32>(first.y, 0u)), vec2<u32>(second.y, 0u));
  let rest = second.x | lowest.x;
  // The highest bit is the last or the one before.
  let shift = select(7u, 8u, (high.y >> 31u) != 0u);
  var mantissa = hone_sticky_64(high, shift);
  mantissa.x |= select(0u, 1u, rest != 0u);
  return hone_round_f64_bits(sign, x.exponent + y.exponent - 1030i + i32(shift), mantissa);
}

//// hone_divide_f64(
fn hone_divide_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let none = vec2<u32>(0u, 0x7ff80000u);
  if (hone_is_nan_f64(a) || hone_is_nan_f64(b)) { return none; }
  let sign = (a.y ^ b.y) & 0x80000000u;
  if (hone_is_infinite_f64(a)) { return select(vec2<u32>(0u, sign | 0x7ff00000u), none, hone_is_infinite_f64(b)); }
  if (!hone_is_not_zero_f64(b)) { return select(none, vec2<u32>(0u, sign | 0x7ff00000u), hone_is_not_zero_f64(a)); }
  if (hone_is_infinite_f64(b) || !hone_is_not_zero_f64(a)) { return vec2<u32>(0u, sign); }
  let x = hone_normal_f64(a);
  let y = hone_normal_f64(b);
  let smaller = hone_less_u64(x.mantissa, y.mantissa);
  var rest = hone_left_64(x.mantissa, select(0u, 1u, smaller));
  var quotient = vec2<u32>();
  for (var bit = 0i; bit < 56i; bit++) {
    quotient = hone_left_64(quotient, 1u);
    if (!hone_less_u64(rest, y.mantissa)) {
      rest = hone_subtract_64(rest, y.mantissa);
      quotient.x |= 1u;
    }
    rest = hone_left_64(rest, 1u);
  }
  quotient.x |= select(0u, 1u, any(rest != vec2<u32>()));
  return hone_round_f64_bits(sign, x.exponent - y.exponent + select(1023i, 1022i, smaller), quotient);
}

//// hone_sqrt_f64(
// Two bits of the number give one of the root.
fn hone_sqrt_f64(a: vec2<u32>) -> vec2<u32> {
  if (!hone_is_not_zero_f64(a) || hone_is_nan_f64(a)) { return a; }
  if ((a.y >> 31u) != 0u) { return vec2<u32>(0u, 0x7ff80000u); }
  if (hone_is_infinite_f64(a)) { return a; }
  let parts = hone_normal_f64(a);
  let odd = ((parts.exponent - 1023i) & 1i) != 0i;
  var bits = hone_left_64(parts.mantissa, select(10u, 11u, odd));
  var rest = vec2<u32>();
  var root = vec2<u32>();
  for (var bit = 0i; bit < 56i; bit++) {
    rest = vec2<u32>((rest.x << 2u) | (bits.y >> 30u), (rest.y << 2u) | (rest.x >> 30u));
    bits = hone_left_64(bits, 2u);
    let trial = hone_left_64(root, 2u) | vec2<u32>(1u, 0u);
    root = hone_left_64(root, 1u);
    if (!hone_less_u64(rest, trial)) {
      rest = hone_subtract_64(rest, trial);
      root.x |= 1u;
    }
  }
  root.x |= select(0u, 1u, any(rest != vec2<u32>()));
  let exponent = (parts.exponent - 1023i - select(0i, 1i, odd)) / 2i + 1023i;
  return hone_round_f64_bits(0u, exponent, root);
}

//// hone_truncate_f64(
fn hone_truncate_f64(a: vec2<u32>) -> vec2<u32> {
  let exponent = (a.y >> 20u) & 0x7ffu;
  if (exponent < 1023u) { return vec2<u32>(0u, a.y & 0x80000000u); }
  if (exponent >= 1075u) { return a; }
  let fraction = 1075u - exponent;
  return hone_left_64(hone_right_64(a, fraction), fraction);
}

//// hone_floor_f64(
fn hone_floor_f64(a: vec2<u32>) -> vec2<u32> {
  let cut = hone_truncate_f64(a);
  return select(cut, hone_subtract_f64(cut, vec2<u32>(0u, 0x3ff00000u)), hone_less_f64(a, cut));
}

//// hone_ceil_f64(
fn hone_ceil_f64(a: vec2<u32>) -> vec2<u32> {
  let cut = hone_truncate_f64(a);
  return select(cut, hone_add_f64(cut, vec2<u32>(0u, 0x3ff00000u)), hone_less_f64(cut, a));
}

//// hone_round_f64(
// Halves to even: from 2 to the power of 52 on all numbers are whole, and what is added to it is rounded to that.
fn hone_round_f64(a: vec2<u32>) -> vec2<u32> {
  if (((a.y >> 20u) & 0x7ffu) >= 1075u) { return a; }
  let large = vec2<u32>(0u, 0x43300000u);
  let rounded = hone_subtract_f64(hone_add_f64(a & vec2<u32>(0xffffffffu, 0x7fffffffu), large), large);
  return rounded | vec2<u32>(0u, a.y & 0x80000000u);
}

//// hone_remainder_f64(
// With the dividend's sign, exactly: the mantissas are divided as integers.
fn hone_remainder_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (hone_is_nan_f64(a) || hone_is_nan_f64(b) || hone_is_infinite_f64(a) || !hone_is_not_zero_f64(b)) {
    return vec2<u32>(0u, 0x7ff80000u);
  }
  let magnitude = vec2<u32>(0xffffffffu, 0x7fffffffu);
  if (hone_less_u64(a & magnitude, b & magnitude)) { return a; }
  let x = hone_parts_f64(a);
  let y = hone_parts_f64(b);
  var exponent = x.exponent;
  var rest = hone_remainder_u64(x.mantissa, y.mantissa);
  while (exponent > y.exponent) {
    let step = min(exponent - y.exponent, 8i);
    rest = hone_remainder_u64(hone_left_64(rest, u32(step)), y.mantissa);
    exponent -= step;
  }
  let sign = a.y & 0x80000000u;
  if (all(rest == vec2<u32>())) { return vec2<u32>(0u, sign); }
  let shift = min(hone_leading_64(rest) - 11u, u32(exponent - 1i));
  return hone_round_f64_bits(sign, exponent - i32(shift), hone_left_64(rest, shift + 3u));
}

//// hone_modulo_f64(
// With the divisor's sign.
fn hone_modulo_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let rest = hone_remainder_f64(a, b);
  let other = hone_is_not_zero_f64(rest) && ((rest.y ^ b.y) >> 31u) != 0u;
  return select(rest, hone_add_f64(rest, b), other);
}

