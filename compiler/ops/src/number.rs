//! Reference arithmetic: in `f64` for floating-point tensors, and exactly for integers, wrapping
//! around as the machine's do.

use crate::operator::OpError;
use hone_types::{DataType, Tensor, TensorType};

/// A number that reference results are computed in.
pub(crate) trait Number: Copy + PartialOrd {
    /// Changes nothing when added.
    const ZERO: Self;

    /// The elements of a tensor.
    fn read(tensor: &Tensor) -> Vec<Self>;
    /// A tensor of the given elements.
    fn write(tensor_type: &TensorType, values: &[Self]) -> Result<Tensor, OpError>;
    /// `self + other`
    fn plus(self, other: Self) -> Self;
    /// `self * other`
    fn times(self, other: Self) -> Self;
    /// `self / count`; integers are cut towards zero.
    fn over(self, count: usize) -> Self;
    /// The larger; not a number where either is not.
    fn larger(self, other: Self) -> Self;
    /// The smaller; not a number where either is not.
    fn smaller(self, other: Self) -> Self;
    /// The magnitude.
    fn magnitude(self) -> Self;
    /// The number as `f64`.
    fn real(self) -> f64;
    /// The number of a constant of type `dtype`, which is cut and saturated to that type.
    fn constant(value: f64, dtype: DataType) -> Result<Self, OpError> {
        let scalar = Tensor::from_f64(dtype, [], &[value])?;
        Ok(Self::read(&scalar)[0])
    }
}

impl Number for f64 {
    const ZERO: Self = 0.0;

    fn read(tensor: &Tensor) -> Vec<Self> {
        tensor.to_f64()
    }
    fn write(tensor_type: &TensorType, values: &[Self]) -> Result<Tensor, OpError> {
        Ok(Tensor::from_f64(tensor_type.dtype, tensor_type.shape.clone(), values)?)
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn times(self, other: Self) -> Self {
        self * other
    }
    fn over(self, count: usize) -> Self {
        self / count as f64
    }
    fn larger(self, other: Self) -> Self {
        if self.is_nan() || other.is_nan() { f64::NAN } else { self.max(other) }
    }
    fn smaller(self, other: Self) -> Self {
        if self.is_nan() || other.is_nan() { f64::NAN } else { self.min(other) }
    }
    fn magnitude(self) -> Self {
        self.abs()
    }
    fn real(self) -> f64 {
        self
    }
    /// Stored values are rounded later.
    fn constant(value: f64, _dtype: DataType) -> Result<Self, OpError> {
        Ok(value)
    }
}

macro_rules! integer {
    ($($integer:ident => |$value:ident| $magnitude:expr),*) => {$(
        impl Number for $integer {
            const ZERO: Self = 0;

            fn read(tensor: &Tensor) -> Vec<Self> {
                tensor.to_i64().into_iter().map(|value| value as $integer).collect()
            }
            fn write(tensor_type: &TensorType, values: &[Self]) -> Result<Tensor, OpError> {
                let width = tensor_type.dtype.bytes();
                let bytes: Vec<u8> = match tensor_type.dtype {
                    DataType::Bool => values.iter().map(|value| u8::from(*value != 0)).collect(),
                    _ => values
                        .iter()
                        .flat_map(|value| value.to_le_bytes().into_iter().take(width))
                        .collect(),
                };
                Ok(Tensor::from_bytes(tensor_type.clone(), bytes)?)
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn over(self, count: usize) -> Self {
                self.checked_div(count as $integer).unwrap_or(0)
            }
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
            fn magnitude(self) -> Self {
                let $value = self;
                $magnitude
            }
            fn real(self) -> f64 {
                self as f64
            }
        }
    )*};
}

integer!(i64 => |value| value.wrapping_abs(), u64 => |value| value);

/// Evaluates an expression with a name bound to the [`Number`] that tensors of `dtype` need.
macro_rules! with_number {
    ($dtype:expr, $number:ident => $body:expr) => {{
        let dtype: hone_types::DataType = $dtype;
        if dtype.is_float() {
            type $number = f64;
            $body
        } else if dtype == hone_types::DataType::U64 {
            type $number = u64;
            $body
        } else {
            type $number = i64;
            $body
        }
    }};
}
pub(crate) use with_number;
