//// hone_runtime_f32(
// A value that is no constant expression.
fn hone_runtime_f32(value: f32) -> f32 { return value; }

//// hone_runtime_i32(
fn hone_runtime_i32(value: i32) -> i32 { return value; }

//// hone_runtime_u32(
fn hone_runtime_u32(value: u32) -> u32 { return value; }

//// hone_load_u8(
// The element of that number, of a word that holds four.
fn hone_load_u8(word: u32, index: i32) -> u32 { return extractBits(word, u32((index & 3i) * 8i), 8u); }

//// hone_load_i8(
fn hone_load_i8(word: u32, index: i32) -> i32 { return extractBits(bitcast<i32>(word), u32((index & 3i) * 8i), 8u); }

//// hone_load_u16(
// The element of that number, of a word that holds two.
fn hone_load_u16(word: u32, index: i32) -> u32 { return extractBits(word, u32((index & 1i) * 16i), 16u); }

//// hone_load_i16(
fn hone_load_i16(word: u32, index: i32) -> i32 { return extractBits(bitcast<i32>(word), u32((index & 1i) * 16i), 16u); }

//// hone_divide_i32(
// Towards zero; by 0 it is 0.
fn hone_divide_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  if (b == -1i) { return 0i - a; }
  return a / b;
}

//// hone_divide_u32(
fn hone_divide_u32(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a / b;
}

//// hone_floor_divide_i32(
// Rounded down.
fn hone_floor_divide_i32(a: i32, b: i32) -> i32 {
  let quotient = hone_divide_i32(a, b);
  let inexact = hone_remainder_i32(a, b) != 0i && (a < 0i) != (b < 0i);
  return select(quotient, quotient - 1i, inexact);
}

//// hone_floor_divide_u32(
fn hone_floor_divide_u32(a: u32, b: u32) -> u32 { return hone_divide_u32(a, b); }

//// hone_remainder_i32(
// With the dividend's sign.
fn hone_remainder_i32(a: i32, b: i32) -> i32 {
  if (b == 0i || b == -1i) { return 0i; }
  return a % b;
}

//// hone_remainder_u32(
fn hone_remainder_u32(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a % b;
}

//// hone_modulo_i32(
// With the divisor's sign.
fn hone_modulo_i32(a: i32, b: i32) -> i32 {
  let rest = hone_remainder_i32(a, b);
  return select(rest, rest + b, rest != 0i && (rest < 0i) != (b < 0i));
}

//// hone_modulo_u32(
fn hone_modulo_u32(a: u32, b: u32) -> u32 { return hone_remainder_u32(a, b); }

//// hone_power_u32(
// Whole powers wrap.
fn hone_power_u32(base: u32, exponent: u32) -> u32 {
  var result = 1u;
  var square = base;
  for (var rest = exponent; rest != 0u; rest >>= 1u) {
    if ((rest & 1u) != 0u) { result *= square; }
    square *= square;
  }
  return result;
}

//// hone_power_i32(
// Negative powers are the quotient, cut.
fn hone_power_i32(base: i32, exponent: i32) -> i32 {
  if (exponent >= 0i) { return bitcast<i32>(hone_power_u32(bitcast<u32>(base), bitcast<u32>(exponent))); }
  if (base == 1i) { return 1i; }
  if (base == -1i) { return select(-1i, 1i, (exponent & 1i) == 0i); }
  return 0i;
}

//// hone_shift_left_i32(
// By all bits or more it is 0.
fn hone_shift_left_i32(a: i32, b: i32) -> i32 {
  return select(0i, a << (bitcast<u32>(b) & 31u), b >= 0i && b < 32i);
}

//// hone_shift_left_u32(
fn hone_shift_left_u32(a: u32, b: u32) -> u32 { return select(0u, a << (b & 31u), b < 32u); }

//// hone_shift_right_i32(
// As in 64 bits: by 64 or more it is 0.
fn hone_shift_right_i32(a: i32, b: i32) -> i32 {
  return select(0i, a >> u32(clamp(b, 0i, 31i)), b >= 0i && b < 64i);
}

//// hone_shift_right_u32(
fn hone_shift_right_u32(a: u32, b: u32) -> u32 { return select(0u, a >> (b & 31u), b < 32u); }

