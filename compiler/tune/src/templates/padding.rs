//! One map that is a constant outside a box: each row is filled first, then the inside is written
//! without tests, in vectors that run over as many of the innermost axes as they need.

use super::parallel::spread;
use super::unfit;
use crate::Machine;
use crate::access::value;
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Expr, VarId};

/// Elements of a row at minimum, where there are as many and nothing else is decided.
const ROW: usize = 256;

/// Vectors at a time in a row.
const VECTORS: usize = 4;

/// Separates the border from the inside, row by row.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let blocks = schedule.program().blocks_in_order();
    let [block] = blocks[..] else { return Err(unfit("padding", "not one map")) };
    if !matches!(value(&schedule.program().blocks[block]), Expr::Select(..)) {
        return Err(unfit("padding", "nothing is chosen"));
    }
    let loops = schedule.loops(block);
    let row = decisions.number("row", [64, 1024, 4096], ROW);
    let rows = row_start(schedule, &loops, row);
    let at = *loops.get(rows).ok_or_else(|| unfit("padding", "there are no rows"))?;
    let fill = schedule.decompose_padding(block, at)?;
    for stage in [fill, block] {
        schedule_row(schedule, stage, rows, machine)?;
    }
    spread(schedule, &loops[..rows], decisions)
}

/// The first of the loops over a row.
fn row_start(schedule: &Schedule, loops: &[VarId], minimum: usize) -> usize {
    let mut elements = 1;
    for depth in (1..loops.len()).rev() {
        elements *= schedule.extent(loops[depth]).unwrap_or(1);
        if elements >= minimum {
            return depth;
        }
    }
    1.min(loops.len())
}

/// Vectorizes the innermost loops, joined as far as a vector needs.
fn schedule_row(
    schedule: &mut Schedule,
    block: BlockId,
    before: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let mut loops = schedule.loops(block);
    let Some(mut last) = loops.pop() else { return Ok(()) };
    let extent = |schedule: &Schedule, loop_: VarId| schedule.extent(loop_).unwrap_or(1);
    let mut period = extent(schedule, last);
    while loops.len() > before && extent(schedule, last) < VECTORS * machine.lanes {
        let Some(next) = loops.pop() else { break };
        last = schedule.fuse(next, last)?;
        if extent(schedule, last) < machine.lanes {
            period = extent(schedule, last);
        }
    }
    let mut width = machine.lanes;
    // Whole periods of the innermost axis, so that each lane's index in it is known.
    while !width.is_multiple_of(period) && period < machine.lanes && width < period * machine.lanes
    {
        width += machine.lanes;
    }
    if width == machine.lanes && extent(schedule, last).is_multiple_of(VECTORS * width) {
        width *= VECTORS;
    }
    if extent(schedule, last) > width {
        last = schedule.split(last, width)?.1;
    }
    schedule.vectorize(last)
}
