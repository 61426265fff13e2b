//// hone_tanh(
// By the exponential of what is not positive, which does not overflow; where that would lose digits, by the first
// terms of the series.
fn hone_tanh(value: f32) -> f32 {
  let magnitude = abs(value);
  if (magnitude < 0.04f) { return value - value * value * value * (1.0f / 3.0f); }
  let power = exp(-2.0f * magnitude);
  let result = (1.0f - power) / (1.0f + power);
  return select(result, -result, value < 0.0f);
}

//// hone_erf(
// Abramowitz and Stegun, Handbook of Mathematical Functions: 7.1.26, and near 0, where that would lose digits, the
// first terms of the series 7.1.5.
fn hone_erf(value: f32) -> f32 {
  let x = abs(value);
  if (x < 0.5f) {
    let square = x * x;
    let terms = 1.0f + square * (-1.0f / 3.0f + square * (0.1f + square * (-1.0f / 42.0f + square * (1.0f / 216.0f
      + square * (-1.0f / 1320.0f)))));
    return value * 1.1283791670955126f * terms;
  }
  let t = 1.0f / (1.0f + 0.3275911f * x);
  let terms = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  let result = 1.0f - terms * exp(-x * x);
  return select(result, -result, value < 0.0f);
}

//// hone_log(
// The mantissa, brought near 1, by the series of the area tangent, and the exponent.
fn hone_log(value: f32) -> f32 {
  let bits = bitcast<u32>(value);
  if (value == 0.0f) { return hone_f32(0xff800000u); }
  if ((bits >> 31u) != 0u || bits >= 0x7f800000u) {
    return select(hone_f32(0x7fc00000u), value, bits == 0x7f800000u);
  }
  // What is so small that its mantissa has no highest bit is shifted until it has.
  let zeros = countLeadingZeros(bits);
  let shift = select(0u, zeros - 8u, zeros > 8u);
  let mantissa = (bits << shift) & 0x7fffffu;
  let above = mantissa > 0x3504f3u;
  let scaled = bitcast<f32>(mantissa | select(0x3f800000u, 0x3f000000u, above));
  let exponent = i32(max(bits >> 23u, 1u)) - i32(shift) - select(127i, 126i, above);
  return f32(exponent) * 0.693145751953125f
    + (f32(exponent) * 1.4286068203e-6f + hone_log1p_near_0(scaled - 1.0f));
}

//// hone_log1p_near_0(
// Of what is less than a half in magnitude: twice the area tangent of `y / (2 + y)`.
fn hone_log1p_near_0(y: f32) -> f32 {
  let s = y / (2.0f + y);
  let z = s * s;
  return 2.0f * s * (1.0f + z * (1.0f / 3.0f + z * (0.2f + z * (1.0f / 7.0f + z * (1.0f / 9.0f + z * (1.0f / 11.0f))))));
}

//// hone_log1p(
// Of what is not negative.
fn hone_log1p(y: f32) -> f32 {
  if (y < 0.4f) { return hone_log1p_near_0(y); }
  return hone_log(1.0f + y);
}

//// hone_asin(
// By the first terms of the series up to a half; above, by the half of what is missing.
fn hone_asin(value: f32) -> f32 {
  let x = abs(value);
  let above = x > 0.5f;
  let z = select(x * x, (1.0f - x) * 0.5f, above);
  let base = select(x, sqrt(z), above);
  let terms = 1.0f + z * (1.0f / 6.0f + z * (3.0f / 40.0f + z * (5.0f / 112.0f + z * (35.0f / 1152.0f
    + z * (63.0f / 2816.0f + z * (231.0f / 13312.0f + z * (143.0f / 10240.0f + z * (6435.0f / 557056.0f
    + z * (12155.0f / 1245184.0f)))))))));
  let part = base * terms;
  let result = select(part, 1.5707963267948966f - 2.0f * part, above);
  return select(result, -result, value < 0.0f);
}

//// hone_acos(
fn hone_acos(value: f32) -> f32 {
  if (abs(value) <= 0.5f) { return 1.5707963267948966f - hone_asin(value); }
  let part = 2.0f * hone_asin(sqrt((1.0f - abs(value)) * 0.5f));
  return select(part, 3.141592653589793f - part, value < 0.0f);
}

//// hone_atan(
// By the series up to the tangent of an eighth of half a turn; above, of what is turned back by a quarter or an eighth.
fn hone_atan(value: f32) -> f32 {
  let x = abs(value);
  let inverted = x > 1.0f;
  let t = select(x, 1.0f / x, inverted);
  let above = t > 0.41421356f;
  let u = select(t, (t - 1.0f) / (t + 1.0f), above);
  let z = u * u;
  let terms = 1.0f + z * (-1.0f / 3.0f + z * (0.2f + z * (-1.0f / 7.0f + z * (1.0f / 9.0f + z * (-1.0f / 11.0f
    + z * (1.0f / 13.0f + z * (-1.0f / 15.0f + z * (1.0f / 17.0f))))))));
  let part = u * terms + select(0.0f, 0.7853981633974483f, above);
  let result = select(part, 1.5707963267948966f - part, inverted);
  return select(result, -result, value < 0.0f);
}

//// hone_sin(
fn hone_sin(value: f32) -> f32 { return hone_quarter(value, 0u); }

//// hone_cos(
fn hone_cos(value: f32) -> f32 { return hone_quarter(value, 1u); }

//// hone_tan(
fn hone_tan(value: f32) -> f32 { return hone_sin(value) / hone_cos(value); }

//// hone_quarter(
// The sine of a value and a number of quarters of a turn. Quarters are taken off in three parts, the first of which
// have few bits (Cody and Waite); then the first terms of the series.
fn hone_quarter(value: f32, quarters: u32) -> f32 {
  let count = round(value * 0.6366197723675814f);
  let rest = ((value - count * 1.5703125f) - count * 4.837512969970703e-4f) - count * 7.549789948768648e-8f;
  let z = rest * rest;
  let sine = rest * (1.0f + z * (-1.0f / 6.0f + z * (1.0f / 120.0f + z * (-1.0f / 5040.0f + z * (1.0f / 362880.0f)))));
  let cosine = 1.0f + z * (-0.5f + z * (1.0f / 24.0f + z * (-1.0f / 720.0f + z * (1.0f / 40320.0f))));
  let number = bitcast<u32>(i32(clamp(count, -2e9f, 2e9f))) + quarters;
  let result = select(sine, cosine, (number & 1u) != 0u);
  return select(result, -result, (number & 2u) != 0u);
}

//// hone_sinh(
// By the series where the difference of exponentials would lose digits. The exponential of the half does not overflow
// before the result does.
fn hone_sinh(value: f32) -> f32 {
  let z = value * value;
  if (z < 0.25f) {
    return value * (1.0f + z / 6.0f * (1.0f + z / 20.0f * (1.0f + z / 42.0f * (1.0f + z / 72.0f))));
  }
  let half = exp(0.5f * abs(value));
  let result = 0.5f * half * half - 0.5f / half / half;
  return select(result, -result, value < 0.0f);
}

//// hone_cosh(
fn hone_cosh(value: f32) -> f32 {
  let half = exp(0.5f * abs(value));
  return 0.5f * half * half + 0.5f / half / half;
}

//// hone_asinh(
fn hone_asinh(value: f32) -> f32 {
  let x = abs(value);
  var result = hone_log(x) + 0.6931471805599453f;
  if (x < 16384.0f) { result = hone_log1p(x + x * x / (1.0f + sqrt(1.0f + x * x))); }
  return select(result, -result, value < 0.0f);
}

//// hone_acosh(
fn hone_acosh(value: f32) -> f32 {
  if (value < 1.0f) { return hone_f32(0x7fc00000u); }
  let y = value - 1.0f;
  if (value < 16384.0f) { return hone_log1p(y + sqrt(y * (2.0f + y))); }
  return hone_log(value) + 0.6931471805599453f;
}

//// hone_atanh(
fn hone_atanh(value: f32) -> f32 {
  let x = abs(value);
  if (x > 1.0f) { return hone_f32(0x7fc00000u); }
  let result = 0.5f * hone_log1p(2.0f * x / (1.0f - x));
  return select(result, -result, value < 0.0f);
}

