//! One map over contiguous elements: flat, in vectors; several rows for each vector of columns where much is computed of the
//! columns alone.

use super::parallel::spread;
use super::{unfit, vector_width};
use crate::Machine;
use crate::access::{Access, access, is_reduction, loads, value, vector_axis};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BinaryOp, BlockId, Expr, Iterator, UnaryOp, VarId};

/// Elements of a task of a flat loop.
const CHUNK: usize = 4096;

/// Rows for which what depends on columns alone is computed once.
const ROWS: usize = 32;

/// Vectorizes the last axis of each map and spreads the others.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let blocks = schedule.program().blocks_in_order();
    if blocks.iter().any(|block| is_reduction(&schedule.program().blocks[*block])) {
        return Err(unfit("pointwise", "a block reduces"));
    }
    for block in blocks {
        let loops = schedule.loops(block);
        let Some((last, outer)) = loops.split_last() else { continue };
        if vector_axis(&schedule.program().blocks[block]) != Some(loops.len() - 1) {
            spread(schedule, &loops, decisions)?;
            continue;
        }
        if let Some(axis) = read_across(schedule, block, &loops, machine) {
            schedule_tiles(schedule, &loops, axis, machine, decisions)?;
            continue;
        }
        if computes_along(schedule, block, outer.len(), loops.len()) {
            schedule_columns(schedule, &loops, machine, decisions)?;
            continue;
        }
        let extent = schedule.extent(*last).unwrap_or(1);
        let mut outer = outer.to_vec();
        let mut last = *last;
        let chunk = match extent > 2 * CHUNK {
            true => decisions.factor("chunk", extent, &[1024, 2048, 8192, 16384], CHUNK),
            false => CHUNK,
        };
        if extent > 2 * CHUNK {
            let (chunks, inner) = schedule.split(last, chunk)?;
            outer.push(chunks);
            last = inner;
        }
        let width = vector_width(schedule, block, machine, decisions);
        if extent > width {
            last = schedule.split(last, width)?.1;
        }
        schedule.vectorize(last)?;
        spread(schedule, &outer, decisions)?;
    }
    Ok(())
}

/// The index of the axis along which an operand is contiguous, where it is another than the last: a
/// transposition of extents of several vectors.
fn read_across(
    schedule: &Schedule,
    block: BlockId,
    loops: &[VarId],
    machine: &Machine,
) -> Option<usize> {
    let definition = &schedule.program().blocks[block];
    let (last, others) = definition.iterators.split_last()?;
    let long = |extent: usize| extent >= 2 * machine.lanes;
    if loops.len() != definition.iterators.len() || !long(last.extent) {
        return None;
    }
    let reads = loads(value(definition));
    reads.into_iter().find_map(|load| {
        let contiguous =
            |other: &Iterator| access(load, other.var) == Access::Contiguous && long(other.extent);
        (access(load, last.var) == Access::Strided)
            .then(|| others.iter().position(contiguous))
            .flatten()
    })
}

/// Whether much is computed of the last axis alone, as weights and positions of an interpolation along it, that is the same in
/// all rows.
fn computes_along(schedule: &Schedule, block: BlockId, outer: usize, loops: usize) -> bool {
    let definition = &schedule.program().blocks[block];
    let Some((last, others)) = definition.iterators.split_last() else { return false };
    let has_rows = others.last().is_some_and(|rows| rows.extent > 1);
    if outer == 0 || loops != definition.iterators.len() || !has_rows {
        return false;
    }
    let mut found = false;
    value(definition).visit(&mut |part| {
        found |= part.mentions(last.var)
            && loads(part).is_empty()
            && is_slow_in_lanes(part)
            && !others.iter().any(|other| part.mentions(other.var));
    });
    found
}

/// Whether an index or a number computed of one takes many instructions in vectors: quotients of 64 bits, which processors
/// have no instruction for, and roundings and conversions of `f64`.
fn is_slow_in_lanes(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(BinaryOp::FloorDivide | BinaryOp::Modulo, _, divisor) => {
            divisor.as_integer().is_none_or(|divisor| divisor.count_ones() != 1)
        }
        Expr::Unary(UnaryOp::Floor | UnaryOp::Ceil, _) => true,
        _ => false,
    }
}

/// Some rows for each vector of columns, so that what is computed of the columns alone is computed once for all of them.
fn schedule_columns(
    schedule: &mut Schedule,
    loops: &[VarId],
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let [outer @ .., rows, last] = loops else { return Ok(()) };
    let extent = schedule.extent(*rows).unwrap_or(1);
    let together = decisions.factor("rows", extent, &[4, 8, 16, 32, 64], ROWS.min(extent));
    let (tiles, rows) = schedule.split(*rows, together)?;
    let width = schedule.extent(*last).unwrap_or(1).min(machine.lanes);
    let (columns, lanes) = schedule.split(*last, width)?;
    let outer = [outer, &[tiles, columns]].concat();
    schedule.reorder(&[&outer[..], &[rows, lanes]].concat())?;
    schedule.vectorize(lanes)?;
    spread(schedule, &outer, decisions)
}

/// Cuts both axes into square tiles, so that all elements of a line are used while it is in cache.
fn schedule_tiles(
    schedule: &mut Schedule,
    loops: &[VarId],
    axis: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let Some((last, others)) = loops.split_last() else { return Ok(()) };
    let mut outer: Vec<VarId> = others.to_vec();
    let read = outer.remove(axis);
    let maximum = schedule.extent(read).unwrap_or(1);
    let side = machine.lanes;
    let side = decisions.factor("side", maximum, &[side / 2, side, 2 * side, 4 * side], side);
    let (tiles, rows) = schedule.split(read, side)?;
    let (columns, lanes) = schedule.split(*last, machine.lanes)?;
    outer.extend([tiles, columns]);
    schedule.reorder(&[outer.clone(), vec![rows, lanes]].concat())?;
    schedule.vectorize(lanes)?;
    spread(schedule, &outer, decisions)
}
