//! Element types of the tensors that cross an artifact's door.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The element type of an input or output. Its name in the manifest is the lower-case name that
/// [`DataType::name`] gives. Multi-byte elements are in the byte order of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DataType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE 754 binary64.
    F64,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
    /// One byte, 0 or 1.
    Bool,
}

impl DataType {
    /// Every type, in the order of declaration (the numbers of `hone_dtype` in the C header).
    pub const ALL: [DataType; 13] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::F64,
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::Bool,
    ];

    /// Width of one element in bits.
    pub const fn bits(self) -> u64 {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 8,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 16,
            Self::F32 | Self::I32 | Self::U32 => 32,
            Self::F64 | Self::I64 | Self::U64 => 64,
        }
    }

    /// Alignment in bytes that a caller's buffer of this type must have.
    pub const fn alignment(self) -> u64 {
        self.bits().div_ceil(8)
    }

    /// Bytes of a dense tensor of this shape, or `None` where that does not fit 63 bits.
    pub fn bytes_of(self, shape: &[u64]) -> Option<u64> {
        let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        let bytes = elements.checked_mul(self.bits())?.div_ceil(8);
        (bytes <= i64::MAX as u64).then_some(bytes)
    }

    /// The name in manifests and in messages, for example `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn names_agree_with_the_json_form() {
        for dtype in DataType::ALL {
            let json = serde_json::to_string(&dtype).unwrap();
            assert_eq!(json, format!("\"{dtype}\""));
            assert_eq!(serde_json::from_str::<DataType>(&json).unwrap(), dtype);
        }
    }

    #[test]
    fn sizes_that_overflow_are_none() {
        assert_eq!(DataType::F32.bytes_of(&[2, 3]), Some(24));
        assert_eq!(DataType::F32.bytes_of(&[]), Some(4));
        assert_eq!(DataType::F32.bytes_of(&[1 << 40, 1 << 40]), None);
        assert_eq!(DataType::U8.bytes_of(&[1 << 62, 2]), None);
    }
}
