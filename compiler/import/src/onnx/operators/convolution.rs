//! Convolutions.

use super::window::{AutoPad, auto_pad, check_kernel, halves, pads, per_axis, window};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{Convolution, ConvolutionTranspose, Window};

fn groups(node: &mut Node) -> Result<usize, NodeError> {
    let groups = node.int_or("group", 1)?;
    usize::try_from(groups).map_err(|_| NodeError::invalid(format!("group {groups} is negative")))
}

/// Spatial extents of the input and of the weights.
fn spatial(
    builder: &Builder,
    x: Operand,
    w: Operand,
) -> Result<(Vec<usize>, Vec<usize>), NodeError> {
    let (x, w) = (builder.shape(x), builder.shape(w));
    if x.len() < 3 || x.len() != w.len() {
        return Err(NodeError::invalid(format!("input {x:?} and weights {w:?} do not match")));
    }
    Ok((x[2..].to_vec(), w[2..].to_vec()))
}

/// `Conv`.
pub(super) fn convolution(builder: &mut Builder, node: &mut Node) -> Outputs {
    let inputs = [Some(node.input(0)?), Some(node.input(1)?), node.optional(2)];
    Ok(vec![convolve(builder, node, inputs)?])
}

/// A convolution of input, weights and bias, by the attributes of `Conv`.
pub(super) fn convolve(
    builder: &mut Builder,
    node: &mut Node,
    inputs: [Option<Operand>; 3],
) -> Step {
    let [Some(x), Some(w), _] = inputs else {
        return Err(NodeError::invalid("input or weights are left out"));
    };
    let (input, kernel) = spatial(builder, x, w)?;
    check_kernel(node, &kernel)?;
    let window = window(node, &input, &kernel)?;
    let operator = Convolution { window, groups: groups(node)? };
    builder.apply_optional(operator, &inputs)
}

/// `ConvTranspose`; with `output_shape` the padding follows from it.
pub(super) fn transposed(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (input, kernel) = spatial(builder, node.input(0)?, node.input(1)?)?;
    let axes = input.len();
    check_kernel(node, &kernel)?;
    let strides = per_axis(node, "strides", axes, 1)?;
    let dilations = per_axis(node, "dilations", axes, 1)?;
    let output_padding = per_axis(node, "output_padding", axes, 0)?;
    let mode = auto_pad(node)?;
    let full = |axis: usize| {
        let spread = input[axis].saturating_sub(1).saturating_mul(strides[axis]);
        let span = kernel[axis].saturating_sub(1).saturating_mul(dilations[axis]);
        spread.saturating_add(span).saturating_add(1).saturating_add(output_padding[axis])
    };
    let asked = match node.ints("output_shape")? {
        // Some exporters give batch and channels, too.
        Some(asked) => {
            let asked = crate::onnx::shorthands::extents(&asked, "output_shape")?;
            let start = asked.len().checked_sub(axes).filter(|start| [0, 2].contains(start));
            let start = start.ok_or_else(|| {
                NodeError::invalid(format!("output_shape {asked:?} does not fit {axes} axes"))
            })?;
            Some(asked[start..].to_vec())
        }
        None if matches!(mode, AutoPad::SameUpper | AutoPad::SameLower) => {
            Some((0..axes).map(|axis| input[axis].saturating_mul(strides[axis])).collect())
        }
        None => None,
    };
    let mut output_padding = output_padding.clone();
    let (pads_begin, pads_end) = match &asked {
        Some(asked) => {
            node.ignore(&["pads"]);
            // An output larger than everything the windows reach is filled up at its end.
            for axis in 0..axes {
                output_padding[axis] += asked[axis].saturating_sub(full(axis));
            }
            let totals = (0..axes).map(|axis| full(axis).saturating_sub(asked[axis]));
            // The specification gives the odd element to the end unless SAME_UPPER is asked for.
            let odd = if mode == AutoPad::SameUpper { mode } else { AutoPad::SameLower };
            halves(totals, odd)
        }
        None if mode == AutoPad::Valid => (vec![0; axes], vec![0; axes]),
        None => pads(node, axes)?,
    };
    let window = Window { strides, dilations, pads_begin, pads_end };
    let operator = ConvolutionTranspose { window, groups: groups(node)?, output_padding };
    let inputs = [node.optional(0), node.optional(1), node.optional(2)];
    Ok(vec![builder.apply_optional(operator, &inputs)?])
}
