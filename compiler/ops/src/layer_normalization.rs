//! Normalization over the trailing axes.

use crate::binary::broadcast_indices;
use crate::binary::broadcast_shapes;
use crate::expand::Expand;
use crate::express::{converted, input, load_wide, only_output, wide};
use crate::moments::{Lines, standardize};
use crate::number::Number;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use crate::shape::{check_axis, check_float, check_same_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (x, scale) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let spread = |parameter: &Tensor| {
            Ok::<_, OpError>(
                Expand { shape: output.shape.clone() }.reference(&[Some(parameter)])?[0].to_f64(),
            )
        };
        let length: usize = output.shape[self.axis..].iter().product();
        let mut values = x.to_f64();
        for line in values.chunks_exact_mut(length.max(1)) {
            standardize(line, self.epsilon);
        }
        for (value, scale) in values.iter_mut().zip(spread(scale)?) {
            *value *= scale;
        }
        if let Some(bias) = inputs.get(2).copied().flatten() {
            values.iter_mut().zip(spread(bias)?).for_each(|(value, bias)| *value += bias);
        }
        Ok(vec![f64::write(&output, &values)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (x, scale) = (input(inputs, 0)?, input(inputs, 1)?);
        let output = only_output(self, builder, inputs)?;
        let (kept, reduced) = output.shape.split_at(self.axis);
        let lines =
            Lines { x, kept: kept.to_vec(), reduced: reduced.to_vec(), epsilon: self.epsilon };
        let moments = lines.moments(builder, |point, by| [point, by].concat());
        let bias = input(inputs, 2);
        let scale_shape = builder.tensor_type(scale).shape;
        let bias_shape = bias.map(|bias| builder.tensor_type(bias).shape);
        Some(vec![builder.map("normalize", &output, |point| {
            let value = load_wide(x, point.to_vec(), output.dtype);
            let load = |buffer: BufferId, shape: &[usize]| {
                load_wide(buffer, broadcast_indices(point, shape), output.dtype)
            };
            let mut value =
                moments.standardized(value, &point[..self.axis]) * load(scale, &scale_shape);
            if let Some((bias, shape)) = bias.zip(bias_shape.as_ref()) {
                value = value + load(bias, shape);
            }
            converted(value, wide(output.dtype), output.dtype)
        })])
    }

    fn flops(&self, _inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        outputs.iter().map(|output| 8 * output.elements() as u64).sum()
    }
}
