//! Lengths that operations make of those of their operands: by windows that move on by several positions, by sampling up and
//! down, and by dividing positions into blocks.

use super::bounded::{Along, Bounded};
use super::length::Length;
use hone_graph::{Node, ValueId};
use hone_ops::{Convolution, ConvolutionTranspose, Op, Pool, Reshape, Resize, Slice, Window};

/// Most lengths of a slice that are looked at: of each remainder of its step one.
const MOST_REMAINDERS: i64 = 16;

/// Lengths that an operation makes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidates<'a> {
    /// Of axes of the result: the length is one of those that are said of an axis, or counts the same steps.
    pub made: &'a [Made],
    /// Lengths of other axes count one of these.
    pub steps: &'a [Length],
    /// And where they count none, one of these.
    pub divided: &'a [Length],
}

/// A length that an axis of a result may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub axis: usize,
    pub length: Length,
    /// Whether it follows from the operation's attributes, and has to be this one where it is the only one.
    pub is_exact: bool,
}

/// What a rule makes of the lengths of its operands.
#[derive(Debug, Default)]
pub(super) struct Derived {
    pub made: Vec<Made>,
    pub divided: Vec<Length>,
}

/// Lengths that a node's results have or may have beside those that its operands have. The smallest size is raised to one at
/// which every window has a position.
pub(super) fn derived(
    new: &mut Bounded,
    node: &Node<Op>,
    inputs: &[Option<ValueId>],
    others: &[&Node<Op>],
) -> Result<Derived, String> {
    let operation = &node.operation;
    let mut found = Derived::default();
    let Some(first) = inputs.first().copied().flatten() else { return Ok(found) };
    let axes = new.along(first).to_vec();
    let spatial = axes.iter().filter(|along| along.axis > 1 && !along.is_joined());
    if operation.downcast::<Convolution>().is_some() || operation.downcast::<Pool>().is_some() {
        for along in spatial {
            let Some(length) = windows(new, node, inputs, *along) else { continue };
            new.require(length)?;
            match windows_to_the_end(node, *along, others) {
                Some(rounded_up) => found.add(along.axis, [length, rounded_up], true),
                None => found.add(along.axis, [length], true),
            }
        }
    } else if let Some(operator) = operation.downcast::<ConvolutionTranspose>() {
        let kernel = kernel(new, node, inputs);
        for along in spatial {
            found.add(along.axis, transposed(operator, &kernel, *along), true);
        }
    } else if let Some(operator) = operation.downcast::<Resize>() {
        for along in axes {
            found.add(along.axis, resized(operator, along), true);
        }
    } else if let Some(operator) = operation.downcast::<Slice>() {
        for along in axes.iter().filter(|along| operator.steps[along.axis] > 1) {
            let (start, step) = (operator.starts[along.axis], operator.steps[along.axis]);
            let rest = i64::try_from(start).ok().and_then(|start| along.length.plus(-start));
            let remainders = 0..step.min(MOST_REMAINDERS);
            let lengths = remainders.filter_map(|more| rest?.plus(more)?.over(step));
            found.add(along.axis, lengths, false);
        }
    } else if let Some(operator) = operation.downcast::<Reshape>() {
        for along in axes {
            let extent = new.extent(along.length)?;
            let blocks = operator.shape.iter().filter_map(|blocks| extent.checked_div(*blocks));
            let blocks = blocks.filter_map(|block| i64::try_from(block).ok());
            let lengths = blocks.filter(|block| *block > 1);
            found.divided.extend(lengths.filter_map(|block| along.length.over(block)));
        }
    }
    Ok(found)
}

impl Derived {
    fn add(&mut self, axis: usize, lengths: impl IntoIterator<Item = Length>, is_exact: bool) {
        let made = lengths.into_iter().map(|length| Made { axis, length, is_exact });
        self.made.extend(made);
    }
}

/// Extents of a window.
fn kernel(new: &Bounded, node: &Node<Op>, inputs: &[Option<ValueId>]) -> Vec<usize> {
    if let Some(pool) = node.operation.downcast::<Pool>() {
        return pool.kernel.clone();
    }
    let weights = inputs.get(1).copied().flatten();
    let shape = weights.map(|weights| &new.graph().tensor_type(weights).shape[..]);
    shape.and_then(|shape| shape.get(2..)).unwrap_or_default().to_vec()
}

/// How a node's windows slide.
fn window(node: &Node<Op>) -> Option<&Window> {
    let convolution = node.operation.downcast::<Convolution>().map(|operator| &operator.window);
    convolution.or_else(|| node.operation.downcast::<Pool>().map(|operator| &operator.window))
}

/// The number of windows of a convolution or pool.
pub(super) fn windows(
    new: &Bounded,
    node: &Node<Op>,
    inputs: &[Option<ValueId>],
    along: Along,
) -> Option<Length> {
    let axis = along.axis.checked_sub(2)?;
    let window = window(node)?;
    let span = kernel(new, node, inputs).get(axis)?.checked_sub(1)? * window.dilations[axis] + 1;
    let pads = window.pads_begin[axis] + window.pads_end[axis];
    let padded = along.length.plus(i64::try_from(pads).ok()?)?;
    padded.windows(i64::try_from(span).ok()?, i64::try_from(window.strides[axis]).ok()?)
}

/// The number of windows of a pool that reach as far beyond the end as another one needs: what is added at the end goes
/// with the size.
fn windows_to_the_end(node: &Node<Op>, along: Along, others: &[&Node<Op>]) -> Option<Length> {
    let (pool, axis) = (node.operation.downcast::<Pool>()?, along.axis - 2);
    let window = &pool.window;
    let ends = others.iter().filter_map(|other| other.operation.downcast::<Pool>());
    let mut ends = ends.map(|other| other.window.pads_end[axis]).chain([window.pads_end[axis]]);
    let first = ends.next()?;
    let least = ends.clone().fold(first, usize::min);
    if ends.all(|end| end == first) {
        return None;
    }
    // Rounded up where the windows without it would be rounded down.
    let span = (pool.kernel[axis] - 1) * window.dilations[axis] + 1;
    let stride = i64::try_from(window.strides[axis]).ok()?;
    let pads = i64::try_from(window.pads_begin[axis] + least).ok()?;
    let padded = along.length.plus(pads)?.plus(stride - 1)?;
    padded.windows(i64::try_from(span).ok()?, stride)
}

/// The length of what a transposed convolution gives.
pub(super) fn transposed(
    operator: &ConvolutionTranspose,
    kernel: &[usize],
    along: Along,
) -> Option<Length> {
    let axis = along.axis.checked_sub(2)?;
    let window = &operator.window;
    let number = |number: usize| i64::try_from(number).ok();
    let stride = number(window.strides[axis])?;
    let span = number((kernel.get(axis)?.checked_sub(1)?) * window.dilations[axis])? + 1;
    let pads = number(window.pads_begin[axis] + window.pads_end[axis])?;
    let more = span - stride - pads + number(*operator.output_padding.get(axis)?)?;
    along.length.times(stride)?.plus(more)
}

/// The length of what is sampled at a whole multiple of positions.
pub(super) fn resized(operator: &Resize, along: Along) -> Option<Length> {
    let scale = *operator.scales.get(along.axis)?;
    let is_whole = scale >= 1.0 && scale.fract() == 0.0 && scale < f64::from(i32::MAX);
    along.length.times(is_whole.then_some(scale as i64)?)
}
