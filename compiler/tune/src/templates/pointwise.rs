//! One map over contiguous elements: flat, in vectors.

use super::outer::spread;
use super::{unfit, vector_width};
use crate::Machine;
use crate::access::{is_reduction, vector_axis};
use hone_schedule::{Schedule, ScheduleError};

/// Elements of a task of a flat loop.
const CHUNK: usize = 4096;

/// Vectorizes the last axis of each map and spreads the others.
pub(super) fn apply(schedule: &mut Schedule, machine: &Machine) -> Result<(), ScheduleError> {
    let blocks = schedule.program().blocks_in_order();
    if blocks.iter().any(|block| is_reduction(&schedule.program().blocks[*block])) {
        return Err(unfit("pointwise", "a block reduces"));
    }
    for block in blocks {
        let loops = schedule.loops(block);
        let Some((last, outer)) = loops.split_last() else { continue };
        if vector_axis(&schedule.program().blocks[block]) != Some(loops.len() - 1) {
            spread(schedule, &loops)?;
            continue;
        }
        let extent = schedule.extent(*last).unwrap_or(1);
        let mut outer = outer.to_vec();
        let mut last = *last;
        if extent > 2 * CHUNK {
            let (chunks, inner) = schedule.split(last, CHUNK)?;
            outer.push(chunks);
            last = inner;
        }
        let width = vector_width(schedule, block, machine);
        if extent > width {
            last = schedule.split(last, width)?.1;
        }
        schedule.vectorize(last)?;
        spread(schedule, &outer)?;
    }
    Ok(())
}
