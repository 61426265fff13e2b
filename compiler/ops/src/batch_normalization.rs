//! Batch normalization with known statistics.

use crate::express::{converted, input, load_wide, wide};
use crate::number::Number;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::check_channels;
use crate::shape::{around, output_type};
use hone_graph::InferError;
use hone_tensor::UnaryOp;
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let output = output_type(self, inputs)?;
        let read = |place: usize| Ok::<_, OpError>(required(Self::NAME, inputs, place)?.to_f64());
        let (mut values, scale, bias) = (read(0)?, read(1)?, read(2)?);
        let (mean, variance) = (read(3)?, read(4)?);
        let (_, channels, plane) = around(&output.shape, 1);
        for (index, plane) in values.chunks_exact_mut(plane.max(1)).enumerate() {
            let channel = index % channels;
            let factor = scale[channel] / (variance[channel] + self.epsilon).sqrt();
            for value in plane {
                *value = (*value - mean[channel]) * factor + bias[channel];
            }
        }
        Ok(vec![f64::write(&output, &values)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let (scale, bias) = (input(inputs, 1)?, input(inputs, 2)?);
        let (mean, variance) = (input(inputs, 3)?, input(inputs, 4)?);
        let output = builder.tensor_type(x);
        let dtype = wide(output.dtype);
        Some(vec![builder.map("batch_normalization", &output, |point| {
            let channel =
                |buffer: BufferId| load_wide(buffer, vec![point[1].clone()], output.dtype);
            let deviation =
                (channel(variance) + Expr::Constant(self.epsilon, dtype)).unary(UnaryOp::Sqrt);
            let distance = load_wide(x, point.to_vec(), output.dtype) - channel(mean);
            let value = distance * (channel(scale) / deviation) + channel(bias);
            converted(value, dtype, output.dtype)
        })])
    }

    fn flops(&self, _inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        outputs.iter().map(|output| 2 * output.elements() as u64).sum()
    }
}
