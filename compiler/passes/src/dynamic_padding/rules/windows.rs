//! Windows that slide along the dimension.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Along, Bounded};
use crate::dynamic_padding::length::Length;
use crate::dynamic_padding::lengths;
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, ConvolutionTranspose, Expand, Op, Pool, PoolKind,
};

/// A convolution sees zeros behind the size, as it does outside of its input.
pub(super) fn convolution(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<Convolution>().ok_or("is no convolution")?;
    let kernel = new.graph().tensor_type(step.input(1)?).shape.clone();
    // Also where no window before the size reaches behind it: other ways to compute a convolution read more than
    // its windows.
    let reads_behind =
        |axis: usize| kernel.get(axis) != Some(&1) || operator.window.pads_end[axis - 2] > 0;
    let length = |new: &Bounded, step: &Step<'_>, along| {
        lengths::windows(new, step.node, &step.inputs, along)
    };
    slide(new, step, &length, &reads_behind)
}

/// A transposed convolution adds up what elements before the size give: those behind it are zeros.
pub(super) fn transposed(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<ConvolutionTranspose>();
    let operator = operator.ok_or("is no transposed convolution")?;
    let kernel = new.graph().tensor_type(step.input(1)?).shape.clone();
    let length =
        |_: &Bounded, _: &Step<'_>, along| lengths::transposed(operator, &kernel[2..], along);
    slide(new, step, &length, &|_| true)
}

/// An operation that sums over channels and slides along other axes: each of these that is the dimension has a `length`
/// afterwards, and zeros behind the size before where `reads_behind` says so of it.
fn slide(
    new: &mut Bounded,
    step: &mut Step<'_>,
    length: &dyn Fn(&Bounded, &Step<'_>, Along) -> Option<Length>,
    reads_behind: &dyn Fn(usize) -> bool,
) -> Added {
    step.others_are_whole(new, 1)?;
    let mut first = step.input(0)?;
    for along in new.along(first).to_vec() {
        match along.axis {
            0 => {}
            1 => return Err("sums up channels, which are the dimension".to_owned()),
            axis => {
                let length = length(new, step, along);
                check_length(new, step, axis, length)?;
                if reads_behind(axis) {
                    first = new.filled_above(first, axis, 0.0)?;
                }
            }
        }
    }
    step.inputs[0] = Some(first);
    step.copy(new)
}

/// Requires that an axis of the result has as many positions as an operation gives, which may be the same at all sizes.
fn check_length(
    new: &Bounded,
    step: &mut Step<'_>,
    axis: usize,
    length: Option<Length>,
) -> Result<(), String> {
    match (step.result(axis).map(|result| result.length), length) {
        (Some(found), Some(expected)) if found == expected => {
            step.is_alone(axis);
            Ok(())
        }
        (None, Some(expected)) if expected.at(new.least()) == expected.at(new.bound()) => Ok(()),
        (None, _) => Err("drops the dimension".to_owned()),
        _ => Err("has windows whose number does not follow from the dimension".to_owned()),
    }
}

/// Pooling sees behind the size what changes nothing.
pub(super) fn pool(new: &mut Bounded, step: &mut Step<'_>, operator: &Pool) -> Added {
    let mut first = step.input(0)?;
    let mut counted: Vec<Along> = Vec::new();
    for along in new.along(first).to_vec() {
        let Some(axis) = along.axis.checked_sub(2) else { continue };
        let ends = step.others.iter().filter_map(|other| other.operation.downcast::<Pool>());
        let is_fixed = ends
            .map(|entry| entry.window.pads_end[axis])
            .all(|end| end == operator.window.pads_end[axis]);
        let length = match is_fixed {
            true => lengths::windows(new, step.node, &step.inputs, along),
            // How far windows reach beyond the end is not the same at all sizes, and zeros or the least number are there
            // in any case.
            false => step.result(along.axis).map(|result| result.length),
        };
        check_length(new, step, along.axis, length)?;
        let divides = operator.kind == PoolKind::Average && !operator.count_padding;
        if divides && !(is_fixed && operator.window.pads_end[axis] == 0) {
            counted.push(along);
        } else if !is_fixed && operator.kind == PoolKind::Average {
            return Err("divides by a number of positions that goes with the size".to_owned());
        } else if !divides && (operator.kernel[axis] != 1 || operator.window.pads_end[axis] > 0) {
            let nothing = match operator.kind {
                PoolKind::Maximum => f64::NEG_INFINITY,
                PoolKind::Average | PoolKind::Lp(_) => 0.0,
            };
            first = new.filled_above(first, along.axis, nothing)?;
        }
    }
    step.inputs[0] = Some(first);
    if counted.is_empty() { step.copy(new) } else { average(new, step, operator, &counted) }
}

/// The mean of the positions of each window that are before the size, where windows reach behind it: the sum of these over
/// their number, both of them by pooling.
fn average(new: &mut Bounded, step: &Step<'_>, operator: &Pool, counted: &[Along]) -> Added {
    let name = &step.node.name;
    let mut first = step.input(0)?;
    let (dtype, mut shape) = {
        let first = new.graph().tensor_type(first);
        (first.dtype, first.shape.clone())
    };
    if !dtype.is_float() {
        return Err("is a mean of integers along the dimension".to_owned());
    }
    let mut before: Option<ValueId> = None;
    for along in counted {
        first = new.filled_above(first, along.axis, 0.0)?;
        let entry = new.is_before(along.before(shape.len() - 1 - along.axis)?)?;
        before = Some(match before {
            Some(other) => new.add(name, Binary::new(BinaryFunction::And), &[other, entry])?,
            None => entry,
        });
    }
    let before = before.ok_or("counts nothing")?;
    let whole = Op::new(Pool { count_padding: true, ..operator.clone() });
    let sums = new.add(name, whole.clone(), &[first])?;
    let ones = new.add(name, Cast { to: dtype }, &[before])?;
    shape[..2].fill(1);
    let ones = new.add(name, Expand { shape }, &[ones])?;
    let counts = new.add(name, whole, &[ones])?;
    Ok(vec![new.add(name, Binary::new(BinaryFunction::Divide), &[sums, counts])?])
}
