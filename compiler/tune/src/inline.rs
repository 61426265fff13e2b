//! Puts point-wise stages into their readers, where that repeats no real work.

use crate::access::{Contraction, is_costly, is_guarded, is_reduction, value};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Expr, Role};

/// Inlines every stage that may be.
pub(crate) fn inline_stages(schedule: &mut Schedule) -> Result<(), ScheduleError> {
    for block in schedule.program().blocks_in_order() {
        if may_inline(schedule, block) {
            schedule.compute_inline(block)?;
        }
    }
    Ok(())
}

fn may_inline(schedule: &Schedule, id: BlockId) -> bool {
    let program = schedule.program();
    let block = &program.blocks[id];
    let temporary = program.buffers[block.buffer].role == Role::Temporary;
    let readers = schedule.consumers(id);
    if is_reduction(block) || !temporary || readers.is_empty() {
        return false;
    }
    let value = value(block);
    let (reducing, mapping): (Vec<BlockId>, Vec<BlockId>) =
        readers.iter().partition(|reader| is_reduction(&program.blocks[**reader]));
    if reducing.is_empty() {
        return true;
    }
    if reducing.iter().any(|reader| Contraction::of(program, *reader).is_some()) {
        return matches!(value, Expr::Load(..)) && mapping.is_empty();
    }
    let repeated = readers.len() > 1;
    !(is_guarded(value) || repeated && is_costly(value))
}
