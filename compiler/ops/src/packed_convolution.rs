//! Two-dimensional convolution on channel-packed operands (NCHWc, as in NeoCPU, ATC 2019).

use crate::Cast;
use crate::convolution::{Convolution, Window};
use crate::interleave::{
    at, dot_of, multiply, place, places, plain_type, product, separate, sum_type,
};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packing::{Pack, Unpack};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Convolution without padding on packed operands: x `[N, C / c, H, W, c]`, w `[O / o, C / g / c,
/// KH, KW, c, o]`, optionally bias `[O / o, o]`; the result is `[N, O / o, P, Q, o]`. With groups,
/// each group has whole blocks of both kinds. Weights of a narrow type are interleaved, `[O / o,
/// C / g / c, KH, KW, c / d, o, d]`; bias and result have then the type of the sums.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackedConvolution {
    /// Steps between windows, per spatial axis.
    pub strides: [usize; 2],
    /// Distance between the window's own elements, per spatial axis.
    pub dilations: [usize; 2],
    /// Number of groups the channels are divided into.
    pub groups: usize,
}

impl PackedConvolution {
    /// Name in text forms.
    pub const NAME: &'static str = "packed_convolution";

    fn window(&self) -> Window {
        Window {
            strides: self.strides.to_vec(),
            dilations: self.dilations.to_vec(),
            ..Window::plain(2)
        }
    }
}

impl Operator for PackedConvolution {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let narrow = usize::from(dot_of(w.dtype).is_some());
        let plain = plain_type(w);
        let fits = x.rank() == 5
            && w.rank() == 6 + narrow
            && multiply(x.dtype, w.dtype)
            && x.shape[4] == plain.shape[4]
            && self.groups > 0
            && w.shape[0].is_multiple_of(self.groups)
            && w.shape[1].checked_mul(self.groups) == Some(x.shape[1]);
        if !fits {
            return Err(InferError::new(format!("input {x} and weights {w} do not match")));
        }
        let spatial = self.window().output(&x.shape[2..4], &w.shape[2..4])?;
        let shape = [x.shape[0], w.shape[0], spatial[0], spatial[1], plain.shape[5]];
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
        let (c, o) = (w.shape()[4], w.shape()[5]);
        let outputs = w.shape()[0] * o;
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
        // Reduction order: input block, kernel row, kernel column, place within the block.
        let reduction = [&w_type.shape[1..4], &places(&w_type)[..]].concat();
        let sums =
            builder.reduce("convolution", &output, &reduction, Combiner::Sum, |point, reduced| {
                let group = point[1].clone().floor_divide(group_outputs.into());
                let first =
                    if self.groups == 1 { Expr::Integer(0) } else { group * w_type.shape[1] };
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
                let within = place(&w_type, &reduced[3..]);
                let read = vec![point[0].clone(), block, start(0), start(1), within];
                let mut weight = vec![point[1].clone()];
                weight.extend_from_slice(&reduced[..3]);
                weight.extend(at(&reduced[3..], &point[4]));
                product(Expr::Load(x, read), Expr::Load(w, weight), w_type.dtype)
            });
        Some(vec![add_bias(builder, sums, inputs.get(2).copied().flatten(), &output)])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let weights = inputs.get(1).copied().flatten();
        let taps = weights.map_or(0, |w| plain_type(w).shape[1..5].iter().product());
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
        let place = vec![point[1].clone(), point[4].clone()];
        Expr::Load(sums, point.to_vec()) + Expr::Load(bias, place)
    })
}
