//! Pooling.

use super::window::{per_axis, window};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{PadMode, Pool, PoolKind, ReduceFunction, Window};

/// Spatial extents of the input.
fn spatial(builder: &Builder, input: Operand) -> Result<Vec<usize>, NodeError> {
    let shape = builder.shape(input);
    match shape.get(2..) {
        Some(spatial) if !spatial.is_empty() => Ok(spatial.to_vec()),
        _ => Err(NodeError::invalid(format!("shape {shape:?} has no spatial axes"))),
    }
}

fn kernel(node: &mut Node, axes: usize) -> Result<Vec<usize>, NodeError> {
    let kernel = per_axis(node, "kernel_shape", axes, 0)?;
    if kernel.contains(&0) {
        return Err(NodeError::invalid(format!("kernel_shape {kernel:?} is empty or missing")));
    }
    Ok(kernel)
}

/// Enlarges the padding at the end so that a last window that is cut off counts, too; it must begin
/// inside the input or the padding before it.
fn ceil(window: &mut Window, input: &[usize], kernel: &[usize]) {
    for axis in 0..input.len() {
        let (stride, begin) = (window.strides[axis], window.pads_begin[axis]);
        let span = (kernel[axis] - 1).saturating_mul(window.dilations[axis]).saturating_add(1);
        let padded = input[axis].saturating_add(begin).saturating_add(window.pads_end[axis]);
        let Some(room) = padded.checked_sub(span) else { continue };
        let mut last = room.div_ceil(stride);
        if last.saturating_mul(stride) >= input[axis].saturating_add(begin) {
            last = last.saturating_sub(1);
        }
        let needed = last.saturating_mul(stride).saturating_add(span);
        window.pads_end[axis] =
            window.pads_end[axis].max(needed.saturating_sub(input[axis].saturating_add(begin)));
    }
}

/// The window of a pool, and whether its end padding was enlarged.
fn pool_window(
    node: &mut Node,
    input: &[usize],
    kernel: &[usize],
) -> Result<(Window, Vec<usize>), NodeError> {
    let mut window = window(node, input, kernel)?;
    let stated = window.pads_end.clone();
    if node.flag("ceil_mode", false)? {
        ceil(&mut window, input, kernel);
    }
    Ok((window, stated))
}

/// `MaxPool`.
pub(super) fn maximum(builder: &mut Builder, node: &mut Node) -> Outputs {
    if node.wants(1) {
        return Err(NodeError::unsupported("the second output of MaxPool (indices)"));
    }
    node.ignore(&["storage_order"]);
    let x = node.input(0)?;
    let input = spatial(builder, x)?;
    let kernel = kernel(node, input.len())?;
    let (window, _) = pool_window(node, &input, &kernel)?;
    let pool = Pool { kind: PoolKind::Maximum, kernel, window, count_padding: false };
    Ok(vec![builder.apply(pool, &[x])?])
}

/// `AveragePool`.
pub(super) fn average(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut x = node.input(0)?;
    let input = spatial(builder, x)?;
    let kernel = kernel(node, input.len())?;
    let mut count_padding = node.flag("count_include_pad", false)?;
    let (mut window, stated) = pool_window(node, &input, &kernel)?;
    if count_padding && window.pads_end != stated {
        // The stated padding counts and the enlargement does not: the stated one becomes elements.
        let pads = |pads: &[usize]| -> Vec<i64> {
            [0, 0].into_iter().chain(pads.iter().map(|pad| *pad as i64)).collect()
        };
        x = builder.pad(x, pads(&window.pads_begin), pads(&stated), PadMode::Constant, 0.0)?;
        window.pads_begin.fill(0);
        for (enlarged, stated) in window.pads_end.iter_mut().zip(&stated) {
            *enlarged -= stated;
        }
        count_padding = false;
    }
    let pool = Pool { kind: PoolKind::Average, kernel, window, count_padding };
    Ok(vec![builder.apply(pool, &[x])?])
}

/// The order of a norm.
fn order(node: &mut Node) -> Result<u32, NodeError> {
    let order = node.int_or("p", 2)?;
    u32::try_from(order)
        .ok()
        .filter(|order| *order > 0)
        .ok_or_else(|| NodeError::invalid(format!("p {order} is no order of a norm")))
}

/// `LpPool`.
pub(super) fn lp(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let input = spatial(builder, x)?;
    let kernel = kernel(node, input.len())?;
    let kind = PoolKind::Lp(order(node)?);
    let (window, _) = pool_window(node, &input, &kernel)?;
    Ok(vec![builder.apply(Pool { kind, kernel, window, count_padding: false }, &[x])?])
}

/// `GlobalAveragePool`, `GlobalMaxPool`, `GlobalLpPool`: reductions of all spatial axes.
pub(super) fn global(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let input = spatial(builder, x)?;
    let over = |builder: &mut Builder, function| -> Step {
        builder.reduce(function, x, (2..2 + input.len()).collect(), true)
    };
    let result = match node.operator.as_str() {
        "GlobalMaxPool" => over(builder, ReduceFunction::Maximum)?,
        "GlobalAveragePool" => over(builder, ReduceFunction::Mean)?,
        _ => match order(node)? {
            1 => over(builder, ReduceFunction::L1)?,
            2 => over(builder, ReduceFunction::L2)?,
            p => {
                let window = Window::plain(input.len());
                let kind = PoolKind::Lp(p);
                builder.apply(Pool { kind, kernel: input, window, count_padding: false }, &[x])?
            }
        },
    };
    Ok(vec![result])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_cut_off_counts_only_where_it_begins_inside() {
        let mut window = Window { strides: vec![2], ..Window::plain(1) };
        ceil(&mut window, &[4], &[3]);
        assert_eq!(window.pads_end, [1]);
        // The window would begin at 4, behind the last element.
        let mut window = Window { strides: vec![2], pads_end: vec![1], ..Window::plain(1) };
        ceil(&mut window, &[4], &[2]);
        assert_eq!(window.pads_end, [1]);
    }
}
