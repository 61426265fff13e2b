//// hone_is_nan_f64(
fn hone_is_nan_f64(a: vec2<u32>) -> bool {
  return hone_less_u64(vec2<u32>(0u, 0x7ff00000u), a & vec2<u32>(0xffffffffu, 0x7fffffffu));
}

//// hone_is_infinite_f64(
fn hone_is_infinite_f64(a: vec2<u32>) -> bool { return a.x == 0u && (a.y & 0x7fffffffu) == 0x7ff00000u; }

//// hone_is_not_zero_f64(
fn hone_is_not_zero_f64(a: vec2<u32>) -> bool { return a.x != 0u || (a.y & 0x7fffffffu) != 0u; }

//// hone_order_f64(
// Bits that order as the numbers do.
fn hone_order_f64(a: vec2<u32>) -> vec2<u32> {
  if (!hone_is_not_zero_f64(a)) { return vec2<u32>(0u, 0x80000000u); }
  return select(a | vec2<u32>(0u, 0x80000000u), ~a, (a.y >> 31u) != 0u);
}

//// hone_less_f64(
fn hone_less_f64(a: vec2<u32>, b: vec2<u32>) -> bool {
  if (hone_is_nan_f64(a) || hone_is_nan_f64(b)) { return false; }
  return hone_less_u64(hone_order_f64(a), hone_order_f64(b));
}

//// hone_equal_f64(
fn hone_equal_f64(a: vec2<u32>, b: vec2<u32>) -> bool {
  if (hone_is_nan_f64(a) || hone_is_nan_f64(b)) { return false; }
  return all(hone_order_f64(a) == hone_order_f64(b));
}

//// hone_less_equal_f64(
fn hone_less_equal_f64(a: vec2<u32>, b: vec2<u32>) -> bool { return hone_less_f64(a, b) || hone_equal_f64(a, b); }

//// hone_minimum_f64(
// No number where either is none.
fn hone_minimum_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (hone_is_nan_f64(a)) { return a; }
  return select(a, b, hone_is_nan_f64(b) || hone_less_f64(b, a));
}

//// hone_maximum_f64(
fn hone_maximum_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (hone_is_nan_f64(a)) { return a; }
  return select(a, b, hone_is_nan_f64(b) || hone_less_f64(a, b));
}

//// hone_f64_of_f32(
fn hone_f64_of_f32(value: f32) -> vec2<u32> {
  let bits = bitcast<u32>(value);
  let sign = vec2<u32>(0u, bits & 0x80000000u);
  let magnitude = bits & 0x7fffffffu;
  if (magnitude == 0u) { return sign; }
  if (magnitude >= 0x7f800000u) {
    return sign | vec2<u32>(0u, 0x7ff00000u) | hone_left_64(vec2<u32>(magnitude & 0x7fffffu, 0u), 29u);
  }
  if (magnitude >= 0x800000u) {
    return sign | hone_add_64(hone_left_64(vec2<u32>(magnitude, 0u), 29u), vec2<u32>(0u, 0x38000000u));
  }
  // What has no highest bit here has one there.
  let zeros = countLeadingZeros(magnitude);
  let mantissa = hone_left_64(vec2<u32>(magnitude, 0u), zeros + 21u) & vec2<u32>(0xffffffffu, 0xfffffu);
  return sign | mantissa | vec2<u32>(0u, (905u - zeros) << 20u);
}

//// hone_cut_f64(
// The magnitude's bits in 32, cut, and what is cut off: 0 nothing, 1 less than a half, 2 the half, 3 more.
fn hone_cut_f64(a: vec2<u32>) -> vec2<u32> {
  let magnitude = a & vec2<u32>(0xffffffffu, 0x7fffffffu);
  let exponent = magnitude.y >> 20u;
  if (exponent >= 1151u) { return vec2<u32>(0x7f7fffffu, 3u); }
  if (exponent < 872u) { return vec2<u32>(0u, select(0u, 1u, hone_is_not_zero_f64(a))); }
  var mantissa = vec2<u32>(magnitude.x, (magnitude.y & 0xfffffu) | 0x100000u);
  var shift = 29u;
  var base = 0u;
  if (exponent <= 896u) { shift = 29u + 897u - exponent; } else { base = (exponent - 897u) << 23u; }
  let cut = hone_right_64(mantissa, shift);
  let rest = hone_subtract_64(mantissa, hone_left_64(cut, shift));
  let half = hone_left_64(vec2<u32>(1u, 0u), shift - 1u);
  var kind = select(1u, 3u, hone_less_u64(half, rest));
  if (all(rest == half)) { kind = 2u; }
  if (all(rest == vec2<u32>())) { kind = 0u; }
  return vec2<u32>(base + cut.x, kind);
}

//// hone_f32_of_f64(
// To the nearest, halves to even.
fn hone_f32_of_f64(a: vec2<u32>) -> f32 {
  let sign = a.y & 0x80000000u;
  if (hone_is_nan_f64(a)) { return hone_f32(sign | 0x7fc00000u); }
  if (hone_is_infinite_f64(a)) { return hone_f32(sign | 0x7f800000u); }
  let cut = hone_cut_f64(a);
  let up = cut.y == 3u || (cut.y == 2u && (cut.x & 1u) != 0u);
  return bitcast<f32>(sign | (cut.x + select(0u, 1u, up)));
}

//// hone_odd_f32_of_f64(
// To the odd neighbour, so that rounding once more rounds as if it were the first time.
fn hone_odd_f32_of_f64(a: vec2<u32>) -> f32 {
  let sign = a.y & 0x80000000u;
  if (hone_is_nan_f64(a)) { return hone_f32(sign | 0x7fc00000u); }
  if (hone_is_infinite_f64(a)) { return hone_f32(sign | 0x7f800000u); }
  let cut = hone_cut_f64(a);
  return bitcast<f32>(sign | cut.x | select(0u, 1u, cut.y != 0u));
}

//// hone_f64_of_u64(
// To the nearest, halves to even.
fn hone_f64_of_u64(a: vec2<u32>) -> vec2<u32> {
  if (all(a == vec2<u32>())) { return a; }
  let zeros = hone_leading_64(a);
  let high = hone_left_64(a, zeros);
  let mantissa = hone_right_64(high, 11u);
  let rest = high.x & 0x7ffu;
  let up = rest > 0x400u || (rest == 0x400u && (mantissa.x & 1u) != 0u);
  // The highest bit is added to the exponent.
  let bits = hone_add_64(mantissa, vec2<u32>(0u, (1085u - zeros) << 20u));
  return hone_add_64(bits, vec2<u32>(select(0u, 1u, up), 0u));
}

//// hone_f64_of_i64(
fn hone_f64_of_i64(a: vec2<u32>) -> vec2<u32> {
  return hone_f64_of_u64(hone_abs_i64(a)) | vec2<u32>(0u, a.y & 0x80000000u);
}

//// hone_u64_of_f64(
// Towards zero, to the nearest that there is; what is no number is 0.
fn hone_u64_of_f64(a: vec2<u32>) -> vec2<u32> {
  if (hone_is_nan_f64(a) || (a.y >> 31u) != 0u || a.y < 0x3ff00000u) { return vec2<u32>(); }
  let exponent = a.y >> 20u;
  if (exponent >= 1087u) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  let mantissa = vec2<u32>(a.x, (a.y & 0xfffffu) | 0x100000u);
  if (exponent < 1075u) { return hone_right_64(mantissa, 1075u - exponent); }
  return hone_left_64(mantissa, exponent - 1075u);
}

//// hone_i64_of_f64(
fn hone_i64_of_f64(a: vec2<u32>) -> vec2<u32> {
  let magnitude = hone_u64_of_f64(a & vec2<u32>(0xffffffffu, 0x7fffffffu));
  let negative = (a.y >> 31u) != 0u;
  if ((magnitude.y >> 31u) != 0u) {
    return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative);
  }
  return select(magnitude, hone_negate_64(magnitude), negative);
}

