//! Normalization of each sample's channels or groups of channels.

use crate::express::{converted, input, load_wide, wide};
use crate::moments::{Lines, standardize};
use crate::number::Number;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::check_channels;
use crate::shape::{around, output_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let x = required(Self::NAME, inputs, 0)?;
        group_reference(self, inputs, x.shape()[1], self.epsilon)
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let channels = builder.tensor_type(input(inputs, 0)?).shape[1];
        group_expression(builder, inputs, channels, self.epsilon)
    }
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        group_reference(self, inputs, self.groups, self.epsilon)
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        group_expression(builder, inputs, self.groups, self.epsilon)
    }
}

/// The normalization of `groups` groups of channels.
fn group_reference(
    operator: &impl Operator,
    inputs: &[Option<&Tensor>],
    groups: usize,
    epsilon: f64,
) -> Result<Vec<Tensor>, OpError> {
    let output = output_type(operator, inputs)?;
    let parameter =
        |place: usize| Ok::<_, OpError>(required(operator.name(), inputs, place)?.to_f64());
    let (mut values, scale, bias) = (parameter(0)?, parameter(1)?, parameter(2)?);
    let (batch, channels, plane) = around(&output.shape, 1);
    if batch * channels * plane == 0 {
        return Ok(vec![f64::write(&output, &values)?]);
    }
    for line in values.chunks_exact_mut(channels / groups * plane) {
        standardize(line, epsilon);
    }
    for (index, plane) in values.chunks_exact_mut(plane).enumerate() {
        let (scale, bias) = (scale[index % channels], bias[index % channels]);
        plane.iter_mut().for_each(|value| *value = *value * scale + bias);
    }
    Ok(vec![f64::write(&output, &values)?])
}

/// Its blocks.
fn group_expression(
    builder: &mut Builder,
    inputs: &[Option<BufferId>],
    groups: usize,
    epsilon: f64,
) -> Option<Vec<BufferId>> {
    let (x, scale, bias) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?);
    let output = builder.tensor_type(x);
    let channels = output.shape[1] / groups.max(1);
    let kept = vec![output.shape[0], groups];
    let reduced = [&[channels], &output.shape[2..]].concat();
    let lines = Lines { x, kept, reduced, epsilon };
    let moments = lines.moments(builder, |point, by| {
        let channel = match channels {
            1 => point[1].clone(),
            _ => point[1].clone() * channels + by[0].clone(),
        };
        [&[point[0].clone(), channel], &by[1..]].concat()
    });
    Some(vec![builder.map("normalize", &output, |point| {
        let group = match channels {
            0 | 1 => point[1].clone(),
            _ => point[1].clone().floor_divide(channels.into()),
        };
        let value = load_wide(x, point.to_vec(), output.dtype);
        let parameter = |buffer: BufferId| load_wide(buffer, vec![point[1].clone()], output.dtype);
        let value = moments.standardized(value, &[point[0].clone(), group]) * parameter(scale);
        converted(value + parameter(bias), wide(output.dtype), output.dtype)
    })])
}
