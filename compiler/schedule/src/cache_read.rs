//! `cache_read`: a block reads a copy of a buffer, which another block makes.
//!
//! The copying block, named as the buffer with `_copy` added, stands directly in front of the reader's
//! outermost statement that does not also hold what computes the buffer. It copies what the reader
//! needs, under one loop per axis.
//!
//! Legal: where the block reads the buffer.
//! Buys: elements in another order or nearer memory; the copy is then moved below a loop of the
//! reader, and its layout changed.

use crate::cache_write::{add_cache, copy_block};
use crate::compact::compact;
use crate::edit::{block_path, insert, map_loads, must_hold};
use crate::error::{Outcome, refuse_block};
use crate::region;
use hone_tensor::{BlockId, BufferId, Expr, Program, Scope};

pub(crate) fn apply(
    program: &mut Program,
    block: BlockId,
    buffer: BufferId,
    scope: Scope,
) -> Outcome<BlockId> {
    let path = block_path(program, block)?;
    if program.buffers.get(buffer).is_none() || !program.blocks[block].reads(buffer) {
        return refuse_block(program, block, format!("it does not read {buffer}"));
    }
    let shared = program.writers(buffer).into_iter().filter_map(|writer| {
        let own = program.find_block(writer)?;
        Some(own.iter().zip(&path).take_while(|(a, b)| a == b).count())
    });
    let depth = shared.max().unwrap_or(0).min(path.len() - 1);
    let spans = region::of_loads(program, buffer, &[block], depth);
    let name = program.buffers[buffer].name.clone();
    let cache = add_cache(program, buffer, &name, scope);
    program.blocks[block].map_expressions(&mut |expr| {
        map_loads(expr, buffer, &mut |indices| Expr::Load(cache, indices))
    });
    let boxes = spans.iter().map(|span| (span.minimum(), span.extent())).collect();
    let around = program.enclosing(&path[..=depth]).last().map(|own| own.var);
    let (copy, statement) = copy_block(program, &format!("{name}_copy"), buffer, cache, boxes);
    insert(program, &path[..depth], path[depth], statement);
    if let Some(around) = around {
        compact(program, cache, around);
    }
    must_hold(program, block)?;
    Ok(copy)
}
