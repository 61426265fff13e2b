//! Convolution on channel-packed operands (NCHWc, as in NeoCPU, ATC 2019), over any number of axes.

use crate::Cast;
use crate::convolution::{Convolution, Window, pad};
use crate::gather::Gather;
use crate::interleave::{
    at, dot_of, multiply, place, places, plain_type, product, separate, sum_type,
};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packing::{Pack, Unpack};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Convolution on packed operands: x `[N, C / c, X.., c]`, w `[O / o, C / g / c, K..,
/// c, o]`, optionally bias `[O / o, o]`; the result is `[N, O / o, Y.., o]`. With groups, each group has
/// whole blocks of both kinds, and reads as many blocks of x as the weights have. Weights of a narrow type are
/// interleaved, `[O / o, C / g / c, K.., c / d, o, d]`; bias and result have then the type of the sums.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackedConvolution {
    /// Steps between windows, per spatial axis.
    pub strides: Vec<usize>,
    /// Distance between the window's own elements, per spatial axis.
    pub dilations: Vec<usize>,
    /// Number of groups the channels are divided into.
    pub groups: usize,
    /// Which blocks of x the groups read; `None` where all are read, one group's after the other's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<GroupInputs>,
    /// Zeros that x is padded with before and after each spatial axis, in elements; `None` for none. Devices that copy what
    /// they multiply write them on the way; processors read an x that was padded before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pads: Option<[Vec<usize>; 2]>,
}

/// Which blocks of channels the groups of a [`PackedConvolution`] read: group `g` those from
/// `first + g * step` on. Groups may read the same blocks, and may leave blocks out.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GroupInputs {
    /// The first group's first block.
    pub first: usize,
    /// Blocks from a group's first one to the next group's.
    pub step: usize,
}

impl GroupInputs {
    /// Whether `groups` groups of `each` blocks are all within `blocks`.
    fn fit(self, groups: usize, each: usize, blocks: usize) -> bool {
        let last = groups.checked_sub(1).and_then(|last| last.checked_mul(self.step));
        let end = last.and_then(|last| last.checked_add(self.first)?.checked_add(each));
        end.is_some_and(|end| end <= blocks)
    }

    /// The blocks that `groups` groups of `each` blocks read, one group's after the other's.
    fn blocks(self, groups: usize, each: usize) -> impl Iterator<Item = usize> {
        (0..groups)
            .flat_map(move |group| (0..each).map(move |at| self.first + group * self.step + at))
    }
}

impl PackedConvolution {
    /// Name in text forms.
    pub const NAME: &'static str = "packed_convolution";

    fn window(&self) -> Window {
        let (strides, dilations) = (self.strides.clone(), self.dilations.clone());
        match self.pads.clone() {
            None => Window { strides, dilations, ..Window::plain(self.strides.len()) },
            Some([pads_begin, pads_end]) => Window { strides, dilations, pads_begin, pads_end },
        }
    }
}

impl Operator for PackedConvolution {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let narrow = usize::from(dot_of(w.dtype).is_some());
        let plain = plain_type(w);
        let axes = self.strides.len();
        let fits = self.dilations.len() == axes
            && x.rank() == 3 + axes
            && w.rank() == 4 + axes + narrow
            && multiply(x.dtype, w.dtype)
            && x.shape[2 + axes] == plain.shape[2 + axes]
            && self.groups > 0
            && w.shape[0].is_multiple_of(self.groups)
            && match self.inputs {
                None => w.shape[1].checked_mul(self.groups) == Some(x.shape[1]),
                Some(inputs) => inputs.fit(self.groups, w.shape[1], x.shape[1]),
            };
        if !fits {
            return Err(InferError::new(format!("input {x} and weights {w} do not match")));
        }
        let spatial = self.window().output(&x.shape[2..2 + axes], &w.shape[2..2 + axes])?;
        let shape = [&[x.shape[0], w.shape[0]], &spatial[..], &[plain.shape[3 + axes]]].concat();
        Ok(vec![TensorType::new(sum_type(w.dtype), shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    /// Unpacks, convolves plainly, and packs again.
    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        if dot_of(w.dtype()).is_some() {
            let x = Cast { to: sum_type(w.dtype()) }.reference(&[Some(x)])?;
            let w = separate(w)?;
            return self.reference(&[Some(&x[0]), Some(&w), inputs.get(2).copied().flatten()]);
        }
        let axes = self.strides.len();
        let (c, o) = (w.shape()[2 + axes], w.shape()[3 + axes]);
        let outputs = w.shape()[0] * o;
        let selected;
        let x = match self.inputs {
            None => x,
            Some(inputs) => {
                let blocks: Vec<i64> =
                    inputs.blocks(self.groups, w.shape()[1]).map(|block| block as i64).collect();
                let blocks = Tensor::from_elements([blocks.len()], &blocks)?;
                selected = Gather { axis: 1 }.reference(&[Some(x), Some(&blocks)])?.remove(0);
                &selected
            }
        };
        let x = Unpack { axis: 1, extent: x.shape()[1] * c }.reference(&[Some(x)])?;
        let w = Unpack { axis: 0, extent: outputs }.reference(&[Some(w)])?;
        let channels = w[0].shape()[1] * c;
        let w = Unpack { axis: 1, extent: channels }.reference(&[Some(&w[0])])?;
        let bias = match inputs.get(2).copied().flatten() {
            Some(bias) => Some(bias.reshaped([outputs])?),
            None => None,
        };
        let plain = Convolution { window: self.window(), groups: self.groups };
        let y = plain.reference(&[Some(&x[0]), Some(&w[0]), bias.as_ref()])?;
        Pack { axis: 1, block: o }.reference(&[Some(&y[0])])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (x, w) = (inputs.first().copied().flatten()?, inputs.get(1).copied().flatten()?);
        let (x_type, w_type) = (builder.tensor_type(x), builder.tensor_type(w));
        let output = self.infer(&[Some(&x_type), Some(&w_type)]).ok()?.remove(0);
        let group_outputs = w_type.shape[0] / self.groups;
        let axes = self.strides.len();
        let window = self.window();
        let x = if window.is_padded() { pad(builder, x, &window) } else { x };
        // Reduction order: input block, the window's axes, place within the block.
        let reduction = [&w_type.shape[1..2 + axes], &places(&w_type)[..]].concat();
        let sums =
            builder.reduce("convolution", &output, &reduction, Combiner::Sum, |point, reduced| {
                let group = point[1].clone().floor_divide(group_outputs.into());
                let (first, step) =
                    self.inputs.map_or((0, w_type.shape[1]), |inputs| (inputs.first, inputs.step));
                let first = match (self.groups, first) {
                    (1, first) => first.into(),
                    (_, 0) => group * step,
                    (_, first) => group * step + first,
                };
                // Written bare where it is, so that neighbouring axes can be joined.
                let start = |axis: usize| {
                    let own = point[axis + 2].clone();
                    let first =
                        if self.strides[axis] == 1 { own } else { own * self.strides[axis] };
                    match w_type.shape[axis + 2] {
                        1 => first,
                        _ => first + reduced[axis + 1].clone() * self.dilations[axis],
                    }
                };
                let block = first + reduced[0].clone();
                let (window, within) = reduced.split_at(1 + axes);
                let mut read = vec![point[0].clone(), block];
                read.extend((0..axes).map(start));
                read.push(place(&w_type, within));
                let mut weight = vec![point[1].clone()];
                weight.extend_from_slice(window);
                weight.extend(at(within, &point[2 + axes]));
                product(Expr::Load(x, read), Expr::Load(w, weight), w_type.dtype)
            });
        Some(vec![add_bias(builder, sums, inputs.get(2).copied().flatten(), &output)])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let weights = inputs.get(1).copied().flatten();
        let taps =
            weights.map_or(0, |w| plain_type(w).shape[1..3 + self.strides.len()].iter().product());
        let each = (taps as u64).saturating_mul(2);
        outputs.iter().map(|output| each.saturating_mul(output.elements() as u64)).sum()
    }
}

/// Adds a block that adds a packed bias `[O / o, o]`, where there is one.
pub(crate) fn add_bias(
    builder: &mut Builder,
    sums: BufferId,
    bias: Option<BufferId>,
    output: &TensorType,
) -> BufferId {
    let Some(bias) = bias else { return sums };
    builder.map("bias", output, |point| {
        let place = vec![point[1].clone(), point[point.len() - 1].clone()];
        Expr::Load(sums, point.to_vec()) + Expr::Load(bias, place)
    })
}
