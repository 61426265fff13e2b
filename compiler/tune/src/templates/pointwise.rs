//! One map over contiguous elements: flat, in vectors.

use super::parallel::spread;
use super::{unfit, vector_width};
use crate::Machine;
use crate::access::{Access, access, is_reduction, loads, value, vector_axis};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Iterator, VarId};

/// Elements of a task of a flat loop.
const CHUNK: usize = 4096;

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
