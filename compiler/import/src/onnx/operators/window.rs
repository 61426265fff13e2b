//! The attributes that convolutions and pools share.

use crate::NodeError;
use crate::onnx::node::Node;
use crate::onnx::shorthands::extents;
use hone_ops::Window;

/// No stride, dilation or pad is larger; keeps sums of them inside `usize`.
const LARGEST: usize = 1 << 31;

/// How padding is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AutoPad {
    /// By the `pads` attribute.
    Explicit,
    /// So that the output has the input's extent over the stride; odd ones at the end.
    SameUpper,
    /// As `SameUpper`, odd ones at the beginning.
    SameLower,
    /// None.
    Valid,
}

/// Reads `auto_pad`.
pub(super) fn auto_pad(node: &mut Node) -> Result<AutoPad, NodeError> {
    Ok(match node.string_or("auto_pad", "NOTSET")?.as_str() {
        "NOTSET" => AutoPad::Explicit,
        "SAME_UPPER" => AutoPad::SameUpper,
        "SAME_LOWER" => AutoPad::SameLower,
        "VALID" => AutoPad::Valid,
        other => return Err(NodeError::invalid(format!("auto_pad '{other}' is unknown"))),
    })
}

/// Reads a list with one entry per spatial axis.
pub(super) fn per_axis(
    node: &mut Node,
    name: &str,
    axes: usize,
    default: usize,
) -> Result<Vec<usize>, NodeError> {
    let Some(values) = node.ints(name)? else { return Ok(vec![default; axes]) };
    let values = extents(&values, name)?;
    if values.len() != axes || values.iter().any(|value| *value > LARGEST) {
        return Err(NodeError::invalid(format!(
            "attribute '{name}' {values:?} does not fit {axes} spatial axes"
        )));
    }
    Ok(values)
}

/// Reads strides, dilations and pads; with automatic padding for spatial extents `input`.
pub(in crate::onnx) fn window(
    node: &mut Node,
    input: &[usize],
    kernel: &[usize],
) -> Result<Window, NodeError> {
    let axes = input.len();
    let strides = per_axis(node, "strides", axes, 1)?;
    let dilations = per_axis(node, "dilations", axes, 1)?;
    if kernel.len() != axes || strides.contains(&0) || dilations.contains(&0) {
        return Err(NodeError::invalid(format!(
            "a window of {kernel:?} with strides {strides:?} and dilations {dilations:?} does not \
             fit {axes} spatial axes"
        )));
    }
    let mode = auto_pad(node)?;
    let (pads_begin, pads_end) = match mode {
        AutoPad::Explicit => pads(node, axes)?,
        AutoPad::Valid => {
            node.ignore(&["pads"]);
            (vec![0; axes], vec![0; axes])
        }
        AutoPad::SameUpper | AutoPad::SameLower => {
            node.ignore(&["pads"]);
            let totals = (0..axes).map(|axis| {
                let (extent, stride) = (input[axis], strides[axis]);
                let span = kernel[axis].saturating_sub(1).saturating_mul(dilations[axis]);
                let last = extent.div_ceil(stride).saturating_sub(1).saturating_mul(stride);
                last.saturating_add(span).saturating_add(1).saturating_sub(extent)
            });
            halves(totals, mode)
        }
    };
    Ok(Window { strides, dilations, pads_begin, pads_end })
}

/// Padding in total, shared out between both ends.
pub(super) fn halves(
    totals: impl Iterator<Item = usize>,
    mode: AutoPad,
) -> (Vec<usize>, Vec<usize>) {
    totals
        .map(|total| {
            let (small, large) = (total / 2, total - total / 2);
            if mode == AutoPad::SameLower { (large, small) } else { (small, large) }
        })
        .unzip()
}

/// Reads `pads`: all beginnings, then all ends.
pub(super) fn pads(node: &mut Node, axes: usize) -> Result<(Vec<usize>, Vec<usize>), NodeError> {
    let pads = per_axis(node, "pads", 2 * axes, 0)?;
    let (begin, end) = pads.split_at(axes);
    Ok((begin.to_vec(), end.to_vec()))
}

/// Checks `kernel_shape`, where it is given, against the weights' spatial extents.
pub(super) fn check_kernel(node: &mut Node, kernel: &[usize]) -> Result<(), NodeError> {
    let Some(stated) = node.ints("kernel_shape")? else { return Ok(()) };
    if stated.iter().map(|extent| *extent as usize).eq(kernel.iter().copied()) {
        return Ok(());
    }
    Err(NodeError::invalid(format!(
        "kernel_shape {stated:?} is not that of the weights, {kernel:?}"
    )))
}
