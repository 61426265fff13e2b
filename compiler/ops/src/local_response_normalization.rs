//! Division by the strength of neighbouring channels.

use crate::express::{converted, input, load_wide, reduce_in, wide};
use crate::number::Number;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::around;
use crate::shape::{check_axis, check_float};
use hone_graph::InferError;
use hone_tensor::BinaryOp;
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

    /// Channels summed before a channel.
    fn before(&self) -> usize {
        (self.size - 1) / 2
    }
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let (batch, channels, plane) = around(input.shape(), 1);
        let values = input.to_f64();
        let mut output = Vec::with_capacity(values.len());
        for place in 0..batch * channels {
            let (sample, channel) = (place / channels, place % channels);
            let first = channel.saturating_sub(self.before());
            let last = (channel + self.size - self.before()).min(channels);
            let mut sums = vec![0.0; plane];
            for other in first..last {
                let others = &values[(sample * channels + other) * plane..][..plane];
                sums.iter_mut().zip(others).for_each(|(sum, value)| *sum += value * value);
            }
            let own = &values[place * plane..][..plane];
            let scale = self.alpha / self.size as f64;
            let divisors = sums.iter().map(|sum| (self.bias + scale * sum).powf(self.beta));
            output.extend(own.iter().zip(divisors).map(|(value, divisor)| value / divisor));
        }
        Ok(vec![f64::write(input.tensor_type(), &output)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = builder.tensor_type(x);
        let (dtype, channels) = (wide(output.dtype), output.shape[1]);
        let name = "squares";
        let (shape, extents) = (&output.shape, [self.size]);
        let sums = reduce_in(builder, name, dtype, shape, &extents, Combiner::Sum, |point, by| {
            let channel = point[1].clone() + by[0].clone() - self.before();
            let mut read = point.to_vec();
            read[1] = channel.clone();
            let value = load_wide(x, read, output.dtype);
            let inside = Expr::Integer(0).less_equal(channel.clone());
            let inside = inside.and(channel.less(channels.into()));
            inside.select(value.clone() * value, Expr::Constant(0.0, dtype))
        });
        Some(vec![builder.map("normalize", &output, |point| {
            let constant = |value: f64| Expr::Constant(value, dtype);
            let sum = Expr::Load(sums, point.to_vec());
            let strength = constant(self.bias) + sum * constant(self.alpha / self.size as f64);
            let divisor = strength.binary(BinaryOp::Power, constant(self.beta));
            let value = load_wide(x, point.to_vec(), output.dtype) / divisor;
            converted(value, dtype, output.dtype)
        })])
    }

    fn flops(&self, _inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let each = 2 * self.size as u64 + 4;
        outputs.iter().map(|output| each.saturating_mul(output.elements() as u64)).sum()
    }
}
