//! The same elements under another shape.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input's elements in row-major order under another shape of the same size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reshape {
    /// Extents of the output.
    pub shape: Vec<usize>,
}

impl Reshape {
    /// Name in text forms.
    pub const NAME: &'static str = "reshape";
}

impl Operator for Reshape {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = bounded(input.dtype, self.shape.clone())?;
        bounded(input.dtype, input.shape.clone())?;
        if output.elements() != input.elements() {
            return Err(InferError::new(format!("{input} has no reshape to {output}")));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
