//! Element types.

use std::fmt;
use std::str::FromStr;

/// The type of one tensor element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    BF16,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// Truth value, one byte, 0 or 1.
    Bool,
}

/// Every element type with its name in the text forms, the API and the manifest.
const NAMES: [(DataType, &str); 13] = [
    (DataType::F32, "f32"),
    (DataType::F64, "f64"),
    (DataType::F16, "f16"),
    (DataType::BF16, "bf16"),
    (DataType::I8, "i8"),
    (DataType::I16, "i16"),
    (DataType::I32, "i32"),
    (DataType::I64, "i64"),
    (DataType::U8, "u8"),
    (DataType::U16, "u16"),
    (DataType::U32, "u32"),
    (DataType::U64, "u64"),
    (DataType::Bool, "bool"),
];

impl DataType {
    /// Every element type.
    pub fn all() -> impl Iterator<Item = DataType> {
        NAMES.iter().map(|(data_type, _)| *data_type)
    }

    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DataType::I8 | DataType::U8 | DataType::Bool => 1,
            DataType::F16 | DataType::BF16 | DataType::I16 | DataType::U16 => 2,
            DataType::F32 | DataType::I32 | DataType::U32 => 4,
            DataType::F64 | DataType::I64 | DataType::U64 => 8,
        }
    }

    /// Whether values are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, DataType::F32 | DataType::F64 | DataType::F16 | DataType::BF16)
    }

    /// Whether values are integers (truth values are not).
    pub const fn is_integer(self) -> bool {
        !self.is_float() && !matches!(self, DataType::Bool)
    }

    /// Whether values are integers with a sign.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64)
    }

    /// The name in text forms.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(data_type, _)| *data_type == self).map_or("?", |(_, name)| name)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for DataType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        NAMES.iter().find(|(_, name)| *name == text).map(|(data_type, _)| *data_type).ok_or_else(
            || {
                let known: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
                format!("unknown element type '{text}': use one of {}", known.join(", "))
            },
        )
    }
}
