//! Rounding of constants to 16-bit floats; ties to even.

/// The binary16 value nearest to `value`.
pub(crate) fn to_f16(value: f64) -> f64 {
    half::f16::from_f64(value).to_f64()
}

/// The bfloat16 value nearest to `value`.
pub(crate) fn to_bf16(value: f64) -> f64 {
    half::bf16::from_f64(value).to_f64()
}
