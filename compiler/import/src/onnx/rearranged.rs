//! `Shape`, `Slice`, `Split` and `Reshape` of operands of which a run decides how much is there, where their results are made of
//! other nodes than usual.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::operators::counted::cut;
use super::shorthands::{Step, axis};
use super::sized::{Behind, Part};
use crate::NodeError;
use hone_ops::BinaryFunction as B;
use hone_types::DataType;

/// `Shape`, with what is there in place of the room.
pub(super) fn shape_of(b: &mut Builder, node: &mut Node, parts: &[(usize, Part)]) -> Step {
    let shape = b.shape(node.input(0)?);
    let rank = shape.len() as i64;
    let place = |own: i64| (if own < 0 { own + rank } else { own }).clamp(0, rank) as usize;
    let (start, end) = (place(node.int_or("start", 0)?), place(node.int_or("end", rank)?));
    let mut extents = Vec::new();
    for (own, extent) in shape.iter().enumerate().take(end).skip(start) {
        extents.push(match parts.iter().find(|(_, part)| part.axis == own) {
            Some((_, part)) => {
                let count = b.cast(part.count, DataType::I64)?;
                b.reshape(count, vec![1])?
            }
            None => b.integers(&[*extent as i64])?,
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
    if parts.iter().any(|(place, _)| *place > 0) {
        return Ok(None);
    }
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
    let part = parts.iter().map(|(_, part)| *part).find(|part| part.axis == along);
    let Some(part) = part.filter(|_| is_one && steps.is_none_or(|own| own == [1])) else {
        return Ok(None);
    };
    let known = [start, end].map(|own| b.tensor(own).map(|own| own.to_i64()));
    if known.iter().all(|own| own.as_ref().is_some_and(|own| own.iter().all(|own| *own >= 0))) {
        return Ok(None);
    }
    let found = cut(b, x, Some(part), along, (start, end))?;
    let other = parts.iter().map(|(_, part)| *part).find(|part| part.axis != along);
    if let (Some(found), Some(other)) = (found, other) {
        b.set_second_part(found, other);
    }
    Ok(found)
}

/// Before a `Split` into constant sizes along the axis of which a part is there: the run is held to as much as all sizes take,
/// and the node reads that alone.
///
/// # Errors
/// What an operator refuses.
pub(super) fn held_to_sizes(b: &mut Builder, node: &mut Node) -> Result<(), NodeError> {
    let Some(x) = node.optional(0) else { return Ok(()) };
    let Some(part) = b.part(x) else { return Ok(()) };
    let mut asked = node.again();
    let along = axis(asked.int_or("axis", 0)?, b.rank(x))?;
    let sizes = match asked.optional(1).filter(|_| asked.opset >= 13) {
        Some(given) => b.tensor(given).map(|known| known.to_i64()),
        None => asked.ints("split")?,
    };
    let Some(sizes) = sizes.filter(|_| along == part.axis) else { return Ok(()) };
    let all =
        sizes.iter().try_fold(0usize, |sum, own| sum.checked_add(usize::try_from(*own).ok()?));
    let Some(all) = all.filter(|all| *all <= b.shape(x)[along]) else { return Ok(()) };
    let same = b.with_scalar(B::Equal, part.count, all as f64)?;
    b.require(same, format!("what is split has not the extent {all} that its parts take"))?;
    let whole = b.filled(x, part, Behind::Zeros)?;
    node.inputs[0] = Some(b.narrow(whole, along, 0, all)?);
    Ok(())
}

/// `Flatten`, and `Reshape` to `[-1, …]`, where axes before the part's become one with it: what is there moves to the front,
/// without gaps. `None` of others.
///
/// # Errors
/// What an operator refuses.
pub(super) fn merged(
    b: &mut Builder,
    node: &mut Node,
    parts: &[(usize, Part)],
) -> Result<Option<Operand>, NodeError> {
    let [(0, part)] = parts else { return Ok(None) };
    let x = node.input(0)?;
    let shape = b.shape(x);
    let product = |own: &[usize]| own.iter().product::<usize>();
    if product(&shape[..part.axis]) <= 1 || shape.contains(&0) || b.narrow_type(x).is_some() {
        return Ok(None);
    }
    let Some(behind) = extents_behind_first(b, node, &shape)? else { return Ok(None) };
    let inner = product(&behind);
    let along = (part.axis + 1..=shape.len()).find(|along| product(&shape[*along..]) == inner);
    let Some(along) = along else { return Ok(None) };
    let all = product(&shape[..along]);
    // What `NonZero` and its like give has no gaps.
    let own = if b.spread.contains(&x) { b.gapless(x, &[*part])? } else { x };
    let own = b.reshape(own, [&[all][..], &behind].concat())?;
    let count = b.single(part.count)?;
    let count = b.times(count, all / shape[part.axis])?;
    b.set_spread_extent(own, 0, count);
    Ok(Some(own))
}

/// The extents that follow the first one, which is what is left; `None` where another one is.
fn extents_behind_first(
    b: &Builder,
    node: &mut Node,
    shape: &[usize],
) -> Result<Option<Vec<usize>>, NodeError> {
    if node.operator == "Flatten" {
        let rank = shape.len() as i64;
        let along = node.int_or("axis", 1)?;
        let along = (if along < 0 { along + rank } else { along }).clamp(0, rank) as usize;
        return Ok(Some(vec![shape[along..].iter().product()]));
    }
    let Some(list) = node.optional(1).and_then(|own| b.tensor(own)) else { return Ok(None) };
    let list = list.to_i64();
    let Some((-1, behind)) = list.split_first().map(|(first, behind)| (*first, behind)) else {
        return Ok(None);
    };
    let behind = behind.iter().map(|own| usize::try_from(*own).ok().filter(|own| *own > 0));
    Ok(behind.collect())
}
