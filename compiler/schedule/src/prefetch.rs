//! `prefetch`: while one iteration of a loop runs, what a block will read of a buffer in the next
//! one is loaded into a cache.
//!
//! Legal: the loop is around the block, the block reads the buffer, and the program does not write
//! it. It changes no result; code for machines without such an instruction leaves it out.
//! Buys: the time in which a stream from memory keeps the first of several passes waiting. Costs: an
//! instruction per round of the innermost loop.

use crate::edit::{below, block_path, loop_path};
use crate::error::{Outcome, refuse_block, refuse_loop};
use hone_tensor::{BlockId, BufferId, Prefetch, Program, VarId};

pub(crate) fn apply(
    program: &mut Program,
    block: BlockId,
    buffer: BufferId,
    target: VarId,
) -> Outcome<()> {
    let (own, around) = (block_path(program, block)?, loop_path(program, target)?);
    if !below(&around, &own) {
        return refuse_loop(program, target, "it is not around the block");
    }
    if program.buffers.get(buffer).is_none() || !program.blocks[block].reads(buffer) {
        return refuse_block(program, block, format!("it does not read {buffer}"));
    }
    if !program.writers(buffer).is_empty() {
        return refuse_block(program, block, format!("{buffer} is written by the program itself"));
    }
    program.prefetches.push(Prefetch { block, buffer, target });
    Ok(())
}
