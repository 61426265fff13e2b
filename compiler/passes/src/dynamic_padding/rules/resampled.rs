//! Positions along the dimension sampled at a whole multiple of them, and elements beyond an end that are others of it.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Along, Bounded};
use crate::dynamic_padding::length::Length;
use crate::dynamic_padding::lengths;
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, CoordinateMode, Gather, Pad, PadMode, Resize, ResizeMode, Unary,
    UnaryFunction,
};
use hone_types::DataType;

/// Whether coordinates of a result go with its positions alone, and not with how many there are.
fn is_local(coordinates: CoordinateMode) -> bool {
    matches!(
        coordinates,
        CoordinateMode::HalfPixel | CoordinateMode::Asymmetric | CoordinateMode::HalfPixelSymmetric
    )
}

/// Resampling of other axes; along the dimension by whole factors, where a position follows from those around it. Beyond the
/// end there is the last one.
pub(super) fn resize(new: &mut Bounded, step: &mut Step<'_>, operator: &Resize) -> Added {
    let refuse = || "resamples the dimension".to_owned();
    let mut first = step.input(0)?;
    let entries = new.along(first).to_vec();
    if !operator.region.is_empty() || step.axes.first().map_or(0, Vec::len) != entries.len() {
        return Err(refuse());
    }
    for along in entries {
        let length = lengths::resized(operator, along).ok_or_else(refuse)?;
        if step.result(along.axis).map(|result| result.length) != Some(length) {
            return Err(refuse());
        }
        if operator.scales[along.axis] == 1.0 {
            continue;
        }
        let is_filter = !matches!(operator.mode, ResizeMode::Nearest { .. });
        if along.is_joined() || operator.antialias || !is_local(operator.coordinates) {
            return Err(refuse());
        }
        if matches!(operator.mode, ResizeMode::Cubic { exclude_outside: true, .. }) {
            return Err(refuse());
        }
        if is_filter || operator.coordinates == CoordinateMode::HalfPixelSymmetric {
            first = at_edge(new, step, (first, along))?;
        }
        step.is_alone(along.axis);
    }
    step.inputs[0] = Some(first);
    step.copy(new)
}

/// A value with its last position before the size in place of those behind it.
fn at_edge(
    new: &mut Bounded,
    step: &Step<'_>,
    (value, along): (ValueId, Along),
) -> Result<ValueId, String> {
    let indices = counted(new, 0, along.length)?;
    let last = new.offset_from(along.length, &[], vec![-1.0])?;
    let minimum = Binary::new(BinaryFunction::Minimum);
    let indices = new.add("positions", minimum, &[indices, last])?;
    taken(new, step, (value, along), indices)
}

/// A value with elements of it added before its first position along an axis and behind its last one before the size.
pub(super) fn around(
    new: &mut Bounded,
    step: &Step<'_>,
    (value, along): (ValueId, Along),
    operator: &Pad,
) -> Result<ValueId, String> {
    let length = along.length;
    let (name, binary) = ("positions", Binary::new);
    let (begin, end) = (operator.begin[along.axis], operator.end[along.axis]);
    let result = length.plus(begin).and_then(|length| length.plus(end));
    let positions = counted(new, begin, result.ok_or("pads too much")?)?;
    let last = new.offset_from(length, &[], vec![-1.0])?;
    let zero = new.numbers(DataType::I64, &[], &[0.0])?;
    let indices = match operator.mode {
        PadMode::Edge => new.add(name, binary(BinaryFunction::Minimum), &[positions, last])?,
        PadMode::Reflect => {
            // At the smallest size there are more positions than are mirrored.
            new.require(length.plus(-begin.max(end)).ok_or("pads too much")?)?;
            let before = new.add(name, Unary::new(UnaryFunction::Abs), &[positions])?;
            // Twice the last position less one that lies behind it.
            let doubled = length.times(2).ok_or("has too many positions")?;
            let doubled = new.offset_from(doubled, &[], vec![-2.0])?;
            let behind = new.add(name, binary(BinaryFunction::Subtract), &[doubled, before])?;
            new.add(name, binary(BinaryFunction::Minimum), &[before, behind])?
        }
        _ => return Err("pads along the dimension with elements of it".to_owned()),
    };
    let indices = new.add(name, binary(BinaryFunction::Maximum), &[indices, zero])?;
    taken(new, step, (value, along), indices)
}

/// The positions of a length at the bound, from one so many before the first on.
fn counted(new: &mut Bounded, before: i64, length: Length) -> Result<ValueId, String> {
    let count = new.extent(length)?;
    let positions: Vec<f64> = (0..count).map(|position| position as f64 - before as f64).collect();
    new.numbers(DataType::I64, &[count], &positions)
}

fn taken(
    new: &mut Bounded,
    step: &Step<'_>,
    (value, along): (ValueId, Along),
    indices: ValueId,
) -> Result<ValueId, String> {
    let result = new.add(&step.node.name, Gather { axis: along.axis }, &[value, indices])?;
    // Other axes are as they were; along this one there are elements before the size alone.
    let entries = new.along(value).iter().filter(|entry| entry.axis != along.axis);
    let entries = entries.copied().collect();
    new.set(result, entries);
    Ok(result)
}
