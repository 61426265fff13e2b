//! Spreads outermost loops over threads; also the whole of the plain schedule.

use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{IteratorKind, VarId};

/// Tasks that a kernel is cut into at least, where it has that many iterations to give.
const TASKS: usize = 16;

/// Spreads the outermost spatial loops of every top-level nest.
pub(super) fn apply(schedule: &mut Schedule) -> Result<(), ScheduleError> {
    for block in schedule.program().blocks_in_order() {
        let iterators = &schedule.program().blocks[block].iterators;
        let spatial =
            iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Spatial).count();
        let loops = schedule.loops(block);
        if spatial > 0 && loops.len() >= spatial {
            spread(schedule, &loops[..spatial.min(loops.len())])?;
        }
    }
    Ok(())
}

/// Fuses the fewest of `loops`, the outermost of a nest, that give enough tasks, and makes the
/// result parallel.
pub(super) fn spread(schedule: &mut Schedule, loops: &[VarId]) -> Result<(), ScheduleError> {
    let Some((first, rest)) = loops.split_first() else { return Ok(()) };
    let mut fused = *first;
    let mut tasks = schedule.extent(fused).unwrap_or(1);
    for inner in rest {
        let Some(extent) = schedule.extent(*inner) else { break };
        if tasks >= TASKS {
            break;
        }
        fused = schedule.fuse(fused, *inner)?;
        tasks *= extent;
    }
    schedule.parallel(fused)
}
