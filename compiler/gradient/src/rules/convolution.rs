//! Convolutions and transposed ones: each is how the other's adjoint gets back.

use super::{Pulled, Rule, Site};
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{Convolution, ConvolutionTranspose, Window};

impl Rule for Convolution {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 3]) };
        let (x, w) = (site.input(0)?, site.input(1)?);
        let (image, kernel) = (nodes.shape(x), nodes.shape(w));
        let dx = match site.wants(0) {
            true => Some(spread(nodes, dy, w, &image[2..], &self.window, self.groups)?),
            false => None,
        };
        let dw = match site.wants(1) {
            true => Some(taps(nodes, x, dy, &kernel[2..], &self.window, self.groups)?),
            false => None,
        };
        Ok(vec![dx, dw, bias(nodes, site, dy)?])
    }
}

impl Rule for ConvolutionTranspose {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 3]) };
        let (x, w) = (site.input(0)?, site.input(1)?);
        let (input, kernel) = (nodes.shape(x), nodes.shape(w));
        let dx = match site.wants(0) {
            true => {
                let (window, groups) = (self.window.clone(), self.groups);
                let whole = nodes.apply(Convolution { window, groups }, &[dy, w])?;
                Some(nodes.part(whole, vec![0; input.len()], input)?)
            }
            false => None,
        };
        let dw = match site.wants(1) {
            true => Some(taps(nodes, dy, x, &kernel[2..], &self.window, self.groups)?),
            false => None,
        };
        Ok(vec![dx, dw, bias(nodes, site, dy)?])
    }
}

/// The adjoint of a bias of each channel.
fn bias(
    n: &mut Nodes<'_>,
    site: &Site<'_>,
    dy: ValueId,
) -> Result<Option<ValueId>, crate::RuleError> {
    if !site.wants(2) {
        return Ok(None);
    }
    let axes: Vec<usize> = (0..n.tensor_type(dy).rank()).filter(|axis| *axis != 1).collect();
    Ok(Some(n.sum(dy, &axes, false)?))
}

/// Each element of `dy`, times the weights, added to the window of an image of extents `image` that it was summed of.
pub(super) fn spread(
    n: &mut Nodes<'_>,
    dy: ValueId,
    w: ValueId,
    image: &[usize],
    window: &Window,
    groups: usize,
) -> Step {
    let (outputs, kernel) = (n.shape(dy), n.shape(w));
    // Elements behind the last window, which belong to none.
    let output_padding = (0..image.len())
        .map(|axis| {
            let padded = image[axis] + window.pads_begin[axis] + window.pads_end[axis];
            let last = (outputs[axis + 2] - 1) * window.strides[axis];
            padded - (last + (kernel[axis + 2] - 1) * window.dilations[axis] + 1)
        })
        .collect();
    let window = window.clone();
    n.apply(ConvolutionTranspose { window, groups, output_padding }, &[dy, w])
}

/// The adjoint of weights `[outputs, channels / groups, kernel...]` by which `results` (`[batch, outputs, places...]`) are, or
/// would be, computed from `image` (`[batch, channels, spatial...]`): a convolution of the image by the results, in which
/// strides and dilations change places, with the batch as the channels that are summed over.
fn taps(
    n: &mut Nodes<'_>,
    image: ValueId,
    results: ValueId,
    kernel: &[usize],
    window: &Window,
    groups: usize,
) -> Step {
    let (own, results_shape) = (n.shape(image), n.shape(results));
    let (batch, channels, outputs) = (own[0], own[1] / groups, results_shape[1]);
    let spatial = &own[2..];
    // [batch, groups, channels, spatial...] -> [channels, groups * batch, spatial...]
    let apart = n.reshape(image, &[&[batch, groups, channels], spatial].concat())?;
    let order: Vec<usize> = [2, 1, 0].into_iter().chain(3..3 + spatial.len()).collect();
    let turned = n.transpose(apart, &order)?;
    let image = n.reshape(turned, &[&[channels, groups * batch], spatial].concat())?;
    let results = n.move_axis(results, 0, 1)?;
    let swapped = Window {
        strides: window.dilations.clone(),
        dilations: window.strides.clone(),
        ..window.clone()
    };
    let sums = n.apply(Convolution { window: swapped, groups }, &[image, results])?;
    let weights = n.part(sums, vec![0; own.len()], [&[channels, outputs], kernel].concat())?;
    n.move_axis(weights, 0, 1)
}
