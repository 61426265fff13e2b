//! Pooling.

use super::window::{per_axis, window};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{
    ArgReduce, Gather, GatherElements, PadMode, Pool, PoolKind, ReduceFunction, Window,
};
use hone_types::{DataType, Tensor};

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
/// inside the input or the padding before it. A kernel that is larger than the padded input, and has a window there
/// all the same, ends with it.
fn ceil(window: &mut Window, input: &[usize], kernel: &mut [usize]) {
    for axis in 0..input.len() {
        let (stride, begin) = (window.strides[axis], window.pads_begin[axis]);
        let dilation = window.dilations[axis];
        let span = (kernel[axis] - 1).saturating_mul(dilation).saturating_add(1);
        let padded = input[axis].saturating_add(begin).saturating_add(window.pads_end[axis]);
        let Some(room) = padded.checked_sub(span) else {
            // As in ONNX's formula for the extent of the output, whose quotient is rounded up to zero here.
            if span - padded < stride && padded > 0 {
                kernel[axis] = (padded - 1) / dilation + 1;
                // With a dilation the kernel may end before the input does, and there is one window all the same.
                window.strides[axis] = stride.max(padded);
            }
            continue;
        };
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
    kernel: &mut [usize],
) -> Result<(Window, Vec<usize>), NodeError> {
    let mut window = window(node, input, kernel)?;
    let stated = window.pads_end.clone();
    if node.flag("ceil_mode", false)? {
        ceil(&mut window, input, kernel);
    }
    Ok((window, stated))
}

/// `MaxPool`; the second output says where in the input each element was.
pub(super) fn maximum(builder: &mut Builder, node: &mut Node) -> Outputs {
    let by_columns = node.flag("storage_order", false)?;
    let x = node.input(0)?;
    let input = spatial(builder, x)?;
    let mut kernel = kernel(node, input.len())?;
    let (window, _) = pool_window(node, &input, &mut kernel)?;
    let places = match node.wants(1) {
        true => Some(places(builder, x, &kernel, &window, by_columns)?),
        false => None,
    };
    let pool = Pool { kind: PoolKind::Maximum, kernel, window, count_padding: false };
    let y = builder.apply(pool, &[x])?;
    Ok([Some(y), places].into_iter().flatten().collect())
}

/// Most entries of a table of windows.
const LARGEST_TABLE: usize = 1 << 26;

/// The place of the largest element of each window, counted through the whole input.
fn places(
    b: &mut Builder,
    x: Operand,
    kernel: &[usize],
    window: &Window,
    by_columns: bool,
) -> Step {
    let shape = b.shape(x);
    let (lead, input) = shape.split_at(2);
    let (mut padded, mut output) = (Vec::new(), Vec::new());
    for axis in 0..input.len() {
        let all = input[axis] + window.pads_begin[axis] + window.pads_end[axis];
        let span = (kernel[axis] - 1).saturating_mul(window.dilations[axis]).saturating_add(1);
        let room =
            all.checked_sub(span).ok_or_else(|| NodeError::invalid("a window does not fit"))?;
        padded.push(all);
        output.push(room / window.strides[axis] + 1);
    }
    let product = |all: &[usize]| all.iter().try_fold(1usize, |all, own| all.checked_mul(*own));
    let sizes = product(&output).zip(product(kernel)).zip(product(&padded));
    let sizes = sizes.filter(|((count, taps), all)| {
        count.saturating_mul(*taps) <= LARGEST_TABLE && *all <= LARGEST_TABLE
    });
    let Some(((count, taps), all)) = sizes else {
        return Err(NodeError::unsupported("the indices of windows this many or large"));
    };
    let (mut reads, mut names) = (Vec::with_capacity(count * taps), Vec::new());
    for flat in 0..count * taps {
        let (mut place, mut tap) = (flat / taps, flat % taps);
        let (mut read, mut name, mut stride, mut own_stride) = (0, 0, 1, 1);
        let mut at = vec![0; input.len()];
        for axis in (0..input.len()).rev() {
            at[axis] = place % output[axis] * window.strides[axis]
                + tap % kernel[axis] * window.dilations[axis];
            (place, tap) = (place / output[axis], tap / kernel[axis]);
            read += at[axis] * stride;
            stride *= padded[axis];
        }
        let order: Vec<usize> =
            if by_columns { (0..input.len()).collect() } else { (0..input.len()).rev().collect() };
        for axis in order {
            name +=
                at[axis].saturating_sub(window.pads_begin[axis]).min(input[axis].saturating_sub(1))
                    * own_stride;
            own_stride *= input[axis];
        }
        reads.push(read as i64);
        names.push(name as i64);
    }
    let dtype = b.dtype(x);
    let least = match dtype {
        dtype if dtype.is_float() => f64::NEG_INFINITY,
        DataType::I8 => -128.0,
        _ => 0.0,
    };
    let pads = |pads: &[usize]| -> Vec<i64> {
        [0, 0].into_iter().chain(pads.iter().map(|pad| *pad as i64)).collect()
    };
    let (begin, end) = (pads(&window.pads_begin), pads(&window.pads_end));
    let wide = b.pad(x, begin, end, PadMode::Constant, least)?;
    let planes = product(lead).unwrap_or(0);
    let flat = b.reshape(wide, vec![planes, all])?;
    let reads = b.constant(Tensor::from_elements([count, taps], &reads)?);
    let values = b.apply(Gather { axis: 1 }, &[flat, reads])?;
    let largest = ArgReduce { maximum: true, axis: 2, keep_axis: true, select_last: false };
    let tap = b.apply(largest, &[values])?;
    let names = b.constant(Tensor::from_elements([1, count, taps], &names)?);
    let names = b.expand(names, vec![planes, count, taps])?;
    let place = b.apply(GatherElements { axis: 2 }, &[names, tap])?;
    let size = product(input).unwrap_or(0);
    let first: Vec<i64> = (0..planes).map(|plane| (plane * size) as i64).collect();
    let first = b.constant(Tensor::from_elements([planes, 1, 1], &first)?);
    let place = b.add(place, first)?;
    b.reshape(place, [lead, &output[..]].concat())
}

/// `AveragePool`.
pub(super) fn average(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut x = node.input(0)?;
    let input = spatial(builder, x)?;
    let mut kernel = kernel(node, input.len())?;
    let mut count_padding = node.flag("count_include_pad", false)?;
    let (mut window, stated) = pool_window(node, &input, &mut kernel)?;
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
    let mut kernel = kernel(node, input.len())?;
    let kind = PoolKind::Lp(order(node)?);
    let (window, _) = pool_window(node, &input, &mut kernel)?;
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
        ceil(&mut window, &[4], &mut [3]);
        assert_eq!(window.pads_end, [1]);
        // The window would begin at 4, behind the last element.
        let mut window = Window { strides: vec![2], pads_end: vec![1], ..Window::plain(1) };
        ceil(&mut window, &[4], &mut [2]);
        assert_eq!(window.pads_end, [1]);
    }

    #[test]
    fn a_kernel_larger_than_the_input_ends_with_it() {
        let (mut window, mut kernel) = (Window { strides: vec![6], ..Window::plain(1) }, [6]);
        ceil(&mut window, &[2], &mut kernel);
        assert_eq!((kernel, &window.pads_end[..]), ([2], &[0][..]));
        let (mut window, mut kernel) =
            (Window { strides: vec![2], dilations: vec![4], ..Window::plain(1) }, [2]);
        ceil(&mut window, &[4], &mut kernel);
        assert_eq!((kernel, &window.strides[..]), ([1], &[4][..]));
        // The quotient is below zero: there is no window.
        let (mut window, mut kernel) = (Window { strides: vec![3], ..Window::plain(1) }, [6]);
        ceil(&mut window, &[2], &mut kernel);
        assert_eq!(kernel, [6]);
    }
}
