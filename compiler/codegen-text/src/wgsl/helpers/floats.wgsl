//// hone_f32(
// A value by its bits, for those that have no literal.
fn hone_f32(bits: u32) -> f32 { return bitcast<f32>(bits); }

//// hone_is_nan(
fn hone_is_nan(value: f32) -> bool { return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u; }

//// hone_is_infinite(
fn hone_is_infinite(value: f32) -> bool { return (bitcast<u32>(value) & 0x7fffffffu) == 0x7f800000u; }

//// hone_is_not_zero(
fn hone_is_not_zero(value: f32) -> bool { return (bitcast<u32>(value) & 0x7fffffffu) != 0u; }

//// hone_minimum(
// No number where either is none.
fn hone_minimum(a: f32, b: f32) -> f32 {
  if (hone_is_nan(a)) { return a; }
  if (hone_is_nan(b)) { return b; }
  return min(a, b);
}

//// hone_maximum(
// No number where either is none.
fn hone_maximum(a: f32, b: f32) -> f32 {
  if (hone_is_nan(a)) { return a; }
  if (hone_is_nan(b)) { return b; }
  return max(a, b);
}

//// hone_nearest(
// A number without its lowest bits, 1 to 31 of them, rounded to the nearest, halves to even.
fn hone_nearest(value: u32, bits: u32) -> u32 {
  let quotient = value >> bits;
  let rest = value & ((1u << bits) - 1u);
  let half = 1u << (bits - 1u);
  return quotient + select(0u, 1u, rest > half || (rest == half && (quotient & 1u) != 0u));
}

//// hone_to_f16(
// The bits of the nearest of 16 bits, halves to even.
fn hone_to_f16(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return sign | 0x7e00u | ((magnitude >> 13u) & 0x3ffu); }
  if (magnitude >= 0x47800000u) { return sign | 0x7c00u; }
  if (magnitude >= 0x38800000u) { return sign | hone_nearest(magnitude - 0x38000000u, 13u); }
  let exponent = magnitude >> 23u;
  if (exponent < 102u) { return sign; }
  return sign | hone_nearest((magnitude & 0x7fffffu) | 0x800000u, 126u - exponent);
}

//// hone_from_f16(
fn hone_from_f16(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13u)); }
  if (magnitude >= 0x400u) { return bitcast<f32>(sign | ((magnitude << 13u) + 0x38000000u)); }
  // Whole multiples of 2 to the power of -24.
  return bitcast<f32>(sign | bitcast<u32>(f32(magnitude) * 5.9604644775390625e-8f));
}

//// hone_from_bf16(
fn hone_from_bf16(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }

//// hone_to_bf16(
// To the nearest, halves to even; what is no number stays none.
fn hone_to_bf16(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  if (hone_is_nan(value)) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

//// hone_i32_of_f32(
// Towards zero, to the nearest that there is; what is no number is 0.
fn hone_i32_of_f32(value: f32) -> i32 {
  if (hone_is_nan(value)) { return 0i; }
  if (value >= 2147483648.0f) { return 2147483647i; }
  if (value <= -2147483648.0f) { return i32(-2147483648); }
  return i32(value);
}

//// hone_u32_of_f32(
fn hone_u32_of_f32(value: f32) -> u32 {
  if (hone_is_nan(value) || value <= 0.0f) { return 0u; }
  if (value >= 4294967296.0f) { return 4294967295u; }
  return u32(value);
}

//// hone_sigmoid(
fn hone_sigmoid(value: f32) -> f32 { return 1.0f / (1.0f + exp(-value)); }

//// hone_remainder_f32(
// With the dividend's sign, exactly: the mantissas are divided as integers.
fn hone_remainder_f32(a: f32, b: f32) -> f32 {
  let sign = bitcast<u32>(a) & 0x80000000u;
  let x = bitcast<u32>(a) & 0x7fffffffu;
  let y = bitcast<u32>(b) & 0x7fffffffu;
  if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) { return hone_f32(0x7fc00000u); }
  if (x < y) { return a; }
  var exponent = max(x >> 23u, 1u);
  let last = max(y >> 23u, 1u);
  let divisor = (y & 0x7fffffu) | select(0u, 0x800000u, y >= 0x800000u);
  var rest = ((x & 0x7fffffu) | select(0u, 0x800000u, x >= 0x800000u)) % divisor;
  while (exponent > last) {
    let step = min(exponent - last, 8u);
    rest = (rest << step) % divisor;
    exponent -= step;
  }
  if (rest == 0u) { return bitcast<f32>(sign); }
  // The mantissa's highest bit belongs to the exponent.
  let shift = min(countLeadingZeros(rest) - 8u, last - 1u);
  rest = rest << shift;
  let scale = select(0u, last - shift, rest >= 0x800000u);
  return bitcast<f32>(sign | (scale << 23u) | (rest & 0x7fffffu));
}

//// hone_floor_divide_f32(
// Of the remainder, which is exact: a quotient near a whole number may be rounded to the wrong side of it.
fn hone_floor_divide_f32(a: f32, b: f32) -> f32 {
  let quotient = floor(a / b);
  if (!(abs(quotient) < 4194304.0f) || b == 0.0f || hone_is_infinite(b)) { return quotient; }
  return round((a - hone_modulo_f32(a, b)) / b);
}

//// hone_modulo_f32(
// With the divisor's sign.
fn hone_modulo_f32(a: f32, b: f32) -> f32 {
  let rest = hone_remainder_f32(a, b);
  return select(rest, rest + b, rest != 0.0f && (rest < 0.0f) != (b < 0.0f));
}

//// hone_power_f32(
// Small whole powers by products, of which few are rounded; others by the magnitude's power, with the sign that
// whole powers have.
fn hone_power_f32(a: f32, b: f32) -> f32 {
  if (b == 0.0f || a == 1.0f) { return 1.0f; }
  if (hone_is_nan(a) || hone_is_nan(b)) { return hone_f32(0x7fc00000u); }
  let whole = floor(b) == b;
  if (whole && abs(b) <= 32.0f) {
    var result = 1.0f;
    var square = a;
    for (var rest = u32(abs(b)); rest != 0u; rest >>= 1u) {
      if ((rest & 1u) != 0u) { result *= square; }
      square *= square;
    }
    return select(result, 1.0f / result, b < 0.0f);
  }
  let infinite = hone_is_infinite(b) || hone_is_infinite(a) || a == 0.0f;
  var magnitude = 0.0f;
  if (infinite) {
    // One way it grows beyond all bounds, the other way it vanishes; 1 stays 1.
    let grows = (abs(a) > 1.0f) == (b > 0.0f);
    magnitude = select(0.0f, hone_f32(0x7f800000u), grows);
    if (abs(a) == 1.0f) { magnitude = 1.0f; }
  } else {
    magnitude = pow(abs(a), b);
  }
  let negative = (bitcast<u32>(a) >> 31u) != 0u;
  if (!negative) { return magnitude; }
  if (!whole && !infinite) { return hone_f32(0x7fc00000u); }
  // From 2 to the power of 24 on all floats are even.
  let odd = whole && abs(b) < 16777216.0f && (u32(abs(b)) & 1u) != 0u;
  return select(magnitude, -magnitude, odd);
}

