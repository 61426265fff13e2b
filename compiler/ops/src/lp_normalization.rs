//! Division by a norm.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{check_axis, check_float};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `x / norm(x)` along an axis; zero where the norm is zero.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LpNormalization {
    /// The axis the norm is taken along.
    pub axis: usize,
    /// Order of the norm: 1 or 2.
    pub order: u8,
}

impl LpNormalization {
    /// Name in text forms.
    pub const NAME: &'static str = "lp_normalization";
}

impl Operator for LpNormalization {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        check_float(input)?;
        if !matches!(self.order, 1 | 2) {
            return Err(InferError::new(format!("a norm of order {} is not 1 or 2", self.order)));
        }
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
