//! Shrinks a buffer to what one iteration of a loop uses of it.

use crate::edit::{below, block_domain, map_loads};
use crate::region;
use crate::schedule::PRIVATE;
use hone_tensor::{BlockId, BufferId, Domain, Expr, Program, Role, Scope, VarId};

/// Shrinks `buffer` to what is stored to it in one iteration of the loop `target`, where it is a
/// temporary and is used below that loop only. Its indices then count from the least one stored,
/// and it becomes memory of one thread.
pub(crate) fn compact(program: &mut Program, buffer: BufferId, target: VarId) {
    let Some(path) = program.find_loop(target) else { return };
    let (writers, readers) = (program.writers(buffer), program.readers(buffer));
    let inside = |block: &BlockId| program.find_block(*block).is_some_and(|own| below(&path, &own));
    let private = writers.iter().chain(&readers).all(inside);
    if program.buffers[buffer].role != Role::Temporary || !private || writers.is_empty() {
        return;
    }
    let spans = region::of_stores(program, buffer, &writers, path.len());
    let shape = program.buffers[buffer].shape.clone();
    let mut offsets = Vec::new();
    for (axis, span) in spans.iter().enumerate() {
        let limit = span.limit(shape[axis]);
        // Where nothing is gained the axis keeps its indices.
        offsets.push((limit < shape[axis]).then(|| span.minimum()));
        program.buffers[buffer].shape[axis] = limit;
    }
    if program.buffers[buffer].scope == Scope::Global {
        program.buffers[buffer].scope = PRIVATE;
    }
    if offsets.iter().all(Option::is_none) {
        return;
    }
    let mut blocks = [writers, readers].concat();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.into_iter().for_each(|block| rewrite(program, block, buffer, &offsets));
}

fn rewrite(program: &mut Program, block: BlockId, buffer: BufferId, offsets: &[Option<Expr>]) {
    let Some(path) = program.find_block(block) else { return };
    let domain = block_domain(&program.blocks[block], &program.domain_at(&path));
    let own = &mut program.blocks[block];
    if own.buffer == buffer {
        own.indices = relative(&own.indices, offsets, &domain);
    }
    own.map_expressions(&mut |expr| {
        map_loads(expr, buffer, &mut |indices| {
            Expr::Load(buffer, relative(&indices, offsets, &domain))
        })
    });
}

fn relative(indices: &[Expr], offsets: &[Option<Expr>], domain: &Domain) -> Vec<Expr> {
    let pairs = indices.iter().zip(offsets);
    pairs
        .map(|(index, offset)| match offset {
            Some(offset) => domain.simplify(&(index.clone() - offset.clone())),
            None => index.clone(),
        })
        .collect()
}
