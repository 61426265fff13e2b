//! Operators whose shape is computed of how many elements a run finds: `ConstantOfShape`, `Expand`, `Range`, `Reshape`,
//! `Slice` and `Tile` with a number that nobody declares, but that lies below a known one (`ranges.rs`). Their results have
//! room for the most that there may be, and a part of it is there (`sized.rs`).

use super::decided;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::Node;
use crate::onnx::shorthands::{Step, axis};
use crate::onnx::sized::{Behind, Part};
use hone_ops::{BinaryFunction as B, Gather, Tile};
use hone_types::DataType;

/// Elements along an axis above which a number is no bound.
const LONGEST: i64 = 16_777_216;

/// Extents that a run decides of one shape, at most.
const MOST_PARTS: usize = 2;

/// A shape of which a run decides one extent, or two.
pub(in crate::onnx) struct CountedShape {
    /// The extents; along a part's axis the most that it may be.
    pub room: Vec<usize>,
    /// Which ones a run decides, and what they are.
    pub parts: Vec<Part>,
}

/// The shape that an input says, where it is not known and all of it is bounded; `None` of others, and where a run
/// decides more than two extents. With `-1` nothing is known of an extent, and it is given as `open`.
pub(in crate::onnx) fn shape_of_input(
    b: &mut Builder,
    node: &Node,
    place: usize,
) -> Result<Option<CountedShape>, NodeError> {
    if !decided::is_open(b, node, place) || b.rank(node.input(place)?) != 1 {
        return Ok(None);
    }
    let list = node.input(place)?;
    let Some(ranges) = b.ranges_or_any(list) else { return Ok(None) };
    let open: Vec<usize> = (0..ranges.len()).filter(|own| ranges[*own].only().is_none()).collect();
    let room: Option<Vec<usize>> =
        ranges.iter().map(|own| usize::try_from(own.most).ok()).collect();
    let Some(mut room) = room.filter(|_| (1..=MOST_PARTS).contains(&open.len())) else {
        return Ok(None);
    };
    let mut parts = Vec::with_capacity(open.len());
    for axis in open {
        let count = b.narrow(list, 0, axis, 1)?;
        let count = b.single(count)?;
        let mut count = b.with_scalar(B::Maximum, count, 0.0)?;
        if ranges[axis].most > LONGEST
            && let Some(most) = b.default_room(list)
        {
            count = b.held_to_room(count, most)?;
            room[axis] = most;
        }
        parts.push(Part { axis, count });
    }
    Ok(Some(CountedShape { room, parts }))
}

/// `value` everywhere in a shape of which a run decides an extent, or two.
pub(super) fn constant(
    b: &mut Builder,
    node: &Node,
    value: Operand,
) -> Result<Option<Operand>, NodeError> {
    let Some(CountedShape { room, parts }) = shape_of_input(b, node, 0)? else { return Ok(None) };
    let value = b.reshape(value, vec![])?;
    // Not a constant: all elements would be those of any run.
    let value = b.as_computed(value);
    let all = b.expand(value, room)?;
    b.set_parts(all, &parts);
    Ok(Some(all))
}

/// `Expand` to a shape of which a run decides an extent or two, along axes that the operand does not have or that are 1 there.
/// Where the operand's own extent is that of the room, the run's has to be the same.
pub(super) fn expand(
    b: &mut Builder,
    node: &Node,
    x: Operand,
) -> Result<Option<Operand>, NodeError> {
    let Some(CountedShape { mut room, parts }) = shape_of_input(b, node, 1)? else {
        return Ok(None);
    };
    let from = b.shape(x);
    // Both are seen from the last axis on.
    let rank = room.len().max(from.len());
    let (ahead, missing) = (rank - room.len(), rank - from.len());
    room.splice(0..0, vec![1; ahead]);
    let is_decided = |axis: usize| parts.iter().any(|part| part.axis + ahead == axis);
    for (place, extent) in from.iter().enumerate() {
        let wanted = &mut room[place + missing];
        if *wanted == 1 && !is_decided(place + missing) {
            *wanted = *extent;
        }
    }
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        let along = part.axis + ahead;
        let own = along.checked_sub(missing).map_or(1, |at| from[at]);
        let has_part = along.checked_sub(missing).and_then(|at| b.filled_part(x, at)).is_some();
        if own != 1 && !has_part {
            // All of the operand is there: the number has to be its extent, or 1, whatever there is room for.
            room[along] = own;
            let same = b.with_scalar(B::Equal, part.count, own as f64)?;
            let one = b.with_scalar(B::Equal, part.count, 1.0)?;
            let fits = b.binary(B::Or, same, one)?;
            b.require(fits, "a shape to expand to does not fit the operand")?;
            continue;
        }
        if own != 1 && own != room[along] {
            return Ok(None);
        }
        kept.push((Part { axis: along, ..part }, own));
    }
    let all = b.expand(x, room)?;
    if let [(part, 1)] = kept[..] {
        let axis = part.axis;
        b.note_repeated(all, axis, x)?;
    }
    let kept: Vec<Part> = kept.into_iter().map(|(part, _)| part).collect();
    b.set_parts(all, &kept);
    Ok(Some(all))
}

/// `Tile` by numbers of which a run decides one: as many copies as there is room for.
pub(super) fn tile(b: &mut Builder, node: &Node, x: Operand) -> Result<Option<Operand>, NodeError> {
    let Some(CountedShape { room: repeats, parts }) = shape_of_input(b, node, 1)? else {
        return Ok(None);
    };
    let shape = b.shape(x);
    let [part] = parts[..] else { return Ok(None) };
    if shape.len() != repeats.len() {
        return Ok(None);
    }
    let is_one = |(axis, repeats): (usize, &usize)| axis == part.axis || *repeats == 1;
    let is_repeated = shape[part.axis] == 1 && repeats.iter().enumerate().all(is_one);
    let all = b.apply(Tile { repeats }, &[x])?;
    let all = b.as_computed(all);
    let count = match shape[part.axis] {
        1 => part.count,
        extent => b.times(part.count, extent)?,
    };
    if is_repeated {
        b.note_repeated(all, part.axis, x)?;
    }
    b.set_spread_extent(all, part.axis, count);
    Ok(Some(all))
}

/// First, limit and step of a range; a limit that the network computes as a float is rounded up where steps go up.
fn bounds_of_range(b: &mut Builder, node: &Node) -> Result<[Operand; 3], NodeError> {
    let [first, mut limit, step] = [node.input(0)?, node.input(1)?, node.input(2)?];
    let goes_up = b.ranges(step).is_some_and(|own| own.iter().all(|by| by.least > 0));
    if goes_up
        && b.ranges(limit).is_none()
        && let Some(whole) = b.rounded_up(limit)?
    {
        limit = whole;
    }
    Ok([first, limit, step])
}

/// `start + index * step` for as many indices as a run says, of which the most are known, or which the network measures
/// out.
pub(super) fn range(
    b: &mut Builder,
    node: &Node,
    longest: f64,
) -> Result<Option<Operand>, NodeError> {
    let mut bounds = Vec::with_capacity(3);
    let operands = bounds_of_range(b, node)?;
    for operand in operands {
        let Some(ranges) = b.ranges_or_any(operand) else { return Ok(None) };
        let [range] = ranges[..] else { return Ok(None) };
        bounds.push((b.single(operand)?, range));
    }
    let [(mut start, first), (mut limit, last), (step, by)] = bounds[..] else { return Ok(None) };
    let Some(by) = by.only().filter(|own| *own != 0) else { return Ok(None) };
    // The most that the distance may be, in the step's direction.
    let distance = match by > 0 {
        true => last.most.checked_sub(first.least),
        false => first.most.checked_sub(last.least),
    };
    let room = distance.map(|own| own.max(0).unsigned_abs().div_ceil(by.unsigned_abs()));
    let bounded = room.filter(|own| *own as f64 <= longest);
    let open = operands[..2].iter().filter_map(|own| b.default_room(*own));
    let open = open.max().filter(|own| *own as f64 <= longest);
    let (bounded, Some(room)) = (bounded.is_some(), bounded.map(|own| own as usize).or(open))
    else {
        return Ok(None);
    };
    if !bounded {
        // So that distances stay numbers of 64 bits.
        let far = (1i64 << 61) as f64;
        (start, limit) =
            (decided::clamped(b, start, -far, far)?, decided::clamped(b, limit, -far, far)?);
    }
    let ahead = if by > 0 { b.subtract(limit, start)? } else { b.subtract(start, limit)? };
    let ahead = b.with_scalar(B::Maximum, ahead, 0.0)?;
    let length = b.integers(&[by.saturating_abs()])?;
    let length = b.reshape(length, vec![])?;
    let rest = b.with_scalar(B::Subtract, length, 1.0)?;
    let ahead = b.add(ahead, rest)?;
    let mut count = b.divide(ahead, length)?;
    if !bounded {
        count = b.held_to_room(count, room)?;
    }
    let places = decided::counted(b, room)?;
    let steps = b.multiply(places, step)?;
    let values = b.add(start, steps)?;
    let values = b.cast(values, b.dtype(node.input(0)?))?;
    let values = b.as_computed(values);
    b.set_spread_extent(values, 0, count);
    Ok(Some(values))
}

/// The target of a `Reshape` of which a run decides an extent.
pub(in crate::onnx) struct Target {
    /// The list, as an operator with known extents takes it.
    pub list: Vec<i64>,
    /// Which extent a run decides, and what it is to be.
    pub place: usize,
    /// See `place`.
    pub wanted: Operand,
}

/// The target of a `Reshape`, where one extent of it is not known, but bounded: -1 in its place, or, where -1 stands
/// elsewhere and a part of the operand is there, all of the room.
pub(in crate::onnx) fn target(b: &mut Builder, node: &Node) -> Result<Option<Target>, NodeError> {
    if !decided::is_open(b, node, 1) {
        return Ok(None);
    }
    let (x, input) = (node.input(0)?, node.input(1)?);
    let Some(ranges) = b.ranges(input) else { return Ok(None) };
    let open: Vec<usize> = (0..ranges.len()).filter(|own| ranges[*own].only().is_none()).collect();
    let [place] = open[..] else { return Ok(None) };
    let mut list: Vec<i64> = ranges.iter().filter_map(|own| own.only()).collect();
    let follows = list.contains(&-1);
    if ranges[place].least < 0 || follows && !b.is_filled(x) {
        return Ok(None);
    }
    list.insert(place, if follows { ranges[place].most } else { -1 });
    let flat = b.reshape(input, vec![ranges.len()])?;
    let wanted = b.narrow(flat, 0, place, 1)?;
    let wanted = b.single(wanted)?;
    Ok(Some(Target { list, place, wanted }))
}

/// What a `Slice` by one cuts of its axis `along`, where a run decides a bound of it: `part` is of the operand, where not
/// all of it is there. `None` where a bound is neither known nor bounded.
///
/// # Errors
/// What an operator refuses.
pub(in crate::onnx) fn cut(
    b: &mut Builder,
    x: Operand,
    part: Option<Part>,
    along: usize,
    (start, end): (Operand, Operand),
) -> Result<Option<Operand>, NodeError> {
    let extent = b.shape(x)[along];
    let listed = b.listed_bounds(start, end).filter(|_| part.is_none());
    if let Some(length) = listed.as_ref().and_then(|own| equally_long(own, extent)) {
        let first = b.reshape(start, vec![1])?;
        let places = decided::counted(b, length)?;
        let places = b.add(places, first)?;
        return b.apply(Gather { axis: along }, &[x, places]).map(Some);
    }
    let (Some(first), Some(last)) = (b.ranges_or_any(start), b.ranges_or_any(end)) else {
        return Ok(None);
    };
    let ([first], [last]) = (&first[..], &last[..]) else { return Ok(None) };
    let count = match part {
        Some(part) => b.single(part.count)?,
        None => b.scalar(DataType::I64, extent as f64)?,
    };
    let place = |b: &mut Builder, bound: Operand| -> Step {
        let bound = b.single(bound)?;
        // Nothing beyond the ends, so that sums stay small.
        let bound = b.with_scalar(B::Maximum, bound, -(extent as f64) - 1.0)?;
        let bound = b.with_scalar(B::Minimum, bound, extent as f64)?;
        let back = b.with_scalar(B::Less, bound, 0.0)?;
        let moved = b.add(bound, count)?;
        let own = b.select(back, moved, bound)?;
        let own = b.with_scalar(B::Maximum, own, 0.0)?;
        b.binary(B::Minimum, own, count)
    };
    let (from, to) = (place(b, start)?, place(b, end)?);
    let left = b.subtract(to, from)?;
    let left = b.with_scalar(B::Maximum, left, 0.0)?;
    let room = match (first.least >= 0, last.least >= 0) {
        (true, true) => last.most.min(extent as i64) - first.least.min(extent as i64),
        // From so many before the end on.
        (false, _) if first.most < 0 => first.least.saturating_neg().min(extent as i64),
        _ => extent as i64,
    };
    // A bound from the end is not known as one.
    let longest = listed.filter(|own| own.iter().all(|(start, end)| *start >= 0 && *end >= 0));
    let longest =
        longest.and_then(|own| own.iter().map(|(start, end)| end.saturating_sub(*start)).max());
    let room = longest.map_or(room, |longest| room.min(longest));
    let places = decided::counted(b, room.max(0) as usize)?;
    let indices = b.add(places, from)?;
    let indices = b.with_scalar(B::Minimum, indices, extent.saturating_sub(1) as f64)?;
    let x = match part {
        Some(part) => b.filled(x, part, Behind::Zeros)?,
        None => x,
    };
    if extent == 0 {
        return Ok(None);
    }
    let found = b.apply(Gather { axis: along }, &[x, indices])?;
    b.set_spread_extent(found, along, left);
    Ok(Some(found))
}

/// The length of slices that all have the same, and lie inside of an axis.
fn equally_long(bounds: &[(i64, i64)], extent: usize) -> Option<usize> {
    let (start, end) = bounds.first()?;
    let length = end.checked_sub(*start).filter(|own| *own >= 0)?;
    let alike = bounds.iter().all(|(start, end)| {
        *start >= 0 && *end <= extent as i64 && end.checked_sub(*start) == Some(length)
    });
    usize::try_from(length).ok().filter(|_| alike)
}

/// `Slice` of one axis, by one, with a bound that a run decides and nobody declares.
pub(super) fn slice(
    b: &mut Builder,
    node: &Node,
    x: Operand,
    named: Option<&[i64]>,
) -> Result<Option<Operand>, NodeError> {
    let (start, end) = (node.input(1)?, node.input(2)?);
    let along = match named {
        None => 0,
        Some([along]) => *along,
        Some(_) => return Ok(None),
    };
    let is_one = |own: Operand| b.tensor_type(own).elements() == 1;
    if b.tensor(start).is_some() && b.tensor(end).is_some() || !is_one(start) || !is_one(end) {
        return Ok(None);
    }
    let along = axis(along, b.rank(x))?;
    cut(b, x, None, along, (start, end))
}
