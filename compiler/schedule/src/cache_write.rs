//! `cache_write`: a block computes into a buffer of its own, and another block copies from there.
//!
//! The copying block, named as the old one with `_copy` added, stands behind the loops that only the
//! old one has, under one loop per axis of the buffer over what was computed there.
//!
//! Legal: where the block, with the block of its initial value, alone computes its buffer.
//! Buys: accumulators in registers or near memory for a block whose result is needed elsewhere; the
//! copy is then tiled and the block moved below it.

use crate::edit::{block_path, insert, must_hold, nest, unique_name};
use crate::error::{Outcome, refuse_block};
use crate::region;
use hone_tensor::{
    Block, BlockBody, BlockId, Buffer, BufferId, Expr, Iterator, IteratorKind, Program, Realize,
    Role, Scope, Statement, VarId,
};

pub(crate) fn apply(program: &mut Program, block: BlockId, scope: Scope) -> Outcome<BlockId> {
    let path = block_path(program, block)?;
    let buffer = program.blocks[block].buffer;
    let writers = program.writers(buffer);
    let alone = |depth: usize| {
        let statement = program.statement(&path[..depth]);
        statement.is_some_and(|own| own.blocks().iter().all(|other| writers.contains(other)))
    };
    // The block by itself always is.
    let depth = (1..path.len()).find(|depth| alone(*depth)).unwrap_or(path.len());
    let nest_path = path[..depth].to_vec();
    let together =
        program.statement(&nest_path).is_some_and(|own| own.blocks().len() == writers.len());
    if !together {
        return refuse_block(program, block, "another block writes its buffer too");
    }
    let spans = region::of_stores(program, buffer, &writers, depth - 1);
    let cache = add_cache(program, buffer, &program.blocks[block].name.clone(), scope);
    writers.iter().for_each(|writer| program.blocks[*writer].buffer = cache);
    let name = format!("{}_copy", program.blocks[block].name);
    let boxes = spans.iter().map(|span| (span.minimum(), span.extent())).collect();
    let (copy, statement) = copy_block(program, &name, cache, buffer, boxes);
    if let Some((place, above)) = nest_path.split_last() {
        insert(program, above, place + 1, statement);
    }
    must_hold(program, block)?;
    Ok(copy)
}

/// A temporary like `buffer`.
pub(crate) fn add_cache(
    program: &mut Program,
    buffer: BufferId,
    name: &str,
    scope: Scope,
) -> BufferId {
    let Buffer { dtype, shape, .. } = program.buffers[buffer].clone();
    let name = format!("{name}_cache");
    program.buffers.push(Buffer { name, dtype, shape, role: Role::Temporary, scope })
}

/// A block that copies a box, one (first index, extent) per axis, from one buffer to another, under
/// loops of its own.
pub(crate) fn copy_block(
    program: &mut Program,
    name: &str,
    from: BufferId,
    to: BufferId,
    boxes: Vec<(Expr, Expr)>,
) -> (BlockId, Statement) {
    let shape = program.buffers[to].shape.clone();
    let mut axes: Vec<(VarId, VarId)> = Vec::new();
    for axis in 0..shape.len() {
        axes.push((program.add_var(format!("i{axis}")), program.add_var(format!("i{axis}_loop"))));
    }
    let indices: Vec<Expr> = axes.iter().map(|(own, _)| Expr::Var(*own)).collect();
    let iterators = axes.iter().zip(&shape).map(|((var, _), extent)| Iterator {
        var: *var,
        extent: *extent,
        kind: IteratorKind::Spatial,
    });
    let name = unique_name(program, name);
    let block = program.blocks.push(Block {
        name,
        iterators: iterators.collect(),
        buffer: to,
        indices: indices.clone(),
        body: BlockBody::Map(Expr::Load(from, indices)),
    });
    let starts = boxes.iter().zip(&axes);
    let bindings = starts.map(|((start, _), (_, var))| match start {
        Expr::Integer(0) => Expr::Var(*var),
        _ => start.clone() + Expr::Var(*var),
    });
    let realize = Realize { block, bindings: bindings.collect(), predicate: None };
    let loops = axes.iter().zip(boxes).map(|((_, var), (_, extent))| (*var, extent));
    (block, nest(loops.collect(), Statement::Realize(realize)))
}
