//! Spreads outermost loops over threads; also the whole of the plain schedule.

use crate::decisions::Decisions;
use crate::grain::{even_parts, tasks};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{IteratorKind, VarId};

/// Spreads the outermost spatial loops of every top-level nest.
pub(super) fn apply(
    schedule: &mut Schedule,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    for block in schedule.program().blocks_in_order() {
        let iterators = &schedule.program().blocks[block].iterators;
        let spatial =
            iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Spatial).count();
        let loops = schedule.loops(block);
        if spatial > 0 && loops.len() >= spatial {
            spread(schedule, &loops[..spatial.min(loops.len())], decisions)?;
        }
    }
    Ok(())
}

/// Makes `loops`, the outermost of a nest, parallel as far as the nest's work is worth tasks: fuses the
/// fewest that give enough, the last of them only in part where it has an even one.
pub(super) fn spread(
    schedule: &mut Schedule,
    loops: &[VarId],
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let Some((first, rest)) = loops.split_first() else { return Ok(()) };
    if schedule.program().threads_apart(*first).is_err() {
        // What iterations leave to later ones keeps them in order.
        return Ok(());
    }
    let worth = tasks(schedule, *first, decisions);
    let mut fused = *first;
    let mut parallel = schedule.extent(fused).unwrap_or(1);
    for inner in rest {
        let Some(extent) = schedule.extent(*inner) else { break };
        if parallel >= worth || schedule.program().threads_apart(*inner).is_err() {
            break;
        }
        let parts = even_parts(extent, worth.div_ceil(parallel.max(1)));
        let outer = match parts < extent {
            true => schedule.split(*inner, extent / parts)?.0,
            false => *inner,
        };
        fused = schedule.fuse(fused, outer)?;
        parallel *= parts;
    }
    schedule.parallel(fused)
}
