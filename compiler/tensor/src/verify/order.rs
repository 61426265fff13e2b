//! What a block reads was computed before: by blocks that stand before it, or in earlier iterations of
//! a loop around both (`carried`).

use super::VerifyError;
use super::carried::is_carried;
use crate::{BlockBody, BlockId, BufferId, IteratorKind, Program, Role};

pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    for reader in program.blocks_in_order() {
        let own = &program.blocks[reader];
        for (buffer, entry) in program.buffers.iter() {
            if matches!(entry.role, Role::Input(_)) || !own.reads(buffer) {
                continue;
            }
            computed_before(program, reader, buffer)?;
        }
        if let BlockBody::Reduce { initial: None, .. } = own.body {
            computed_before(program, reader, own.buffer)?;
        }
    }
    Ok(())
}

/// Whether all other blocks that write `buffer` do so before `reader`.
fn computed_before(
    program: &Program,
    reader: BlockId,
    buffer: BufferId,
) -> Result<(), VerifyError> {
    let mut writers = program.writers(buffer);
    writers.retain(|writer| *writer != reader);
    let name = |block: BlockId| program.blocks[block].name.clone();
    let own = &program.blocks[reader];
    let reads_itself = own.buffer == buffer && own.reads(buffer);
    if writers.is_empty() && !reads_itself {
        let buffer = program.buffers[buffer].name.clone();
        return Err(VerifyError::NeverWritten { reader: name(reader), buffer });
    }
    if own.buffer == buffer && !reads_itself {
        // A reduction goes on from what some block has set; others may go on from it.
        if writers.iter().any(|writer| complete(program, *writer, reader)) {
            return Ok(());
        }
    }
    writers.extend(reads_itself.then_some(reader));
    let late = |writer: &BlockId| {
        !complete(program, *writer, reader) && !is_carried(program, *writer, reader, buffer)
    };
    match writers.into_iter().find(late) {
        Some(writer) => {
            let buffer = program.buffers[buffer].name.clone();
            Err(VerifyError::Order { reader: name(reader), buffer, writer: name(writer) })
        }
        None => Ok(()),
    }
}

/// Whether `writer` has written, and reduced to the end, what it computes in an iteration of the
/// loops it shares with `reader`, before `reader` runs there.
fn complete(program: &Program, writer: BlockId, reader: BlockId) -> bool {
    let (Some(first), Some(second)) = (program.find_block(writer), program.find_block(reader))
    else {
        return false;
    };
    let shared = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    if first[shared..] >= second[shared..] {
        return false;
    }
    let Some(realize) = program.realize_of(writer) else { return false };
    let iterators = program.blocks[writer].iterators.iter().zip(&realize.bindings);
    let reductions: Vec<_> =
        iterators.filter(|(own, _)| own.kind == IteratorKind::Reduction).collect();
    let shared_loops = program.enclosing(&first).into_iter().take(shared);
    shared_loops
        .into_iter()
        .all(|own| !reductions.iter().any(|(_, binding)| binding.mentions(own.var)))
}
