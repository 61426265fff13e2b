//! Pooling over windows.

use super::convolution::spread;
use super::{Pulled, Rule, Site};
use crate::RuleError;
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{
    ArgReduce, BinaryFunction as B, GatherElements, Pad, PadMode, Pool, PoolKind, ScatterElements,
    ScatterReduction, UnaryFunction as U, Window,
};
use hone_types::{Tensor, TensorType};

/// Most entries of a table of all windows of a plane.
const LARGEST_TABLE: usize = 1 << 26;

impl Rule for Pool {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((y, dy)) = site.output() else { return Ok(vec![None]) };
        let x = site.input(0)?;
        let dx = match self.kind {
            PoolKind::Average => {
                let share = share(self, nodes, x, dy)?;
                spread_evenly(self, nodes, x, share)?
            }
            PoolKind::Lp(order) => norm(self, nodes, f64::from(order), [x, y, dy])?,
            PoolKind::Maximum => winners(self, nodes, x, dy)?,
        };
        Ok(vec![Some(dx)])
    }
}

/// Each window's part of `dy` added to all elements of the window.
fn spread_evenly(pool: &Pool, n: &mut Nodes<'_>, x: ValueId, dy: ValueId) -> Step {
    let (input, output) = (n.shape(x), n.shape(dy));
    let planes = [input[0] * input[1], 1];
    let dy = n.reshape(dy, &[&planes, &output[2..]].concat())?;
    let weights = TensorType::new(n.dtype(dy), [&[1, 1], &pool.kernel[..]].concat());
    let ones = n.filled(&weights, 1.0)?;
    let dx = spread(n, dy, ones, &input[2..], &pool.window, 1)?;
    n.reshape(dx, &input)
}

/// The adjoint over the number of elements that each mean was taken of.
fn share(pool: &Pool, n: &mut Nodes<'_>, x: ValueId, dy: ValueId) -> Step {
    let whole: usize = pool.kernel.iter().product();
    if pool.count_padding {
        return n.scale(dy, 1.0 / whole as f64);
    }
    let (input, output) = (n.shape(x), n.shape(dy));
    let mut counts = vec![1.0];
    for axis in 0..pool.kernel.len() {
        let inside = |place: usize| {
            taps(pool, axis, place).filter(|read| read_inside(pool, axis, *read, &input)).count()
        };
        let own: Vec<f64> = (0..output[axis + 2]).map(|place| inside(place) as f64).collect();
        counts = counts.iter().flat_map(|outer| own.iter().map(move |own| outer * own)).collect();
    }
    let dtype = n.dtype(dy);
    let counts = n.constant(Tensor::from_f64(dtype, &output[2..], &counts)?);
    n.divide(dy, counts)
}

/// Places that a window reads along an axis of the padded input.
fn taps(pool: &Pool, axis: usize, place: usize) -> impl Iterator<Item = usize> {
    let (stride, dilation) = (pool.window.strides[axis], pool.window.dilations[axis]);
    (0..pool.kernel[axis]).map(move |tap| place * stride + tap * dilation)
}

fn read_inside(pool: &Pool, axis: usize, read: usize, input: &[usize]) -> bool {
    let begin = pool.window.pads_begin[axis];
    read >= begin && read - begin < input[axis + 2]
}

/// `dx = |x|^(p - 1) * sign(x) * sum of dy * y^(1 - p)`; zero where a norm is zero.
fn norm(pool: &Pool, n: &mut Nodes<'_>, order: f64, [x, y, dy]: [ValueId; 3]) -> Step {
    let sign = n.unary(U::Sign, x)?;
    if order == 1.0 {
        let spread = spread_evenly(pool, n, x, dy)?;
        return n.multiply(sign, spread);
    }
    let strength = n.with(B::Power, y, order - 1.0)?;
    let factor = n.divide_or_zero(dy, strength)?;
    let spread = spread_evenly(pool, n, x, factor)?;
    let magnitude = n.unary(U::Abs, x)?;
    let own = n.with(B::Power, magnitude, order - 1.0)?;
    let own = n.multiply(own, sign)?;
    n.multiply(own, spread)
}

/// The adjoint of each window at the first of its largest elements.
///
/// The windows become lines of one tensor, `[planes, windows, taps]`, of which each place is looked for; where in the padded
/// plane it lies says a table.
fn winners(pool: &Pool, n: &mut Nodes<'_>, x: ValueId, dy: ValueId) -> Step {
    let (input, output) = (n.shape(x), n.shape(dy));
    let window = &pool.window;
    let extents = &input[2..];
    let padded: Vec<usize> = (0..extents.len())
        .map(|axis| extents[axis] + window.pads_begin[axis] + window.pads_end[axis])
        .collect();
    let (reads, count) = table(pool, &padded, &output[2..])?;
    let (planes, all): (usize, usize) = (input[0] * input[1], padded.iter().product());
    let taps = reads.len() / count.max(1);
    let least = lowest(n, x, window, extents.len())?;
    let flat = n.reshape(least, &[planes, all])?;
    let windows = n.take(flat, 1, &reads)?;
    let windows = n.reshape(windows, &[planes, count, taps])?;
    let largest = ArgReduce { maximum: true, axis: 2, keep_axis: true, select_last: false };
    let tap = n.apply(largest, &[windows])?;
    let places = n.constant(Tensor::from_elements([1, count, taps], &reads)?);
    let places = n.expand(places, &[planes, count, taps])?;
    let place = n.apply(GatherElements { axis: 2 }, &[places, tap])?;
    let place = n.reshape(place, &[planes, count])?;
    let dy = n.reshape(dy, &[planes, count])?;
    let zeros = n.filled(&TensorType::new(n.dtype(dy), [planes, all]), 0.0)?;
    let add = ScatterElements::new(1, ScatterReduction::Add);
    let sums = n.apply(add, &[zeros, place, dy])?;
    let sums = n.reshape(sums, &[&input[..2], &padded[..]].concat())?;
    let starts = [0, 0].into_iter().chain(window.pads_begin.iter().copied()).collect();
    n.part(sums, starts, input)
}

/// The input, and around it what is less than every number.
fn lowest(n: &mut Nodes<'_>, x: ValueId, window: &Window, axes: usize) -> Step {
    if !window.is_padded() {
        return Ok(x);
    }
    let counts = |own: &[usize]| {
        [0, 0].into_iter().chain(own[..axes].iter().map(|count| *count as i64)).collect()
    };
    let (begin, end) = (counts(&window.pads_begin), counts(&window.pads_end));
    let mode = PadMode::Constant;
    n.apply(Pad { begin, end, mode, value: f64::NEG_INFINITY }, &[x])
}

/// For each window and each of its taps, the place in a padded plane; and the number of windows.
fn table(pool: &Pool, padded: &[usize], output: &[usize]) -> Result<(Vec<i64>, usize), RuleError> {
    let entries =
        output.iter().chain(&pool.kernel).try_fold(1usize, |all, own| all.checked_mul(*own));
    if entries.is_none_or(|entries| entries > LARGEST_TABLE) {
        return Err(RuleError::Missing("the largest of windows this many or large".into()));
    }
    let count: usize = output.iter().product();
    let each: usize = pool.kernel.iter().product();
    let mut reads = Vec::with_capacity(count * each);
    for flat in 0..count * each {
        let (mut place, mut tap) = (flat / each, flat % each);
        let (mut read, mut stride) = (0, 1);
        for axis in (0..padded.len()).rev() {
            let at = place % output[axis] * pool.window.strides[axis]
                + tap % pool.kernel[axis] * pool.window.dilations[axis];
            read += at * stride;
            stride *= padded[axis];
            (place, tap) = (place / output[axis], tap / pool.kernel[axis]);
        }
        reads.push(read as i64);
    }
    Ok((reads, count))
}
