//! Seeded random inputs, equal on every machine: what verification and measurement run on.

use half::{bf16, f16};
use hone_artifact::{DataType, TensorInfo};
pub use hone_driver::Random;

/// Random content for a tensor of an artifact, whose model is not at hand: reals between -1 and 1, integers of
/// 0 and 1, which are indices and masks of nearly every model ([`crate::inputs`] knows more).
pub fn content(tensor: &TensorInfo, random: &mut Random) -> Vec<u8> {
    let size = tensor.dtype.bytes_of(&[]).unwrap_or(1).max(1);
    let count = tensor.bytes / size;
    let mut bytes = Vec::with_capacity(tensor.bytes as usize);
    for _ in 0..count {
        element(tensor.dtype, random, &mut bytes);
    }
    bytes
}

fn element(dtype: DataType, random: &mut Random, bytes: &mut Vec<u8>) {
    match dtype {
        DataType::F32 | DataType::F64 | DataType::F16 | DataType::Bf16 => {
            real(dtype, random.signed_unit(), bytes);
        }
        other => whole(other, random.below(2) as i64, bytes),
    }
}

/// Appends a real number of a floating-point type, rounded.
pub fn real(dtype: DataType, value: f64, bytes: &mut Vec<u8>) {
    match dtype {
        DataType::F64 => bytes.extend(value.to_le_bytes()),
        DataType::F16 => bytes.extend(f16::from_f64(value).to_le_bytes()),
        DataType::Bf16 => bytes.extend(bf16::from_f64(value).to_le_bytes()),
        _ => bytes.extend((value as f32).to_le_bytes()),
    }
}

/// Appends a whole number of any other type, cut to its size.
pub fn whole(dtype: DataType, value: i64, bytes: &mut Vec<u8>) {
    let size = dtype.bytes_of(&[]).unwrap_or(1) as usize;
    bytes.extend(&value.to_le_bytes()[..size.min(8)]);
}
