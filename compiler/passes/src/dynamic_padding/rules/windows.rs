//! Windows that slide along the dimension.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Along, Bounded};
use hone_graph::ValueId;
use hone_ops::{Convolution, Pool, PoolKind, Window};

/// A convolution sees zeros behind the size, as it does outside of its input.
pub(super) fn convolution(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<Convolution>().ok_or("is no convolution")?;
    step.others_are_whole(new, 1)?;
    let kernel = new.graph().tensor_type(step.input(1)?).shape.clone();
    let mut first = step.input(0)?;
    for along in new.along(first).to_vec() {
        match along.axis {
            0 => {}
            1 => return Err("sums up channels, which are the dimension".to_owned()),
            axis => {
                check_strides(&operator.window, along, (new.least(), step))?;
                // Also where no window before the size reaches behind it: other ways to compute
                // a convolution read more than its windows.
                if kernel.get(axis) != Some(&1) {
                    first = new.filled_above(first, axis, 0.0)?;
                }
            }
        }
    }
    step.inputs[0] = Some(first);
    step.copy(new)
}

/// A window that moves on by one position, so that its results have the dimension where its input has it.
fn check_strides(
    window: &Window,
    along: Along,
    (least, step): (usize, &Step<'_>),
) -> Result<(), String> {
    if window.strides.get(along.axis - 2) != Some(&1) {
        return Err("leaves out positions along the dimension".to_owned());
    }
    match step.result(along.axis) {
        Some(result) if least as i64 + result.extra > 0 => Ok(()),
        Some(_) => Err(format!("has windows of more than {least} positions, which may be all")),
        None => Err("drops the dimension".to_owned()),
    }
}

/// Pooling sees behind the size what changes nothing.
pub(super) fn pool(new: &mut Bounded, step: &mut Step<'_>, operator: &Pool) -> Added {
    let mut first = step.input(0)?;
    for along in new.along(first).to_vec() {
        let Some(axis) = along.axis.checked_sub(2) else { continue };
        check_strides(&operator.window, along, (new.least(), step))?;
        if operator.kernel.get(axis) != Some(&1) {
            first = outside(new, operator, (first, along), axis)?;
        }
    }
    step.inputs[0] = Some(first);
    step.copy(new)
}

/// The input with what stands for padding behind the size.
fn outside(
    new: &mut Bounded,
    operator: &Pool,
    (value, along): (ValueId, Along),
    axis: usize,
) -> Result<ValueId, String> {
    match operator.kind {
        PoolKind::Maximum => new.filled_above(value, along.axis, f64::NEG_INFINITY),
        PoolKind::Average if !operator.count_padding => {
            match operator.window.pads_end.get(axis) {
                // No window before the size reaches behind it.
                Some(0) => Ok(value),
                _ => Err(
                    "divides by the positions inside of windows that reach beyond the dimension"
                        .to_owned(),
                ),
            }
        }
        PoolKind::Average | PoolKind::Lp(_) => new.filled_above(value, along.axis, 0.0),
    }
}
