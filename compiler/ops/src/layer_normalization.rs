//! Normalization over the trailing axes.

use crate::binary::broadcast_shapes;
use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{check_axis, check_float, check_same_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `(x - mean) / sqrt(variance + epsilon) * scale + bias`, mean and variance over the axes from
/// `axis` on. Inputs: x, scale, and optionally bias; the latter two broadcast to x.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LayerNormalization {
    /// First of the axes normalized over.
    pub axis: usize,
    /// Added to the variance.
    pub epsilon: f64,
}

impl LayerNormalization {
    /// Name in text forms.
    pub const NAME: &'static str = "layer_normalization";
}

impl Operator for LayerNormalization {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (x, scale) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_axis(x, self.axis)?;
        check_float(x)?;
        for parameter in [Some(scale), inputs.get(2).copied().flatten()].into_iter().flatten() {
            check_same_type(x, &[parameter])?;
            if broadcast_shapes(&x.shape, &parameter.shape).as_ref() != Some(&x.shape) {
                return Err(InferError::new(format!("{parameter} does not broadcast to {x}")));
            }
        }
        Ok(vec![x.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
