//! Operands one after another, and elements added around one.

use super::{Added, Step, resampled};
use crate::dynamic_padding::bounded::{Before, Behind, Bounded};
use crate::dynamic_padding::length::Length;
use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction, Concat, Gather, Pad, PadMode, Select};
use hone_types::DataType;

/// Operands joined along another axis, or the dimension between operands of fixed extents.
pub(super) fn concat(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let axis = step.node.operation.downcast::<Concat>().ok_or("is no concatenation")?.axis;
    let operands: Vec<ValueId> = step.inputs.iter().flatten().copied().collect();
    let joined = operands.iter().position(|value| new.along_axis(*value, axis).is_some());
    let (head, tail) = operands.split_at(joined.map_or(operands.len(), |position| position + 1));
    if tail.iter().any(|value| new.along_axis(*value, axis).is_some()) {
        return Err("joins the dimension twice, along it".to_owned());
    }
    if tail.is_empty()
        && let Some(along) = joined.and_then(|position| new.along_axis(operands[position], axis))
    {
        step.behind(axis, along.behind);
    }
    if let Some(along) = joined.and_then(|position| new.along_axis(operands[position], axis))
        && !along.is_joined()
    {
        step.is_alone(axis);
    }
    for along in step.axes.first().cloned().unwrap_or_default() {
        if along.axis == axis {
            continue;
        }
        let mut found = None;
        for value in &operands {
            // An operand without elements has no other axes of the dimension to keep, and is none that matters.
            let entry =
                new.along_axis(*value, along.axis).filter(|entry| entry.length == along.length);
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
    if tail.is_empty() { step.copy(new) } else { behind_size(new, step, axis, (head, tail)) }
}

/// Operands of fixed extents joined behind the dimension, as new keys to those of the past: they begin where the size says.
fn behind_size(
    new: &mut Bounded,
    step: &Step<'_>,
    axis: usize,
    (head, tail): (&[ValueId], &[ValueId]),
) -> Added {
    let name = &step.node.name;
    let mut joined = |values: &[ValueId]| match values {
        [value] => Ok(*value),
        _ => new.add(name, Concat { axis }, values),
    };
    let (first, last) = (joined(head)?, joined(tail)?);
    let along = step.result(axis).filter(|along| !along.is_joined());
    let along = along.ok_or("joins something behind a part of the dimension")?;
    let shape = new.graph().tensor_type(last).shape.clone();
    let added = i64::try_from(shape[axis]).map_err(|error| error.to_string())?;
    let length = along.length.plus(-added).ok_or("joins too much")?;
    let (rank, mut end) = (shape.len(), vec![0; shape.len()]);
    end[axis] = added;
    let room = Pad { begin: vec![0; rank], end, mode: PadMode::Constant, value: 0.0 };
    let first = new.add(name, room, &[first])?;
    let last =
        if added == 1 { last } else { moved(new, name, axis, (last, along.length, length))? };
    let axes_behind = rank - 1 - axis;
    let before = new.is_before(Before { length, room: along.length, outer: 1, axes_behind })?;
    Ok(vec![new.add(name, Select {}, &[before, first, last])?])
}

/// A value with its positions along an axis moved to where a length ends, in the room of another one; others hold its first or
/// its last one.
fn moved(
    new: &mut Bounded,
    name: &str,
    axis: usize,
    (value, room, length): (ValueId, Length, Length),
) -> Result<ValueId, String> {
    let count = new.extent(room)?;
    let last = new.graph().tensor_type(value).shape[axis] as f64 - 1.0;
    let positions: Vec<f64> = (0..count).map(|position| position as f64).collect();
    let positions = new.numbers(DataType::I64, &[count], &positions)?;
    let size = new.length(DataType::I64, length)?;
    let mut indices = new.add(name, Binary::new(BinaryFunction::Subtract), &[positions, size])?;
    for (function, number) in [(BinaryFunction::Maximum, 0.0), (BinaryFunction::Minimum, last)] {
        let number = new.numbers(DataType::I64, &[], &[number])?;
        indices = new.add(name, Binary::new(function), &[indices, number])?;
    }
    new.add(name, Gather { axis }, &[value, indices])
}

/// Elements added around.
pub(super) fn pad(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let mut operator = step.node.operation.downcast::<Pad>().ok_or("is no padding")?.clone();
    let mut first = step.input(0)?;
    for along in new.along(first).to_vec() {
        let axis = along.axis;
        let (begin, end) = (operator.begin[axis], operator.end[axis]);
        let constant = operator.mode == PadMode::Constant;
        if begin == 0 && end == 0 {
            let others = |axis: usize| operator.begin[axis] <= 0 && operator.end[axis] <= 0;
            let cuts = (0..operator.begin.len()).all(others);
            let value = Behind::Number(operator.value);
            if (constant && along.behind == value) || (cuts && along.behind != Behind::Weights) {
                step.behind(axis, along.behind);
            }
        } else if end > 0 && constant {
            first = new.filled(first, axis, operator.value)?;
            step.behind(axis, Behind::Number(operator.value));
        } else if (end > 0 || begin > 0) && !constant {
            if along.is_joined() {
                return Err("pads along the dimension with elements of it".to_owned());
            }
            first = resampled::around(new, step, (first, along), &operator)?;
            (operator.begin[axis], operator.end[axis]) = (0, 0);
        }
    }
    Ok(vec![new.add(&step.node.name, operator, &[first])?])
}
