//! Sums of products.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Behind, Bounded};
use crate::dynamic_padding::constants::is_finite;
use hone_graph::ValueId;

/// `[..., M, K] x [..., K, N]`: rows, columns and the batch stay positions, and along the sum both operands have zeros behind
/// the size.
pub(super) fn matmul(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let (left, right) = (step.input(0)?, step.input(1)?);
    let ranks = [left, right].map(|value| new.graph().tensor_type(value).rank());
    let (Some(last), Some(first)) = (ranks[0].checked_sub(1), Some(ranks[1].max(2) - 2)) else {
        return Err("has an operand without axes".to_owned());
    };
    summed(new, step, [last, first])
}

/// `[..., M, K] x [..., N, K]`.
pub(super) fn dot_products(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let (left, right) = (step.input(0)?, step.input(1)?);
    let lasts = [left, right].map(|value| new.graph().tensor_type(value).rank().max(1) - 1);
    summed(new, step, lasts)
}

/// A product whose operands are summed along the given axes.
fn summed(new: &mut Bounded, step: &mut Step<'_>, axes: [usize; 2]) -> Added {
    let operands = [step.input(0)?, step.input(1)?];
    let along = [0, 1].map(|position: usize| new.along_axis(operands[position], axes[position]));
    match along {
        [None, None] => {}
        [Some(left), Some(right)] if left.is_joined() || right.is_joined() => {
            return Err("sums up the dimension, joined with another axis".to_owned());
        }
        [Some(left), Some(right)] if left.length == right.length => {
            for position in 0..2 {
                step.inputs[position] = Some(zeroed(new, operands, axes, position)?);
            }
        }
        _ => return Err("sums up positions of one operand with something else".to_owned()),
    }
    step.copy(new)
}

/// An operand with zeros behind the size along the sum. A constant of finite numbers is left as it is: the other operand
/// has zeros there.
fn zeroed(
    new: &mut Bounded,
    operands: [ValueId; 2],
    axes: [usize; 2],
    position: usize,
) -> Result<ValueId, String> {
    let (value, axis) = (operands[position], axes[position]);
    let is_plain = |value: ValueId| new.graph().constant(value).is_some_and(is_finite);
    if is_plain(value) && !(position == 1 && is_plain(operands[0])) {
        return Ok(value);
    }
    match new.along_axis(value, axis).map(|along| along.behind) {
        // Where a softmax leaves what is not a number, all products of the line are none.
        Some(Behind::Weights) => Ok(value),
        _ => new.filled_above(value, axis, 0.0),
    }
}
