//! Softmax and its logarithm.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{check_axis, check_float};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Softmax {
    /// The axis that sums to one.
    pub axis: usize,
    /// Whether the result is the logarithm.
    pub log: bool,
}

impl Softmax {
    /// Name in text forms.
    pub const NAME: &'static str = "softmax";
}

impl Operator for Softmax {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        check_float(input)?;
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
