//! Normalization of each sample's channels or groups of channels.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::check_channels;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `(x - mean) / sqrt(variance + epsilon) * scale[c] + bias[c]`, mean and variance over the spatial
/// axes of each channel. Inputs: x `[batch, channels, spatial...]`, scale and bias `[channels]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceNormalization {
    /// Added to the variance.
    pub epsilon: f64,
}

/// As [`InstanceNormalization`], with mean and variance over each group of adjacent channels and
/// their spatial axes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupNormalization {
    /// Number of groups the channels are divided into.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: f64,
}

impl InstanceNormalization {
    /// Name in text forms.
    pub const NAME: &'static str = "instance_normalization";
}

impl Operator for InstanceNormalization {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        let (scale, bias) = (required(Self::NAME, inputs, 1)?, required(Self::NAME, inputs, 2)?);
        check_channels(x, &[scale, bias])?;
        Ok(vec![x.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}

impl GroupNormalization {
    /// Name in text forms.
    pub const NAME: &'static str = "group_normalization";
}

impl Operator for GroupNormalization {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        let (scale, bias) = (required(Self::NAME, inputs, 1)?, required(Self::NAME, inputs, 2)?);
        check_channels(x, &[scale, bias])?;
        if self.groups == 0 || !x.shape[1].is_multiple_of(self.groups) {
            let groups = self.groups;
            return Err(InferError::new(format!(
                "the channels of {x} do not divide into {groups} groups"
            )));
        }
        Ok(vec![x.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
