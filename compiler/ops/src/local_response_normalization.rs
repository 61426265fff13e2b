//! Division by the strength of neighbouring channels.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{check_axis, check_float};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `x[c] / (bias + alpha / size * s)^beta`, where `s` is the sum of squares over the `size` channels
/// around `c`: `(size - 1) / 2` before it (rounded down) and the rest after. Input: x `[batch,
/// channels, spatial...]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LocalResponseNormalization {
    /// Number of channels summed over.
    pub size: usize,
    /// Scale of the sum.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// Added to the scaled sum.
    pub bias: f64,
}

impl LocalResponseNormalization {
    /// Name in text forms.
    pub const NAME: &'static str = "local_response_normalization";
}

impl Operator for LocalResponseNormalization {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        check_axis(x, 1)?;
        check_float(x)?;
        if self.size == 0 || self.size > u32::MAX as usize {
            return Err(InferError::new(format!("cannot sum over {} channels", self.size)));
        }
        Ok(vec![x.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
