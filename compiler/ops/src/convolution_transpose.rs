//! Transposed convolution.

use crate::convolution::Window;
use crate::express::{Guard, input, load_wide, only_output, reduce};
use crate::number::Number;
use crate::operator::{FusionClass, Graph, OpError, Operator, named, required};
use crate::phases;
use crate::shape::output_type;
use crate::shape::{bounded, check_same_type};
use crate::sums::for_each_chunk;
use hone_graph::{InferError, ValueId};
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Each input element adds its weights, scaled, to a window of the output: `y[n, g(c) + o, p *
/// stride + k * dilation - pad] += x[n, c, p...] * w[c, o, k...]`. Inputs: x `[batch, channels,
/// spatial...]`, w `[channels, out channels / groups, kernel...]`, and optionally bias `[out
/// channels]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConvolutionTranspose {
    /// How the window slides over the output; the padding is cut off it.
    pub window: Window,
    /// Number of groups the channels are divided into.
    pub groups: usize,
    /// Extents added at the end of each spatial axis.
    pub output_padding: Vec<usize>,
}

impl ConvolutionTranspose {
    /// Name in text forms.
    pub const NAME: &'static str = "convolution_transpose";

    /// Whether each output element belongs to just one window, and nothing is cut off or added.
    fn is_disjoint(&self, w: &[usize]) -> bool {
        let window = &self.window;
        window.strides == w[2..]
            && !window.is_padded()
            && window.dilations.iter().chain(&[1]).all(|dilation| *dilation == 1)
            && self.output_padding.iter().all(|padding| *padding == 0)
    }

    /// The channel of the input and of the weights that place `by` of an output channel's group is.
    fn channels(&self, types: &[TensorType; 2], channel: &Expr, by: &Expr) -> (Expr, Expr) {
        let (own, outputs) = (types[0].shape[1] / self.groups, types[1].shape[1]);
        if self.groups == 1 {
            return (by.clone(), channel.clone());
        }
        let group = channel.clone().floor_divide(outputs.into());
        (group * own + by.clone(), channel.clone().modulo(outputs.into()))
    }

    fn disjoint(
        &self,
        builder: &mut Builder,
        [x, w]: [BufferId; 2],
        types: &[TensorType; 2],
        output: &TensorType,
    ) -> BufferId {
        let reduction = [types[0].shape[1] / self.groups];
        reduce(builder, "convolution", output, &reduction, Combiner::Sum, |point, by| {
            let (source, own) = self.channels(types, &point[1], &by[0]);
            let mut read = vec![point[0].clone(), source.clone()];
            let mut weight = vec![source, own];
            for (place, stride) in point[2..].iter().zip(&self.window.strides) {
                read.push(place.clone().floor_divide((*stride).into()));
                weight.push(place.clone().modulo((*stride).into()));
            }
            load_wide(x, read, output.dtype) * load_wide(w, weight, output.dtype)
        })
    }

    fn spread_convolution(
        &self,
        builder: &mut Builder,
        [x, w]: [BufferId; 2],
        types: &[TensorType; 2],
        output: &TensorType,
    ) -> BufferId {
        let spans: Vec<usize> = types[1].shape[2..]
            .iter()
            .zip(&self.window.dilations)
            .map(|(kernel, dilation)| (kernel - 1) * dilation)
            .collect();
        let spread = self.spread(builder, x, &types[0], output, &spans);
        let mut reduction = vec![types[0].shape[1] / self.groups];
        reduction.extend(&types[1].shape[2..]);
        reduce(builder, "convolution", output, &reduction, Combiner::Sum, |point, by| {
            let (source, own) = self.channels(types, &point[1], &by[0]);
            let mut read = vec![point[0].clone(), source.clone()];
            let mut weight = vec![source, own];
            for (axis, tap) in by[1..].iter().enumerate() {
                let back = tap.clone() * self.window.dilations[axis];
                read.push(point[axis + 2].clone() + spans[axis] - back);
                weight.push(tap.clone());
            }
            load_wide(spread, read, output.dtype) * load_wide(w, weight, output.dtype)
        })
    }

    /// Adds a block that writes the input with zeros between its elements and around it, so that
    /// tap `k` of output `p` reads at `p + span - k * dilation`.
    fn spread(
        &self,
        builder: &mut Builder,
        x: BufferId,
        own: &TensorType,
        output: &TensorType,
        spans: &[usize],
    ) -> BufferId {
        let mut shape = own.shape.clone();
        for (axis, span) in spans.iter().enumerate() {
            shape[axis + 2] = output.shape[axis + 2] + span;
        }
        builder.map("spread", &TensorType::new(own.dtype, shape), |point| {
            let mut guard = Guard::default();
            let mut read = point[..2].to_vec();
            for (axis, span) in spans.iter().enumerate() {
                let stride = self.window.strides[axis];
                let offset = self.window.pads_begin[axis] as i64 - *span as i64;
                let place = point[axis + 2].clone() + offset;
                if offset < 0 {
                    guard.require(Expr::Integer(0).less_equal(place.clone()));
                }
                let end = (own.shape[axis + 2] - 1) * stride + 1;
                guard.require(place.clone().less(end.into()));
                if stride > 1 {
                    guard.require(place.clone().modulo(stride.into()).equal(0.into()));
                    read.push(place.floor_divide(stride.into()));
                } else {
                    read.push(place);
                }
            }
            guard.value(Expr::Load(x, read), Expr::Constant(0.0, own.dtype))
        })
    }

    /// Output extent along a spatial axis; `None` where there is none.
    pub(crate) fn extent(&self, axis: usize, input: usize, kernel: usize) -> Option<usize> {
        let spread = input.checked_sub(1)?.checked_mul(self.window.strides[axis])?;
        let span = kernel.checked_sub(1)?.checked_mul(self.window.dilations[axis])?;
        let full = spread.checked_add(span)?.checked_add(1)?;
        let cut = self.window.pads_begin[axis].checked_add(self.window.pads_end[axis])?;
        let extent = full.checked_add(self.output_padding[axis])?.checked_sub(cut)?;
        let slides = self.window.strides[axis] > 0 && self.window.dilations[axis] > 0;
        (slides && extent > 0).then_some(extent)
    }
}

impl Operator for ConvolutionTranspose {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_same_type(x, &[w])?;
        let fits = x.rank() > 2
            && w.rank() == x.rank()
            && w.shape[0] == x.shape[1]
            && self.groups > 0
            && x.shape[1].is_multiple_of(self.groups);
        let outputs = fits.then(|| w.shape[1].checked_mul(self.groups)).flatten();
        let Some(outputs) = outputs else {
            let groups = self.groups;
            return Err(InferError::new(format!(
                "input {x} and weights {w} do not match in {groups} groups"
            )));
        };
        let axes = x.rank() - 2;
        let window = &self.window;
        let lists = [&window.strides, &window.dilations, &window.pads_begin, &window.pads_end];
        if lists.iter().any(|list| list.len() != axes) || self.output_padding.len() != axes {
            return Err(InferError::new(format!("the window's lists need {axes} entries")));
        }
        let bias = inputs.get(2).copied().flatten();
        if let Some(bias) = bias.filter(|bias| bias.shape != [outputs] || bias.dtype != x.dtype) {
            return Err(InferError::new(format!("bias {bias} does not match weights {w}")));
        }
        let mut shape = vec![x.shape[0], outputs];
        for axis in 0..axes {
            let extent = self.extent(axis, x.shape[axis + 2], w.shape[axis + 2]);
            shape.push(extent.ok_or_else(|| {
                InferError::new(format!("{x} with weights {w} leaves nothing of axis {}", axis + 2))
            })?);
        }
        bounded(w.dtype, w.shape.clone())?;
        Ok(vec![bounded(x.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let bias = inputs.get(2).copied().flatten().map(Tensor::to_f64);
        let scatter = Scatter {
            window: &self.window,
            input: &x.shape()[2..],
            kernel: &w.shape()[2..],
            output: &output.shape[2..],
        };
        let (x_values, w_values) = (x.to_f64(), w.to_f64());
        let (plane, taps) = (scatter.input.iter().product(), scatter.kernel.iter().product());
        let (channels, outputs) = (x.shape()[1], w.shape()[1]);
        let out_plane: usize = scatter.output.iter().product();
        let mut values = vec![0.0; output.elements()];
        for_each_chunk(&mut values, out_plane, |index, sums| {
            let (batch, channel) = (index / output.shape[1], index % output.shape[1]);
            sums.fill(bias.as_ref().map_or(0.0, |bias| bias[channel]));
            let group_channels = channels / self.groups;
            let group = channel / outputs;
            for source in group * group_channels..(group + 1) * group_channels {
                let x: &[f64] = &x_values[(batch * channels + source) * plane..][..plane];
                let w: &[f64] = &w_values[(source * outputs + channel % outputs) * taps..][..taps];
                for (tap, weight) in w.iter().enumerate() {
                    scatter.add(x, tap, *weight, sums);
                }
            }
        });
        Ok(vec![f64::write(&output, &values)?])
    }

    /// Windows that do not overlap give a product per output element; else the input is spread out
    /// with zeros between its elements, and convolved with the weights reversed.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (x, w) = (input(inputs, 0)?, input(inputs, 1)?);
        let output = only_output(self, builder, inputs)?;
        let types = [x, w].map(|buffer| builder.tensor_type(buffer));
        let sums = if self.is_disjoint(&types[1].shape) {
            self.disjoint(builder, [x, w], &types, &output)
        } else {
            self.spread_convolution(builder, [x, w], &types, &output)
        };
        let Some(bias) = input(inputs, 2) else { return Some(vec![sums]) };
        Some(vec![builder.map("bias", &output, |point| {
            Expr::Load(sums, point.to_vec()) + Expr::Load(bias, vec![point[1].clone()])
        })])
    }

    /// A plain convolution per phase of the stride.
    fn decompose(
        &self,
        graph: &mut Graph,
        inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, InferError> {
        phases::decompose(self, graph, inputs)
    }

    fn flops(&self, inputs: &[Option<&TensorType>], _outputs: &[TensorType]) -> u64 {
        let elements = |place: usize| inputs.get(place).copied().flatten();
        let (Some(x), Some(w)) = (elements(0), elements(1)) else { return 0 };
        let taps = w.shape[1..].iter().product::<usize>() as u64;
        taps.saturating_mul(2).saturating_mul(x.elements() as u64)
    }
}

/// One tap of a reference result: where its products go.
struct Scatter<'a> {
    window: &'a Window,
    input: &'a [usize],
    kernel: &'a [usize],
    output: &'a [usize],
}

impl Scatter<'_> {
    /// Adds one tap's products, a row of the innermost axis at a time.
    fn add(&self, x: &[f64], tap: usize, weight: f64, sums: &mut [f64]) {
        let inner = self.input.len() - 1;
        let offsets = self.offsets(tap);
        for (row, x) in x.chunks_exact(self.input[inner]).enumerate() {
            let Some(row) = self.row(row, &offsets) else { continue };
            let sums = &mut sums[row * self.output[inner]..][..self.output[inner]];
            for (place, value) in x.iter().enumerate() {
                let place = (place * self.window.strides[inner]) as isize + offsets[inner];
                if let Some(sum) = usize::try_from(place).ok().and_then(|at| sums.get_mut(at)) {
                    *sum += value * weight;
                }
            }
        }
    }

    /// Where a tap writes relative to the window's start, minus the padding, per axis.
    fn offsets(&self, tap: usize) -> Vec<isize> {
        let mut rest = tap;
        let mut offsets = vec![0; self.kernel.len()];
        for axis in (0..offsets.len()).rev() {
            let place = (rest % self.kernel[axis]) * self.window.dilations[axis];
            rest /= self.kernel[axis];
            offsets[axis] = place as isize - self.window.pads_begin[axis] as isize;
        }
        offsets
    }

    /// The output row that input row `row` is added to; `None` where it is cut off.
    fn row(&self, row: usize, offsets: &[isize]) -> Option<usize> {
        let (mut rest, mut place, mut stride) = (row, 0, 1);
        for axis in (0..self.input.len() - 1).rev() {
            let start = (rest % self.input[axis]) * self.window.strides[axis];
            rest /= self.input[axis];
            let own = usize::try_from(start as isize + offsets[axis]).ok();
            place += own.filter(|own| *own < self.output[axis])? * stride;
            stride *= self.output[axis];
        }
        Some(place)
    }
}
