//! `set_scope`: says where the buffer that a block computes lies.
//!
//! Legal: for a temporary; memory of one thread only where one top-level statement uses the buffer.
//! Whether a register buffer is indexed by unrolled and vectorized loops only is checked when code is
//! made, since loops are often annotated later.
//! Buys: registers or memory that stays in the core's cache, instead of memory that all threads see.

use crate::edit::block_path;
use crate::error::{Outcome, refuse_block};
use hone_tensor::{BlockId, Program, Role, Scope};

pub(crate) fn apply(program: &mut Program, block: BlockId, scope: Scope) -> Outcome<()> {
    block_path(program, block)?;
    let buffer = program.blocks[block].buffer;
    if program.buffers[buffer].role != Role::Temporary {
        return refuse_block(program, block, "its buffer is a parameter of the program");
    }
    let users = [program.writers(buffer), program.readers(buffer)].concat();
    let mut statements: Vec<usize> =
        users.iter().filter_map(|user| program.find_block(*user)?.first().copied()).collect();
    statements.sort_unstable();
    statements.dedup();
    if scope != Scope::Global && statements.len() > 1 {
        let reason =
            "another top-level statement uses its buffer, which cannot be memory of one thread";
        return refuse_block(program, block, reason);
    }
    program.buffers[buffer].scope = scope;
    Ok(())
}
