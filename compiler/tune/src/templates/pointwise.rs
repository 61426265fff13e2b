//! One map over contiguous elements: flat, in vectors.

use super::outer::spread;
use super::{unfit, vector_width};
use crate::Machine;
use crate::access::{Use, is_reduction, loads, usage, value, vector_axis};
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
        if let Some(place) = read_across(schedule, block, &loops, machine) {
            write_tiles(schedule, &loops, place, machine, decisions)?;
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

/// The place of the axis along which an operand lies, where it is another than the last: a
/// transposition of extents of several vectors.
fn read_across(
    schedule: &Schedule,
    block: BlockId,
    loops: &[VarId],
    machine: &Machine,
) -> Option<usize> {
    let own = &schedule.program().blocks[block];
    let (last, others) = own.iterators.split_last()?;
    let long = |extent: usize| extent >= 2 * machine.lanes;
    if loops.len() != own.iterators.len() || !long(last.extent) {
        return None;
    }
    let reads = loads(value(own));
    reads.into_iter().find_map(|load| {
        let along = |other: &Iterator| usage(load, other.var) == Use::Unit && long(other.extent);
        (usage(load, last.var) == Use::Strided).then(|| others.iter().position(along)).flatten()
    })
}

/// Goes through squares of both axes, so that the lines that are read are used up while they are
/// near.
fn write_tiles(
    schedule: &mut Schedule,
    loops: &[VarId],
    place: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let Some((last, others)) = loops.split_last() else { return Ok(()) };
    let mut outer: Vec<VarId> = others.to_vec();
    let read = outer.remove(place);
    let most = schedule.extent(read).unwrap_or(1);
    let side = machine.lanes;
    let side = decisions.factor("side", most, &[side / 2, side, 2 * side, 4 * side], side);
    let (tiles, rows) = schedule.split(read, side)?;
    let (columns, lanes) = schedule.split(*last, machine.lanes)?;
    outer.extend([tiles, columns]);
    schedule.reorder(&[outer.clone(), vec![rows, lanes]].concat())?;
    schedule.vectorize(lanes)?;
    spread(schedule, &outer, decisions)
}
