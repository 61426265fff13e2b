//! Convolution over any number of spatial axes, with groups.

use crate::express::{converted, load_wide, wide};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::planes::convolve;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// How a window slides over the spatial axes; one entry per axis in each list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Steps between windows, in elements.
    pub strides: Vec<usize>,
    /// Distance between the window's own elements.
    pub dilations: Vec<usize>,
    /// Padding before each axis, in elements.
    pub pads_begin: Vec<usize>,
    /// Padding after each axis, in elements.
    pub pads_end: Vec<usize>,
}

impl Window {
    /// Stride 1, dilation 1, no padding, over `axes` axes.
    pub fn plain(axes: usize) -> Self {
        let (ones, zeros) = (vec![1; axes], vec![0; axes]);
        Self { strides: ones.clone(), dilations: ones, pads_begin: zeros.clone(), pads_end: zeros }
    }

    /// Whether there is any padding.
    pub fn is_padded(&self) -> bool {
        self.pads_begin.iter().chain(&self.pads_end).any(|pad| *pad > 0)
    }

    /// Extents of the output, for spatial extents `input` and a window of `kernel`.
    pub fn output(&self, input: &[usize], kernel: &[usize]) -> Result<Vec<usize>, InferError> {
        let lists = [&self.strides, &self.dilations, &self.pads_begin, &self.pads_end];
        if lists.iter().any(|list| list.len() != input.len()) || kernel.len() != input.len() {
            let axes = input.len();
            return Err(InferError::new(format!(
                "strides, dilations and pads need {axes} entries"
            )));
        }
        (0..input.len())
            .map(|axis| {
                let (stride, dilation) = (self.strides[axis], self.dilations[axis]);
                let span = kernel[axis].checked_sub(1).and_then(|last| last.checked_mul(dilation));
                let padded = input[axis]
                    .checked_add(self.pads_begin[axis])
                    .and_then(|sum| sum.checked_add(self.pads_end[axis]));
                let room = padded.zip(span).and_then(|(padded, span)| padded.checked_sub(span.checked_add(1)?));
                match room {
                    Some(room) if stride > 0 && dilation > 0 => Ok(room / stride + 1),
                    _ => Err(InferError::new(format!(
                        "a window of {} does not fit axis {axis} of extent {} with padding {} and {}, \
                         stride {stride}, dilation {dilation}",
                        kernel[axis], input[axis], self.pads_begin[axis], self.pads_end[axis],
                    ))),
                }
            })
            .collect()
    }
}

/// `y[n, o, p...] = bias[o] + sum over c, k of x[n, g(o) + c, p * stride + k * dilation - pad] *
/// w[o, c, k...]`. Inputs: x `[batch, channels, spatial...]`, w `[out channels, channels / groups,
/// kernel...]`, and optionally bias `[out channels]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Convolution {
    /// How the window slides.
    pub window: Window,
    /// Number of groups the channels are divided into.
    pub groups: usize,
}

impl Convolution {
    /// Name in text forms.
    pub const NAME: &'static str = "convolution";
}

impl Operator for Convolution {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        if x.rank() < 3 || w.rank() != x.rank() || x.dtype != w.dtype {
            return Err(InferError::new(format!("input {x} and weights {w} do not match")));
        }
        let (channels, outputs) = (x.shape[1], w.shape[0]);
        let grouped = self.groups > 0 && outputs.is_multiple_of(self.groups);
        if !grouped || w.shape[1].checked_mul(self.groups) != Some(channels) {
            return Err(InferError::new(format!(
                "{channels} channels in {} groups do not match weights {w}",
                self.groups
            )));
        }
        if let Some(bias) = inputs.get(2).copied().flatten()
            && (bias.shape != [outputs] || bias.dtype != x.dtype)
        {
            return Err(InferError::new(format!("bias {bias} does not match weights {w}")));
        }
        let mut shape = vec![x.shape[0], outputs];
        shape.extend(self.window.output(&x.shape[2..], &w.shape[2..])?);
        Ok(vec![crate::shape::bounded(x.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let output = self.infer(&types)?.remove(0);
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let bias = inputs.get(2).copied().flatten().map(Tensor::to_f64);
        let values = convolve(self, x, w, bias.as_deref(), &output);
        Ok(vec![Tensor::from_f64(output.dtype, output.shape, &values)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (x, w) = (inputs.first().copied().flatten()?, inputs.get(1).copied().flatten()?);
        let bias = inputs.get(2).copied().flatten();
        let (x_type, w_type) = (builder.tensor_type(x), builder.tensor_type(w));
        let output = self.infer(&[Some(&x_type), Some(&w_type)]).ok()?.remove(0);
        let padded = if self.window.is_padded() { pad(builder, x, &self.window) } else { x };
        let group_outputs = output.shape[1] / self.groups;
        let dtype = output.dtype;
        let accumulated = wide(dtype);
        let summed = TensorType::new(accumulated, output.shape.clone());
        let sums = builder.reduce(
            "convolution",
            &summed,
            &w_type.shape[1..],
            Combiner::Sum,
            |point, reduction| {
                let group = point[1].clone().floor_divide(group_outputs.into());
                let first =
                    if self.groups == 1 { Expr::Integer(0) } else { group * w_type.shape[1] };
                let mut read = vec![point[0].clone(), first + reduction[0].clone()];
                // Written bare where it is, so that neighbouring axes can be joined.
                for (axis, tap) in reduction[1..].iter().enumerate() {
                    let own = point[axis + 2].clone();
                    let start = match self.window.strides[axis] {
                        1 => own,
                        stride => own * stride,
                    };
                    read.push(match w_type.shape[axis + 2] {
                        1 => start,
                        _ => start + tap.clone() * self.window.dilations[axis],
                    });
                }
                let mut weight = vec![point[1].clone()];
                weight.extend_from_slice(reduction);
                load_wide(padded, read, dtype) * load_wide(w, weight, dtype)
            },
        );
        Some(vec![match bias {
            None if accumulated == dtype => sums,
            None => builder.map("round", &output, |point| {
                converted(Expr::Load(sums, point.to_vec()), accumulated, dtype)
            }),
            Some(bias) => builder.map("bias", &output, |point| {
                let bias = load_wide(bias, vec![point[1].clone()], dtype);
                converted(Expr::Load(sums, point.to_vec()) + bias, accumulated, dtype)
            }),
        }])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let taps = inputs.get(1).copied().flatten().map_or(0, |w| w.shape[1..].iter().product());
        let each = (taps as u64).saturating_mul(2);
        outputs.iter().map(|output| each.saturating_mul(output.elements() as u64)).sum()
    }
}

/// Adds a block that copies `x`, whose spatial axes are the third one and those behind it, into a buffer with the window's
/// padding, zeros outside. Axes behind the window's stay as they are.
pub(crate) fn pad(builder: &mut Builder, x: BufferId, window: &Window) -> BufferId {
    let TensorType { dtype, shape } = builder.tensor_type(x);
    let mut padded = shape.clone();
    let pads = |axis: usize| match window.pads_begin.get(axis).zip(window.pads_end.get(axis)) {
        Some((begin, end)) => (*begin, *end),
        None => (0, 0),
    };
    for (axis, extent) in padded[2..].iter_mut().enumerate() {
        *extent += pads(axis).0 + pads(axis).1;
    }
    builder.map("pad", &TensorType::new(dtype, padded), |point| {
        let mut read = point[..2].to_vec();
        let mut inside: Option<Expr> = None;
        for (axis, place) in point[2..].iter().enumerate() {
            let ((begin, end), extent) = (pads(axis), shape[axis + 2]);
            read.push(place.clone() - begin);
            if begin + end > 0 {
                let after = Expr::from(begin).less_equal(place.clone());
                let here = after.and(place.clone().less(Expr::from(begin + extent)));
                inside = Some(match inside {
                    Some(others) => others.and(here),
                    None => here,
                });
            }
        }
        let value = Expr::Load(x, read);
        match inside {
            Some(inside) => inside.select(value, Expr::Constant(0.0, dtype)),
            None => value,
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn strided_padded_grouped_sums() {
        let operator = Convolution {
            window: Window {
                strides: vec![2, 2],
                dilations: vec![1, 1],
                pads_begin: vec![1, 1],
                pads_end: vec![1, 1],
            },
            groups: 2,
        };
        let x: Vec<f32> = (0..2 * 4 * 4).map(|value| value as f32).collect();
        let x = Tensor::from_elements([1, 2, 4, 4], &x).unwrap();
        let w = Tensor::from_elements([2, 1, 3, 3], &[1.0f32; 18]).unwrap();
        let y = operator.reference(&[Some(&x), Some(&w)]).unwrap().remove(0);
        assert_eq!(y.shape(), [1, 2, 2, 2]);
        let expected = [10.0, 24.0, 51.0, 90.0, 74.0, 120.0, 147.0, 234.0];
        assert_eq!(y.elements::<f32>().unwrap(), expected);
    }
}
