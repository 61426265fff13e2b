//! `Shape`, `Slice` and `Concat` of operands of which a run decides how much is there, where their results are made of
//! other nodes than usual.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::operators::counted::cut;
use super::operators::indexing::{scatter_elements, scatter_nd};
use super::shorthands::{Step, axis};
use super::sized::{Behind, Part};
use crate::NodeError;
use hone_ops::{BinaryFunction as B, Gather};
use hone_types::{DataType, Tensor, TensorType};

/// `Shape`, with what is there in place of the room.
pub(super) fn shape_of(b: &mut Builder, node: &mut Node, parts: &[(usize, Part)]) -> Step {
    let [(_, part)] = parts else { return Err(NodeError::invalid("it takes one input")) };
    let shape = b.shape(node.input(0)?);
    let rank = shape.len() as i64;
    let place = |own: i64| (if own < 0 { own + rank } else { own }).clamp(0, rank) as usize;
    let (start, end) = (place(node.int_or("start", 0)?), place(node.int_or("end", rank)?));
    let mut extents = Vec::new();
    for (own, extent) in shape.iter().enumerate().take(end).skip(start) {
        extents.push(match own == part.axis {
            true => {
                let count = b.cast(part.count, DataType::I64)?;
                b.reshape(count, vec![1])?
            }
            false => b.integers(&[*extent as i64])?,
        });
    }
    match extents.is_empty() {
        true => b.integers(&[]),
        false => b.concat(&extents, 0),
    }
}

/// What a `Slice` says of an axis: first, end and step; `None` of one that it does not cut.
pub(super) fn bounds(
    b: &Builder,
    node: &mut Node,
    along: usize,
    rank: usize,
) -> Result<Option<(i64, i64, i64)>, NodeError> {
    let given = |place: usize| node.optional(place).map(|_| b.integers_of(node, place)).transpose();
    let (starts, ends, axes, steps) = match node.opset {
        ..10 => {
            let (starts, ends) = (node.ints("starts")?, node.ints("ends")?);
            (starts, ends, node.ints("axes")?, None)
        }
        _ => (given(1)?, given(2)?, given(3)?, given(4)?),
    };
    let (starts, ends) = (starts.unwrap_or_default(), ends.unwrap_or_default());
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    for (place, number) in axes.iter().enumerate() {
        if axis(*number, rank)? == along {
            let step = steps.as_ref().and_then(|own| own.get(place)).copied().unwrap_or(1);
            let both = starts.get(place).zip(ends.get(place));
            return Ok(both.map(|(start, end)| (*start, *end, step)));
        }
    }
    Ok(None)
}

/// `Slice` of the axis of which a part is there alone, with a bound that counts from the part's end or that a run decides;
/// `None` of others.
pub(super) fn cut_by_count(
    b: &mut Builder,
    node: &mut Node,
    parts: &[(usize, Part)],
) -> Result<Option<Operand>, NodeError> {
    let [(0, part)] = parts else { return Ok(None) };
    let x = node.input(0)?;
    let (starts, ends, axes, steps) = match node.opset {
        ..10 => {
            let list = |b: &mut Builder, values: Option<Vec<i64>>| -> Result<_, NodeError> {
                values.map(|own| b.integers(&own)).transpose()
            };
            let (starts, ends) = (node.ints("starts")?, node.ints("ends")?);
            (list(b, starts)?, list(b, ends)?, node.ints("axes")?, None)
        }
        _ => {
            let known =
                |place: usize| node.optional(place).map(|_| b.integers_of(node, place)).transpose();
            (node.optional(1), node.optional(2), known(3)?, known(4)?)
        }
    };
    let (Some(start), Some(end)) = (starts, ends) else { return Ok(None) };
    let is_one = [start, end].iter().all(|own| b.tensor_type(*own).elements() == 1);
    let along = match axes.as_deref() {
        None => 0,
        Some([along]) => axis(*along, b.rank(x))?,
        Some(_) => return Ok(None),
    };
    if !is_one || along != part.axis || steps.is_some_and(|own| own != [1]) {
        return Ok(None);
    }
    let known = [start, end].map(|own| b.tensor(own).map(|own| own.to_i64()));
    if known.iter().all(|own| own.as_ref().is_some_and(|own| own.iter().all(|own| *own >= 0))) {
        return Ok(None);
    }
    cut(b, x, Some(*part), along, (start, end))
}

/// `Concat` along the axis of which parts are there: the parts without gaps; `None` where it is along another one.
pub(super) fn joined(
    b: &mut Builder,
    node: &mut Node,
    parts: &[(usize, Part)],
) -> Result<Option<Operand>, NodeError> {
    let operands = node.variadic()?;
    let along = node.attributes.get("axis").and_then(|own| own.i).unwrap_or(1);
    let along = axis(along, b.rank(operands[0]))?;
    if parts.iter().all(|(_, part)| part.axis != along) {
        return Ok(None);
    }
    let mut pieces = Vec::with_capacity(operands.len());
    let mut counts = Vec::with_capacity(operands.len());
    for (place, operand) in operands.iter().enumerate() {
        let part = parts.iter().find(|(own, _)| *own == place).map(|(_, part)| *part);
        let room = b.shape(*operand)[along];
        match part {
            Some(part) if part.axis == along => {
                pieces.push((b.filled(*operand, part, Behind::Zeros)?, room));
                counts.push(b.single(part.count)?);
            }
            Some(_) => {
                return Err(NodeError::UndecidedSize {
                    what: "two of its inputs, along different axes,".into(),
                });
            }
            None => {
                pieces.push((*operand, room));
                counts.push(b.scalar(DataType::I64, room as f64)?);
            }
        }
    }
    let all: Vec<Operand> = pieces.iter().map(|(own, _)| *own).collect();
    let all = b.concat(&all, along)?;
    let room = b.shape(all)[along];
    let places = b.integers(&(0..room as i64).collect::<Vec<_>>())?;
    let zero = b.scalar(DataType::I64, 0.0)?;
    let mut from = b.with_scalar(B::Multiply, places, 0.0)?;
    let (mut start, mut before) = (zero, 0);
    for ((_, own_room), count) in pieces.iter().zip(counts) {
        let end = b.add(start, count)?;
        let after = b.binary(B::GreaterEqual, places, start)?;
        let until = b.binary(B::Less, places, end)?;
        let inside = b.binary(B::And, after, until)?;
        let own = b.subtract(places, start)?;
        let own = b.with_scalar(B::Add, own, before as f64)?;
        from = b.select(inside, own, from)?;
        start = end;
        before += own_room;
    }
    let joined = b.apply(Gather { axis: along }, &[all, from])?;
    b.set_spread_extent(joined, along, start);
    Ok(Some(joined))
}

/// `ScatterElements` and `ScatterND` of which a part of the places is there: what is behind the part goes to one element
/// more than there is, which is cut off again. `None` where the places are all there.
pub(super) fn scattered(
    b: &mut Builder,
    node: &mut Node,
    parts: &[(usize, Part)],
) -> Result<Option<Operand>, NodeError> {
    let part_of = |place: usize| parts.iter().find(|(own, _)| *own == place).map(|(_, part)| *part);
    let Some(of_places) = part_of(1) else { return Ok(None) };
    let by_elements = node.operator != "ScatterND";
    let (data, places, updates) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let along = match by_elements {
        true => axis(node.int_or("axis", 0)?, b.rank(data))?,
        false => 0,
    };
    let (shape, rank) = (b.shape(data), b.rank(places));
    let is_list = by_elements || of_places.axis + 1 < rank && b.shape(places)[rank - 1] > 0;
    if !is_list || shape.is_empty() || b.narrow_type(data).is_some() {
        return Ok(None);
    }
    let updates = match part_of(2) {
        None => updates,
        Some(part) if part.axis != of_places.axis => return Ok(None),
        Some(part) => {
            let (one, other) = (b.single(part.count)?, b.single(of_places.count)?);
            let equal = b.binary(B::Equal, one, other)?;
            b.require(equal, "places and what goes there have different sizes")?;
            b.filled(updates, part, Behind::Zeros)?
        }
    };
    let of_data = part_of(0);
    let extent = match of_data {
        Some(part) if part.axis == along => b.single(part.count)?,
        _ => b.scalar(DataType::I64, shape[along] as f64)?,
    };
    let beyond = b.scalar(DataType::I64, shape[along] as f64)?;
    let data = match of_data {
        Some(part) => b.filled(data, part, Behind::Zeros)?,
        None => data,
    };
    let mut one = shape.clone();
    one[along] = 1;
    let one = b.constant(Tensor::zeros(TensorType::new(b.dtype(data), one)));
    let wide = b.concat(&[data, one], along)?;
    // From the end is from that of the data, not of what it is made longer by.
    let places = b.filled(places, of_places, Behind::Zeros)?;
    let places = b.cast(places, DataType::I64)?;
    let zero = b.scalar(DataType::I64, 0.0)?;
    let back = b.binary(B::Less, places, zero)?;
    let room = b.shape(places)[of_places.axis];
    let numbers = b.integers(&(0..room as i64).collect::<Vec<_>>())?;
    let numbers =
        b.reshape(numbers, [&[room][..], &vec![1; rank - of_places.axis - 1]].concat())?;
    let count = b.single(of_places.count)?;
    let there = b.binary(B::Less, numbers, count)?;
    let places = match by_elements {
        true => {
            let moved = b.add(places, extent)?;
            let places = b.select(back, moved, places)?;
            b.select(there, places, beyond)?
        }
        false => {
            // Only the first number of a place is one along the axis that is made longer.
            let others = b.shape(places)[rank - 1];
            let first: Vec<bool> = (0..others).map(|own| own == 0).collect();
            let first = b.constant(Tensor::from_elements([others], &first)?);
            let moved = b.add(places, extent)?;
            let is_back = b.binary(B::And, back, first)?;
            let places = b.select(is_back, moved, places)?;
            let off = b.select(first, beyond, zero)?;
            b.select(there, places, off)?
        }
    };
    let mut asked = node.again();
    asked.inputs = vec![Some(wide), Some(places), Some(updates)];
    if by_elements {
        asked.set_int("axis", along as i64);
    }
    let found = match by_elements {
        true => scatter_elements(b, &mut asked)?,
        false => scatter_nd(b, &mut asked)?,
    };
    let [found] = found[..] else { return Ok(None) };
    let found = b.narrow(found, along, 0, shape[along])?;
    if let Some(part) = of_data {
        b.set_spread_extent(found, part.axis, part.count);
    }
    Ok(Some(found))
}
