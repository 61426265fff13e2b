//! Operands one after another, and elements added around one.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Behind, Bounded};
use hone_graph::ValueId;
use hone_ops::{Concat, Pad, PadMode};

/// Operands joined along another axis, or the dimension behind operands of fixed extents.
pub(super) fn concat(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let axis = step.node.operation.downcast::<Concat>().ok_or("is no concatenation")?.axis;
    let operands: Vec<ValueId> = step.inputs.iter().flatten().copied().collect();
    let joined = operands.iter().position(|value| new.along_axis(*value, axis).is_some());
    if joined.is_some_and(|position| position + 1 != operands.len()) {
        return Err("joins something behind the dimension, along it".to_owned());
    }
    if let Some(along) = joined.and_then(|position| new.along_axis(operands[position], axis)) {
        step.behind(axis, along.behind);
    }
    for along in step.axes.first().cloned().unwrap_or_default() {
        if along.axis == axis {
            continue;
        }
        let mut found = None;
        for value in &operands {
            // An operand without elements has no other axes of the dimension to keep, and is none that matters.
            let entry =
                new.along_axis(*value, along.axis).filter(|entry| entry.extra == along.extra);
            let entry = entry.ok_or("joins operands with the dimension along different axes")?;
            found = match found {
                None => Some(entry.behind),
                Some(known) if known == entry.behind => Some(known),
                Some(_) => Some(Behind::Anything),
            };
        }
        // Weights of several softmaxes are not NaN together.
        let behind = found.filter(|behind| *behind != Behind::Weights);
        step.behind(along.axis, behind.unwrap_or(Behind::Anything));
    }
    step.copy(new)
}

/// Elements added around.
pub(super) fn pad(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<Pad>().ok_or("is no padding")?;
    let mut first = step.input(0)?;
    for along in new.along(first).to_vec() {
        let (begin, end) = (operator.begin[along.axis], operator.end[along.axis]);
        let constant = operator.mode == PadMode::Constant;
        if begin == 0 && end == 0 {
            let others = |axis: usize| operator.begin[axis] <= 0 && operator.end[axis] <= 0;
            let cuts = (0..operator.begin.len()).all(others);
            let value = Behind::Number(operator.value);
            if (constant && along.behind == value) || (cuts && along.behind != Behind::Weights) {
                step.behind(along.axis, along.behind);
            }
            continue;
        }
        if end > 0 && constant {
            first = new.filled(first, along.axis, operator.value)?;
            step.behind(along.axis, Behind::Number(operator.value));
        } else if end > 0 || !(constant || begin <= 0 || operator.mode == PadMode::Edge) {
            return Err("pads along the dimension with elements of it".to_owned());
        }
    }
    step.inputs[0] = Some(first);
    step.copy(new)
}
