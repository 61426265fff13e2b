//! Convolution over any number of spatial axes, with groups.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::thread;

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
        let planes = Planes::new(self, x, w, &output);
        let plane = planes.outputs.iter().product::<usize>();
        let mut values = vec![0.0; output.elements()];
        let compute = |first: usize, sums: &mut [f64]| {
            for (index, sums) in sums.chunks_exact_mut(plane.max(1)).enumerate() {
                let index = first + index;
                let (batch, channel) = (index / output.shape[1], index % output.shape[1]);
                sums.fill(bias.as_ref().map_or(0.0, |bias| bias[channel]));
                planes.accumulate(batch, channel, sums);
            }
        };
        // Each plane is computed by one thread, so that their number changes no sum.
        let threads = thread::available_parallelism().map_or(1, |count| count.get());
        let share = (values.len() / plane.max(1)).div_ceil(threads).max(1);
        thread::scope(|scope| {
            for (index, sums) in values.chunks_mut(share * plane.max(1)).enumerate() {
                let compute = &compute;
                scope.spawn(move || compute(index * share, sums));
            }
        });
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
        let sums = builder.reduce(
            "convolution",
            &output,
            &w_type.shape[1..],
            Combiner::Sum,
            |point, reduction| {
                let group = point[1].clone().floor_divide(group_outputs.into());
                let first =
                    if self.groups == 1 { Expr::Integer(0) } else { group * w_type.shape[1] };
                let mut read = vec![point[0].clone(), first + reduction[0].clone()];
                for (axis, tap) in reduction[1..].iter().enumerate() {
                    let start = point[axis + 2].clone() * self.window.strides[axis];
                    read.push(start + tap.clone() * self.window.dilations[axis]);
                }
                let mut weight = vec![point[1].clone()];
                weight.extend_from_slice(reduction);
                Expr::Load(padded, read) * Expr::Load(w, weight)
            },
        );
        Some(vec![match bias {
            None => sums,
            Some(bias) => builder.map("bias", &output, |point| {
                Expr::Load(sums, point.to_vec()) + Expr::Load(bias, vec![point[1].clone()])
            }),
        }])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let taps = inputs.get(1).copied().flatten().map_or(0, |w| w.shape[1..].iter().product());
        let each = (taps as u64).saturating_mul(2);
        outputs.iter().map(|output| each.saturating_mul(output.elements() as u64)).sum()
    }
}

/// Adds a block that copies `x` into a buffer with the window's padding, zeros outside.
fn pad(builder: &mut Builder, x: BufferId, window: &Window) -> BufferId {
    let TensorType { dtype, shape } = builder.tensor_type(x);
    let mut padded = shape.clone();
    for (axis, extent) in padded[2..].iter_mut().enumerate() {
        *extent += window.pads_begin[axis] + window.pads_end[axis];
    }
    builder.map("pad", &TensorType::new(dtype, padded), |point| {
        let mut read = point[..2].to_vec();
        let mut inside: Option<Expr> = None;
        for (axis, place) in point[2..].iter().enumerate() {
            let (begin, extent) = (window.pads_begin[axis], shape[axis + 2]);
            read.push(place.clone() - begin);
            if begin + window.pads_end[axis] > 0 {
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

/// The operands of a reference convolution, in `f64`.
struct Planes<'a> {
    window: &'a Window,
    groups: usize,
    x: Vec<f64>,
    w: Vec<f64>,
    x_shape: Vec<usize>,
    w_shape: Vec<usize>,
    outputs: Vec<usize>,
}

impl<'a> Planes<'a> {
    fn new(operator: &'a Convolution, x: &Tensor, w: &Tensor, output: &TensorType) -> Self {
        Self {
            window: &operator.window,
            groups: operator.groups,
            x: x.to_f64(),
            w: w.to_f64(),
            x_shape: x.shape().to_vec(),
            w_shape: w.shape().to_vec(),
            outputs: output.shape[2..].to_vec(),
        }
    }

    /// Adds to `sums`, one output plane, what all input channels of its group contribute.
    fn accumulate(&self, batch: usize, output_channel: usize, sums: &mut [f64]) {
        let group_channels = self.w_shape[1];
        let group = output_channel * self.groups / self.w_shape[0];
        let plane: usize = self.x_shape[2..].iter().product();
        let taps: usize = self.w_shape[2..].iter().product();
        for channel in 0..group_channels {
            let x_channel = batch * self.x_shape[1] + group * group_channels + channel;
            let x = &self.x[x_channel * plane..][..plane];
            let w = &self.w[(output_channel * group_channels + channel) * taps..][..taps];
            for (tap, weight) in w.iter().enumerate() {
                self.accumulate_tap(x, tap, *weight, sums);
            }
        }
    }

    /// Adds one tap's products, a row of the innermost axis at a time.
    fn accumulate_tap(&self, x: &[f64], tap: usize, weight: f64, sums: &mut [f64]) {
        let axes = self.outputs.len();
        let offsets = self.offsets(tap);
        let width = self.outputs[axes - 1];
        for (row, sums) in sums.chunks_exact_mut(width).enumerate() {
            let Some(start) = self.row_start(row, &offsets) else { continue };
            let extent = self.x_shape[axes + 1] as isize;
            let (stride, offset) = (self.window.strides[axes - 1] as isize, offsets[axes - 1]);
            let first =
                (-offset).max(0).cast_unsigned().div_ceil(stride.cast_unsigned()).cast_signed();
            let last = (extent - 1 - offset).div_euclid(stride).min(width as isize - 1);
            if last < first {
                continue;
            }
            let (first, last) = (first as usize, last as usize);
            let begin = (start as isize + first as isize * stride + offset) as usize;
            let read = x[begin..].iter().step_by(stride as usize);
            for (sum, value) in sums[first..=last].iter_mut().zip(read) {
                *sum += value * weight;
            }
        }
    }

    /// Where a tap reads relative to the window's start, minus the padding, per spatial axis.
    fn offsets(&self, tap: usize) -> Vec<isize> {
        let mut rest = tap;
        let mut offsets = vec![0; self.outputs.len()];
        for axis in (0..offsets.len()).rev() {
            let place = rest % self.w_shape[axis + 2];
            rest /= self.w_shape[axis + 2];
            let dilated = (place * self.window.dilations[axis]) as isize;
            offsets[axis] = dilated - self.window.pads_begin[axis] as isize;
        }
        offsets
    }

    /// Flat place of the input row that output row `row` reads; `None` in the padding.
    fn row_start(&self, row: usize, offsets: &[isize]) -> Option<usize> {
        let axes = self.outputs.len();
        let (mut rest, mut start) = (row, 0);
        let mut stride = self.x_shape[axes + 1];
        for axis in (0..axes - 1).rev() {
            let place = (rest % self.outputs[axis]) * self.window.strides[axis];
            rest /= self.outputs[axis];
            let read = place as isize + offsets[axis];
            if read < 0 || read >= self.x_shape[axis + 2] as isize {
                return None;
            }
            start += read as usize * stride;
            stride *= self.x_shape[axis + 2];
        }
        Some(start)
    }
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
