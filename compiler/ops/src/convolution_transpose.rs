//! Transposed convolution.

use crate::convolution::Window;
use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_same_type};
use hone_graph::InferError;
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

    /// Output extent along a spatial axis; `None` where there is none.
    fn extent(&self, axis: usize, input: usize, kernel: usize) -> Option<usize> {
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

    pending!();
}
