//! Element type and shape of a tensor.

use crate::DataType;
use std::fmt;

/// Element type and shape; axes in row-major order, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DataType,
    /// Extent of each axis; empty for a scalar.
    pub shape: Vec<usize>,
}

impl TensorType {
    /// A tensor type.
    pub fn new(dtype: DataType, shape: impl Into<Vec<usize>>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements; 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }

    /// Elements as `checked` arithmetic: `None` where the product does not fit in memory.
    pub fn checked_bytes(&self) -> Option<usize> {
        self.shape
            .iter()
            .try_fold(self.dtype.bytes(), |bytes, extent| bytes.checked_mul(*extent))
            .filter(|bytes| *bytes <= isize::MAX as usize)
    }

    /// Row-major strides in elements, one per axis.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        strides
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        write!(formatter, "{}[{}]", self.dtype, shape.join(", "))
    }
}
