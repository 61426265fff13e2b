//! Batch normalization with known statistics.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::check_channels;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `(x - mean[c]) / sqrt(variance[c] + epsilon) * scale[c] + bias[c]`. Inputs: x `[batch, channels,
/// spatial...]`, scale, bias, mean, variance `[channels]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BatchNormalization {
    /// Added to the variance.
    pub epsilon: f64,
}

impl BatchNormalization {
    /// Name in text forms.
    pub const NAME: &'static str = "batch_normalization";
}

impl Operator for BatchNormalization {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        for place in 1..5 {
            check_channels(x, &[required(Self::NAME, inputs, place)?])?;
        }
        Ok(vec![x.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
