//! Running sums.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::check_axis;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The sum of all elements up to each one along an axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CumulativeSum {
    /// The axis summed along.
    pub axis: usize,
    /// Whether the element itself is left out.
    pub exclusive: bool,
    /// Whether to sum from the end.
    pub reverse: bool,
}

impl CumulativeSum {
    /// Name in text forms.
    pub const NAME: &'static str = "cumulative_sum";
}

impl Operator for CumulativeSum {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
