//! Repetition of axes of extent 1.

use crate::binary::{broadcast_indices, broadcast_shapes};
use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input broadcast together with `shape`, by NumPy's rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expand {
    /// The shape that the input's shape is broadcast with.
    pub shape: Vec<usize>,
}

impl Expand {
    /// Name in text forms.
    pub const NAME: &'static str = "expand";
}

impl Operator for Expand {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let shape = broadcast_shapes(&input.shape, &self.shape).ok_or_else(|| {
            InferError::new(format!("{input} does not broadcast with shape {:?}", self.shape))
        })?;
        Ok(vec![bounded(input.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
