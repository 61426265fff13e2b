//// hone_from_f16(
__attribute__((overloadable)) float hone_from_f16(ushort bits) {
  return vload_half(0, (const __private half*)&bits);
}

//// hone_to_f16(
__attribute__((overloadable)) ushort hone_to_f16(float value) {
  ushort bits;
  vstore_half_rte(value, 0, (__private half*)&bits);
  return bits;
}

__attribute__((overloadable)) ushort hone_to_f16(double value) {
  ushort bits;
  vstore_half_rte(value, 0, (__private half*)&bits);
  return bits;
}

//// hone_from_bf16(
float hone_from_bf16(ushort bits) {
  return as_float((uint)bits << 16);
}

//// hone_to_bf16(
/* To the nearest, halves to even; a number that is none stays none. */
__attribute__((overloadable)) ushort hone_to_bf16(float value) {
  uint bits = as_uint(value);
  if (isnan(value)) return (ushort)((bits >> 16) | 0x40u);
  return (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* By way of a float that is rounded to odd, so that nothing is rounded twice. */
__attribute__((overloadable)) ushort hone_to_bf16(double value) {
  float cut = convert_float_rtz(value);
  uint bits = as_uint(cut);
  if (!isnan(value) && !isinf(cut) && (double)cut != value) bits |= 1u;
  return hone_to_bf16(as_float(bits));
}

//// hone_sigmoid(
__attribute__((overloadable)) float hone_sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
__attribute__((overloadable)) double hone_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

//// hone_modulo(
/* The remainder with the divisor's sign. */
__attribute__((overloadable)) float hone_modulo(float a, float b) {
  float rest = fmod(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}

__attribute__((overloadable)) double hone_modulo(double a, double b) {
  double rest = fmod(a, b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

//// hone_minimum(
/* None where either is none. */
__attribute__((overloadable)) float hone_minimum(float a, float b) {
  return isnan(a) ? a : isnan(b) ? b : fmin(a, b);
}

__attribute__((overloadable)) double hone_minimum(double a, double b) {
  return isnan(a) ? a : isnan(b) ? b : fmin(a, b);
}

//// hone_maximum(
/* None where either is none. */
__attribute__((overloadable)) float hone_maximum(float a, float b) {
  return isnan(a) ? a : isnan(b) ? b : fmax(a, b);
}

__attribute__((overloadable)) double hone_maximum(double a, double b) {
  return isnan(a) ? a : isnan(b) ? b : fmax(a, b);
}

//// hone_saturated_
/* Towards zero, to the nearest that the type has; none is 0. */
__attribute__((overloadable)) char hone_saturated_char(float x) { return isnan(x) ? (char)0 : convert_char_sat_rtz(x); }
__attribute__((overloadable)) char hone_saturated_char(double x) { return isnan(x) ? (char)0 : convert_char_sat_rtz(x); }
__attribute__((overloadable)) uchar hone_saturated_uchar(float x) { return isnan(x) ? (uchar)0 : convert_uchar_sat_rtz(x); }
__attribute__((overloadable)) uchar hone_saturated_uchar(double x) { return isnan(x) ? (uchar)0 : convert_uchar_sat_rtz(x); }
__attribute__((overloadable)) short hone_saturated_short(float x) { return isnan(x) ? (short)0 : convert_short_sat_rtz(x); }
__attribute__((overloadable)) short hone_saturated_short(double x) { return isnan(x) ? (short)0 : convert_short_sat_rtz(x); }
__attribute__((overloadable)) ushort hone_saturated_ushort(float x) { return isnan(x) ? (ushort)0 : convert_ushort_sat_rtz(x); }
__attribute__((overloadable)) ushort hone_saturated_ushort(double x) { return isnan(x) ? (ushort)0 : convert_ushort_sat_rtz(x); }
__attribute__((overloadable)) int hone_saturated_int(float x) { return isnan(x) ? (int)0 : convert_int_sat_rtz(x); }
__attribute__((overloadable)) int hone_saturated_int(double x) { return isnan(x) ? (int)0 : convert_int_sat_rtz(x); }
__attribute__((overloadable)) uint hone_saturated_uint(float x) { return isnan(x) ? (uint)0 : convert_uint_sat_rtz(x); }
__attribute__((overloadable)) uint hone_saturated_uint(double x) { return isnan(x) ? (uint)0 : convert_uint_sat_rtz(x); }
__attribute__((overloadable)) long hone_saturated_long(float x) { return isnan(x) ? (long)0 : convert_long_sat_rtz(x); }
__attribute__((overloadable)) long hone_saturated_long(double x) { return isnan(x) ? (long)0 : convert_long_sat_rtz(x); }
__attribute__((overloadable)) ulong hone_saturated_ulong(float x) { return isnan(x) ? (ulong)0 : convert_ulong_sat_rtz(x); }
__attribute__((overloadable)) ulong hone_saturated_ulong(double x) { return isnan(x) ? (ulong)0 : convert_ulong_sat_rtz(x); }

//// hone_abs(
long hone_abs(long x) { return x < 0 ? (long)(0UL - (ulong)x) : x; }

//// hone_divide(
/* Towards zero; by 0 it is 0, as a device may not stop. */
__attribute__((overloadable)) long hone_divide(long a, long b) {
  return b == 0 ? 0 : b == -1 ? (long)(0UL - (ulong)a) : a / b;
}

__attribute__((overloadable)) ulong hone_divide(ulong a, ulong b) { return b == 0 ? 0 : a / b; }

//// hone_floor_divide(
__attribute__((overloadable)) long hone_floor_divide(long a, long b) {
  if (b == 0) return 0;
  if (b == -1) return (long)(0UL - (ulong)a);
  long quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

__attribute__((overloadable)) ulong hone_floor_divide(ulong a, ulong b) { return b == 0 ? 0 : a / b; }

//// hone_modulo_of_integers(
/* The remainder with the divisor's sign. */
__attribute__((overloadable)) long hone_modulo_of_integers(long a, long b) {
  if (b == 0 || b == -1) return 0;
  long rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

__attribute__((overloadable)) ulong hone_modulo_of_integers(ulong a, ulong b) { return b == 0 ? 0 : a % b; }

//// hone_remainder(
/* The remainder with the dividend's sign. */
__attribute__((overloadable)) long hone_remainder(long a, long b) { return b == 0 || b == -1 ? 0 : a % b; }
__attribute__((overloadable)) ulong hone_remainder(ulong a, ulong b) { return b == 0 ? 0 : a % b; }

//// hone_power(
/* Whole powers wrap; negative ones are the quotient, cut. */
__attribute__((overloadable)) ulong hone_power(ulong base, ulong exponent) {
  ulong result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

__attribute__((overloadable)) long hone_power(long base, long exponent) {
  if (exponent >= 0) return (long)hone_power((ulong)base, (ulong)exponent);
  if (base == 1) return 1;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  return 0;
}

//// hone_shift_left(
/* By all bits or more it is 0. */
__attribute__((overloadable)) long hone_shift_left(long a, long b) {
  return b < 0 || b > 63 ? 0 : (long)((ulong)a << b);
}

__attribute__((overloadable)) ulong hone_shift_left(ulong a, ulong b) { return b > 63 ? 0 : a << b; }

//// hone_shift_right(
/* By all bits or more it is 0. */
__attribute__((overloadable)) long hone_shift_right(long a, long b) { return b < 0 || b > 63 ? 0 : a >> b; }
__attribute__((overloadable)) ulong hone_shift_right(ulong a, ulong b) { return b > 63 ? 0 : a >> b; }
