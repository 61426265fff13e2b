//! `Concat` and `ConcatFromSequence` of operands of which a run decides how much is there, along the axis of the parts.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::shorthands::{Step, axis};
use super::sized::{Behind, Part};
use crate::NodeError;
use hone_ops::{BinaryFunction as B, CumulativeSum, Gather, ReduceFunction};
use hone_types::DataType;

/// Pieces up to which the one that an element lies in is found by comparing with each of them in turn.
const FEW: usize = 8;

/// `ConcatFromSequence` of tensors some of which are there in part along that axis; `None` where all are there.
///
/// # Errors
/// Parts along another axis, or a new one.
pub(super) fn joined_items(b: &mut Builder, node: &Node) -> Result<Option<Operand>, NodeError> {
    let Some(items) = node.optional(0).and_then(|own| b.items(own)) else { return Ok(None) };
    for item in &items {
        b.settle(*item)?;
        b.check_single_part(*item, "an element of its sequence")?;
    }
    let parts = items.iter().enumerate();
    let parts: Vec<(usize, Part)> =
        parts.filter_map(|(place, own)| Some((place, b.part(*own)?))).collect();
    if parts.is_empty() {
        return Ok(None);
    }
    let mut asked = node.again();
    let made = match asked.flag("new_axis", false)? {
        true => None,
        false => {
            asked.inputs = items.into_iter().map(Some).collect();
            joined(b, &mut asked, &parts)?
        }
    };
    let refused = || NodeError::UndecidedSize { what: "an element of its sequence".into() };
    made.ok_or_else(refused).map(Some)
}

/// What is joined, one after the other.
#[derive(Default)]
struct Pieces {
    /// The elements of each.
    operands: Vec<Operand>,
    /// Where each begins among all of these.
    begins: Vec<usize>,
    /// Whether the elements of each are those of its operand, and not one of it again and again.
    moves: Vec<bool>,
    /// How many there are of each, as `i64` scalars.
    counts: Vec<Operand>,
    /// For how many there is room in the result.
    room: usize,
}

/// `Concat` along the axis of which parts are there: the parts without gaps; `None` where it is along another one. Along a
/// second axis each may be there in part, as much of each.
///
/// # Errors
/// Parts along several other axes, and what an operator refuses.
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
    let other = other_part(b, &operands, along, parts)?;
    let mut pieces = Pieces::default();
    let mut end = 0;
    for (place, operand) in operands.iter().enumerate() {
        let part = parts.iter().find(|(own, part)| *own == place && part.axis == along);
        let room = b.shape(*operand)[along];
        let row = part.and_then(|_| b.repeated_along(*operand, along));
        let own = match (row, part) {
            (Some(row), _) => row,
            // Elements behind the part are never chosen.
            (None, Some(_)) if b.spread.contains(operand) => *operand,
            (None, Some((_, part))) => b.filled(*operand, *part, Behind::Zeros)?,
            (None, None) => *operand,
        };
        pieces.operands.push(own);
        pieces.begins.push(end);
        pieces.moves.push(row.is_none());
        pieces.counts.push(match part {
            Some((_, part)) => b.single(part.count)?,
            None => b.scalar(DataType::I64, room as f64)?,
        });
        end += b.shape(own)[along];
        pieces.room += room;
    }
    let measured: Vec<Operand> = parts.iter().map(|(_, part)| part.count).collect();
    let most = b.joined_room(&measured, pieces.room).filter(|_| parts.len() == operands.len());
    pieces.room = most.unwrap_or(pieces.room);
    let all = b.concat(&pieces.operands, along)?;
    let (from, mut count) = match operands.len() {
        ..=FEW => places_in_turn(b, &pieces)?,
        _ => places_by_table(b, &pieces)?,
    };
    if most.is_some() {
        count = b.held_to_room(count, pieces.room)?;
    }
    b.note_count(count, pieces.room);
    let last = b.shape(all)[along].saturating_sub(1) as f64;
    let from = b.with_scalar(B::Minimum, from, last)?;
    let found = b.apply(Gather { axis: along }, &[all, from])?;
    let own = Part { axis: along, count };
    b.set_parts(found, &[&[own][..], other.as_slice()].concat());
    Ok(Some(found))
}

/// The part of the result along another axis than that of joining: those of the operands, to which a run is held that they are
/// equal.
fn other_part(
    b: &mut Builder,
    operands: &[Operand],
    along: usize,
    parts: &[(usize, Part)],
) -> Result<Option<Part>, NodeError> {
    let mut others = parts.iter().filter(|(_, part)| part.axis != along);
    let Some((_, first)) = others.next().copied() else { return Ok(None) };
    if others.any(|(_, part)| part.axis != first.axis) {
        return Err(NodeError::UndecidedSize {
            what: "two of its inputs, along different axes,".into(),
        });
    }
    for (place, operand) in operands.iter().enumerate() {
        let own = parts.iter().find(|(own, part)| *own == place && part.axis == first.axis);
        let count = match own {
            Some((_, part)) if part.count == first.count => continue,
            Some((_, part)) => b.single(part.count)?,
            None => {
                let extent = b.shape(*operand)[first.axis];
                b.scalar(DataType::I64, extent as f64)?
            }
        };
        let wanted = b.single(first.count)?;
        let same = b.binary(B::Equal, wanted, count)?;
        b.require(same, "what is joined differs in size")?;
    }
    Ok(Some(first))
}

/// For each element of the result its place among all pieces' elements, and how many there are.
fn places_in_turn(b: &mut Builder, pieces: &Pieces) -> Result<(Operand, Operand), NodeError> {
    let places = b.integers(&(0..pieces.room as i64).collect::<Vec<_>>())?;
    let mut from = b.with_scalar(B::Multiply, places, 0.0)?;
    let mut start = b.scalar(DataType::I64, 0.0)?;
    for ((begin, moves), count) in pieces.begins.iter().zip(&pieces.moves).zip(&pieces.counts) {
        let end = b.add(start, *count)?;
        let after = b.binary(B::GreaterEqual, places, start)?;
        let until = b.binary(B::Less, places, end)?;
        let inside = b.binary(B::And, after, until)?;
        let own = match moves {
            true => {
                let own = b.subtract(places, start)?;
                b.with_scalar(B::Add, own, *begin as f64)?
            }
            false => b.scalar(DataType::I64, *begin as f64)?,
        };
        from = b.select(inside, own, from)?;
        start = end;
    }
    Ok((from, start))
}

/// The same, where there are many pieces: a place lies in the piece before which as many end as begin after it.
fn places_by_table(b: &mut Builder, pieces: &Pieces) -> Result<(Operand, Operand), NodeError> {
    let number = pieces.counts.len();
    let mut counts = Vec::with_capacity(number);
    for count in &pieces.counts {
        counts.push(b.reshape(*count, vec![1])?);
    }
    let counts = b.concat(&counts, 0)?;
    let sums =
        CumulativeSum { axis: 0, exclusive: false, reverse: false, product: false, in_rows: false };
    let ends = b.apply(sums, &[counts])?;
    let places = b.integers(&(0..pieces.room as i64).collect::<Vec<_>>())?;
    let column = b.reshape(places, vec![pieces.room, 1])?;
    let is_behind = b.binary(B::GreaterEqual, column, ends)?;
    let is_behind = b.cast(is_behind, DataType::I64)?;
    let piece = b.reduce(ReduceFunction::Sum, is_behind, vec![1], false)?;
    let piece: Step = b.with_scalar(B::Minimum, piece, (number - 1) as f64);
    let piece = piece?;
    let begins: Vec<i64> = pieces.begins.iter().map(|begin| *begin as i64).collect();
    let begins = b.integers(&begins)?;
    let moves: Vec<i64> = pieces.moves.iter().map(|moves| i64::from(*moves)).collect();
    let moves = b.integers(&moves)?;
    let starts = b.subtract(ends, counts)?;
    let [begin, moves, start] =
        [begins, moves, starts].map(|list| b.apply(Gather { axis: 0 }, &[list, piece]));
    let own = b.subtract(places, start?)?;
    let own = b.multiply(own, moves?)?;
    let from = b.add(begin?, own)?;
    let all = b.narrow(ends, 0, number - 1, 1)?;
    let all = b.reshape(all, Vec::new())?;
    Ok((from, all))
}
