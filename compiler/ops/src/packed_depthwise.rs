//! Depthwise convolution on channel-packed operands, over any number of axes.

use crate::convolution::{Convolution, Window};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packed_convolution::add_bias;
use crate::packing::{Pack, Unpack};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// One filter per channel, without padding: x `[N, C / c, X.., c]`, w `[C / c, K.., c]`,
/// optionally bias `[C / c, c]`; the result is `[N, C / c, Y.., c]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackedDepthwise {
    /// Steps between windows, per spatial axis.
    pub strides: Vec<usize>,
    /// Distance between the window's own elements, per spatial axis.
    pub dilations: Vec<usize>,
}

impl PackedDepthwise {
    /// Name in text forms.
    pub const NAME: &'static str = "packed_depthwise";

    fn window(&self) -> Window {
        Window {
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            ..Window::plain(self.strides.len())
        }
    }
}

impl Operator for PackedDepthwise {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let axes = self.strides.len();
        let fits = self.dilations.len() == axes
            && x.rank() == 3 + axes
            && w.rank() == 2 + axes
            && x.dtype == w.dtype
            && x.shape[1] == w.shape[0]
            && x.shape[2 + axes] == w.shape[1 + axes];
        if !fits {
            return Err(InferError::new(format!("input {x} and weights {w} do not match")));
        }
        let spatial = self.window().output(&x.shape[2..2 + axes], &w.shape[1..1 + axes])?;
        let shape = [&x.shape[..2], &spatial[..], &x.shape[2 + axes..]].concat();
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    /// Unpacks, convolves plainly, and packs again.
    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (x, w) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let block = w.shape()[1 + self.strides.len()];
        let channels = w.shape()[0] * block;
        let x = Unpack { axis: 1, extent: channels }.reference(&[Some(x)])?;
        let w = Unpack { axis: 0, extent: channels }.reference(&[Some(w)])?;
        let w = w[0].reshaped([&[channels, 1], &w[0].shape()[1..]].concat())?;
        let bias = match inputs.get(2).copied().flatten() {
            Some(bias) => Some(bias.reshaped([channels])?),
            None => None,
        };
        let plain = Convolution { window: self.window(), groups: channels };
        let y = plain.reference(&[Some(&x[0]), Some(&w), bias.as_ref()])?;
        Pack { axis: 1, block }.reference(&[Some(&y[0])])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (x, w) = (inputs.first().copied().flatten()?, inputs.get(1).copied().flatten()?);
        let (x_type, w_type) = (builder.tensor_type(x), builder.tensor_type(w));
        let output = self.infer(&[Some(&x_type), Some(&w_type)]).ok()?.remove(0);
        let axes = self.strides.len();
        let reduction = &w_type.shape[1..1 + axes];
        let sums =
            builder.reduce("depthwise", &output, reduction, Combiner::Sum, |point, reduced| {
                let place = |axis: usize| {
                    let start = point[axis + 2].clone() * self.strides[axis];
                    start + reduced[axis].clone() * self.dilations[axis]
                };
                let (channels, lane) = (point[1].clone(), point[2 + axes].clone());
                let mut read = vec![point[0].clone(), channels.clone()];
                read.extend((0..axes).map(place));
                read.push(lane.clone());
                let weight = [&[channels], reduced, &[lane]].concat();
                Expr::Load(x, read) * Expr::Load(w, weight)
            });
        Some(vec![add_bias(builder, sums, inputs.get(2).copied().flatten(), &output)])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let window = 1..1 + self.strides.len();
        let weights = inputs.get(1).copied().flatten();
        let taps = weights.map_or(0, |w| w.shape[window].iter().product());
        let each = (taps as u64).saturating_mul(2);
        outputs.iter().map(|output| each.saturating_mul(output.elements() as u64)).sum()
    }
}
