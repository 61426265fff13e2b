//! Elements taken by indices: positions in what does not have the dimension, and along the dimension those that are there at
//! every size at which they are asked for.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Along, Bounded};
use crate::dynamic_padding::constants::Affine;
use crate::dynamic_padding::length::Length;
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Cast, Expand, Gather, GatherElements, GatherNd, Reshape,
    ScatterElements, Select, Slice, Transpose,
};
use hone_types::Tensor;

/// Most operations between an input of the model and indices that are its elements.
const DEEPEST: usize = 16;

/// Slices along one axis.
pub(super) fn gather(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let axis = step.node.operation.downcast::<Gather>().ok_or("is no gather")?.axis;
    let (data, indices) = (step.input(0)?, step.input(1)?);
    let rank = new.graph().tensor_type(indices).rank();
    for along in new.along(data) {
        if along.axis == axis {
            continue;
        }
        let result = if along.axis < axis { along.axis } else { along.axis - 1 + rank };
        if step.result(result).map(|entry| entry.length) != Some(along.length) {
            return Err("takes the dimension apart".to_owned());
        }
    }
    step.inputs[1] = Some(match new.along_axis(data, axis) {
        Some(along) => positions(new, step, indices, along)?,
        None => inside(new, indices)?,
    });
    step.copy(new)
}

/// Elements along one axis, by indices of the data's rank.
pub(super) fn gather_elements(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let axis =
        step.node.operation.downcast::<GatherElements>().ok_or("is no gather of elements")?.axis;
    let (data, indices) = (step.input(0)?, step.input(1)?);
    same_axes(new, axis, data, indices)?;
    step.inputs[1] = Some(match new.along_axis(data, axis) {
        Some(along) => positions(new, step, indices, along)?,
        None => inside(new, indices)?,
    });
    step.copy(new)
}

/// Elements stored along another axis than the dimension.
pub(super) fn scatter_elements(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<ScatterElements>();
    let axis = operator.ok_or("is no scatter of elements")?.axis;
    let (data, indices, updates) = (step.input(0)?, step.input(1)?, step.input(2)?);
    if [data, indices, updates].iter().any(|value| new.along_axis(*value, axis).is_some()) {
        return Err("stores elements along the dimension".to_owned());
    }
    same_axes(new, axis, data, indices)?;
    same_axes(new, axis, data, updates)?;
    step.inputs[1] = Some(inside(new, indices)?);
    step.copy(new)
}

/// Requires of two operands that they have the dimension along the same axes but one.
fn same_axes(new: &Bounded, but: usize, data: ValueId, other: ValueId) -> Result<(), String> {
    let axes = |value: ValueId| -> Vec<(usize, Length)> {
        let kept = new.along(value).iter().filter(|along| along.axis != but);
        kept.map(|along| (along.axis, along.length)).collect()
    };
    match axes(data) == axes(other) {
        true => Ok(()),
        false => Err("has the dimension along different axes of its operands".to_owned()),
    }
}

/// Slices by tuples of indices. Those that are constant may go along the dimension.
pub(super) fn gather_nd(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let batch = step.node.operation.downcast::<GatherNd>().ok_or("is no gather")?.batch_axes;
    let (data, indices) = (step.input(0)?, step.input(1)?);
    let shape = new.graph().tensor_type(indices).shape.clone();
    let Some((tuple, points)) = shape.split_last() else {
        return Err("has indices without axes".to_owned());
    };
    if new.along_axis(indices, points.len()).is_some() {
        return Err("has the dimension along its tuples of indices".to_owned());
    }
    let entry = new.along(data).to_vec();
    let mut is_indexed = false;
    for along in entry {
        if along.axis < batch {
            let other = new.along_axis(indices, along.axis).map(|entry| entry.length);
            if other != Some(along.length) {
                return Err("has the dimension along different axes of its operands".to_owned());
            }
        } else if along.axis < batch + tuple {
            is_indexed = true;
            let constant = new.graph().constant(indices).cloned();
            let constant = constant.ok_or("takes positions along the dimension by index")?;
            let entry = along.axis - batch;
            let entries: Vec<i64> =
                constant.to_i64().into_iter().skip(entry).step_by((*tuple).max(1)).collect();
            check_positions(&entries, (new.least(), points), new.along(indices), along)?;
        }
    }
    if !is_indexed {
        step.inputs[1] = Some(inside(new, indices)?);
    }
    step.copy(new)
}

/// Checks constant indices along the dimension, row-major in `shape`: each has to be there at every size at which it is asked
/// for itself.
fn check_positions(
    indices: &[i64],
    (least, shape): (usize, &[usize]),
    axes: &[Along],
    data: Along,
) -> Result<(), String> {
    for (element, index) in indices.iter().enumerate() {
        let smallest = smallest_size(element, (least, shape), axes);
        let is_there = (0..data.length.at(smallest)).contains(index);
        if !is_there {
            return Err("takes positions along the dimension by index".to_owned());
        }
    }
    Ok(())
}

/// The smallest size, of those from `least` on, at which a tensor has the element at a place, row-major in `shape`.
fn smallest_size(element: usize, (least, shape): (usize, &[usize]), axes: &[Along]) -> usize {
    let mut rest = element;
    let mut smallest = least;
    for (axis, extent) in shape.iter().enumerate().rev() {
        let index = rest % (*extent).max(1);
        rest /= (*extent).max(1);
        if let Some(along) = axes.iter().find(|along| along.axis == axis) {
            let size = along.length.first_with(index as i64, least);
            smallest = smallest.max(size.unwrap_or(usize::MAX));
        }
    }
    smallest
}

/// Indices along the dimension.
fn positions(
    new: &mut Bounded,
    step: &Step<'_>,
    indices: ValueId,
    data: Along,
) -> Result<ValueId, String> {
    if let Some(constant) = new.graph().constant(indices).cloned() {
        return constant_positions(new, indices, &constant, data);
    }
    let (least, bound) = (new.least(), new.bound());
    if let Some(affine) = new.affine_of(indices) {
        return match is_inside(affine, (least, bound), data.length) {
            true => Ok(indices),
            false => Err("takes positions along the dimension by index".to_owned()),
        };
    }
    // Indices are data: negative ones count from the end, and no one reaches behind it.
    let (name, indices) = (&step.node.name, inside(new, indices)?);
    let entries = new.along(indices).to_vec();
    let dtype = new.graph().tensor_type(indices).dtype;
    let size = new.length(dtype, data.length)?;
    let numbers = [0.0, -1.0].map(|number| new.numbers(dtype, &[], &[number]));
    let [zero, minus_one] = numbers;
    let binary = Binary::new;
    let last = new.add(name, binary(BinaryFunction::Add), &[size, minus_one?])?;
    let is_negative = new.add(name, binary(BinaryFunction::Less), &[indices, zero?])?;
    let from_end = new.add(name, binary(BinaryFunction::Add), &[indices, size])?;
    let chosen = new.add(name, Select {}, &[is_negative, from_end, indices])?;
    let chosen = new.add(name, binary(BinaryFunction::Minimum), &[chosen, last])?;
    new.set(chosen, entries);
    Ok(chosen)
}

/// Most sizes and elements at which it is looked whether indices are inside.
const MOST_CHECKED: usize = 1 << 24;

/// Whether indices that follow from the size are positions of a length at every size.
fn is_inside(indices: &Affine, (least, bound): (usize, usize), length: Length) -> bool {
    let elements = || 0..indices.slopes.len();
    let is_there = |size: usize| {
        elements().all(|element| (0.0..length.at(size) as f64).contains(&indices.at(element, size)))
    };
    // What is linear in the same steps holds between two sizes where it holds at both.
    if indices.of == length.steps() {
        return is_there(least) && is_there(bound);
    }
    let checked = (bound - least + 1).saturating_mul(indices.slopes.len());
    checked <= MOST_CHECKED && (least..=bound).all(is_there)
}

/// Constant indices along the dimension: as they are, or counted from the end.
fn constant_positions(
    new: &mut Bounded,
    indices: ValueId,
    constant: &Tensor,
    data: Along,
) -> Result<ValueId, String> {
    let entries = constant.to_i64();
    let axes = new.along(indices).to_vec();
    let refuse = || "takes positions along the dimension by index".to_owned();
    if axes.is_empty() && !entries.is_empty() && entries.iter().all(|index| *index < 0) {
        // At the smallest size all of them have to be there.
        if entries.iter().any(|index| *index < -data.length.at(new.least())) {
            return Err(refuse());
        }
        let offsets = entries.iter().map(|index| *index as f64).collect();
        return new.offset_from(data.length, constant.shape(), offsets);
    }
    check_positions(&entries, (new.least(), constant.shape()), &axes, data)?;
    Ok(indices)
}

/// Indices of something without the dimension, inside of it at every position: behind the size those that were computed may
/// be anything.
fn inside(new: &mut Bounded, indices: ValueId) -> Result<ValueId, String> {
    if is_given(new, indices) {
        return Ok(indices);
    }
    let mut indices = indices;
    for along in new.along(indices).to_vec() {
        indices = new.filled(indices, along.axis, 0.0)?;
    }
    Ok(indices)
}

/// Whether a value's elements are those of a constant or of an input of the model, which may be asked for at every
/// position.
fn is_given(new: &Bounded, value: ValueId) -> bool {
    let mut value = value;
    for _ in 0..DEEPEST {
        let Some(producer) = new.graph().producer(value) else { return true };
        let node = &new.graph().nodes()[producer];
        let operation = &node.operation;
        let moves = operation.downcast::<Transpose>().is_some()
            || operation.downcast::<Reshape>().is_some()
            || operation.downcast::<Expand>().is_some()
            || operation.downcast::<Slice>().is_some()
            || operation.downcast::<Cast>().is_some_and(|cast| cast.to.is_signed_integer());
        let from_integer = node.inputs.first().copied().flatten();
        let from_integer =
            from_integer.filter(|from| new.graph().tensor_type(*from).dtype.is_integer());
        match from_integer.filter(|_| moves) {
            Some(input) => value = input,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::dynamic_padding::twins::Axis;

    #[test]
    fn an_element_is_there_from_the_size_on_that_has_its_positions() {
        let length = |extra| Length::size(1).plus(extra).unwrap();
        let along = |axis, extra| Along::new(Axis { axis, length: length(extra) });
        let axes = [along(0, 0), along(2, 1)];
        // Element [1, 0, 3] of [4, 2, 5]: the second row needs size 2, the fourth column size 3.
        assert_eq!(smallest_size(13, (1, &[4, 2, 5]), &axes), 3);
        assert_eq!(smallest_size(0, (1, &[4, 2, 5]), &axes), 1);
        let data = along(0, 1);
        assert!(check_positions(&[0, 1], (1, &[2]), &[], data).is_ok());
        assert!(check_positions(&[2], (1, &[1]), &[], data).is_err());
        assert!(check_positions(&[-1], (1, &[1]), &[], data).is_err());
        let along = [along(0, 0)];
        assert!(check_positions(&[1, 2, 3], (1, &[3]), &along, data).is_ok());
        assert!(check_positions(&[1, 3, 3], (1, &[3]), &along, data).is_err());
    }
}
