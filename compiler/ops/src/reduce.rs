//! Reductions of whole axes.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::check_axis;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// All elements along `axes` combined into one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reduce {
    /// What is computed of them.
    pub function: ReduceFunction,
    /// The axes, each once; none leaves each element to itself.
    pub axes: Vec<usize>,
    /// Whether the axes stay, with extent 1.
    pub keep_axes: bool,
}

/// A function of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceFunction {
    /// Sum.
    Sum,
    /// Sum divided by the number of elements.
    Mean,
    /// The largest.
    Maximum,
    /// The smallest.
    Minimum,
    /// Product.
    Product,
    /// Sum of magnitudes.
    L1,
    /// Root of the sum of squares.
    L2,
    /// Sum of squares.
    SumSquare,
    /// Logarithm of the sum.
    LogSum,
    /// Logarithm of the sum of exponentials.
    LogSumExp,
}

impl Reduce {
    /// Name in text forms.
    pub const NAME: &'static str = "reduce";

    fn output_shape(&self, shape: &[usize], keep_axes: bool) -> Vec<usize> {
        let extents = shape.iter().enumerate();
        extents
            .filter_map(|(axis, extent)| match self.axes.contains(&axis) {
                false => Some(*extent),
                true => keep_axes.then_some(1),
            })
            .collect()
    }
}

impl Operator for Reduce {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        for (place, axis) in self.axes.iter().enumerate() {
            check_axis(input, *axis)?;
            if self.axes[..place].contains(axis) {
                return Err(InferError::new(format!("axis {axis} of {input} is named twice")));
            }
        }
        let shape = self.output_shape(&input.shape, self.keep_axes);
        Ok(vec![TensorType::new(input.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
