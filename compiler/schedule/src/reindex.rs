//! `reindex`: a block reads a copy of a buffer that has an axis for each iterator that the access moves with.
//!
//! The copying block, named as the buffer with `_by_` and the reader's name added, stands in front of the reader's
//! outermost statement. For each value of those of the reader's iterators that the access mentions it copies the element
//! that the reader reads there: the windows of a convolution become the rows of a matrix (im2col).
//!
//! Legal: the block reads the buffer at one index, not under a condition, and nothing that computes the buffer stands in
//! the same outermost statement.
//! Buys: operands in the order in which instructions on tiles read them; the copy is then moved below a loop of the reader.
//! Costs: elements that several windows share are copied for each.

use crate::cache_write::add_cache;
use crate::edit::{block_path, insert, map_loads, must_hold, nest, unique_name};
use crate::error::{Outcome, refuse_block};
use hone_tensor::{
    Block, BlockBody, BlockId, BufferId, Expr, Iterator, IteratorKind, Program, Realize, Scope,
    Statement, VarId,
};

pub(crate) fn apply(
    program: &mut Program,
    block: BlockId,
    buffer: BufferId,
    scope: Scope,
) -> Outcome<BlockId> {
    let path = block_path(program, block)?;
    let reads = match program.buffers.get(buffer) {
        Some(_) => program.blocks[block].loads(buffer),
        None => vec![],
    };
    let Some(indices) = reads.first().map(|indices| indices.to_vec()) else {
        return refuse_block(program, block, format!("it does not read {buffer}"));
    };
    if reads.iter().any(|other| other[..] != indices[..]) {
        return refuse_block(program, block, format!("it reads {buffer} at several indices"));
    }
    if is_conditional(&program.blocks[block], buffer) {
        return refuse_block(program, block, format!("it reads {buffer} under a condition"));
    }
    let beside = |writer: &BlockId| {
        program.find_block(*writer).is_some_and(|other| other.first() == path.first())
    };
    if program.writers(buffer).iter().any(beside) {
        return refuse_block(program, block, format!("{buffer} is computed inside the same loops"));
    }
    let moves = |iterator: &&Iterator| indices.iter().any(|index| index.mentions(iterator.var));
    let axes: Vec<Iterator> =
        program.blocks[block].iterators.iter().filter(moves).cloned().collect();
    let reader = program.blocks[block].name.clone();
    let name = format!("{}_by_{reader}", program.buffers[buffer].name);
    let cache = add_cache(program, buffer, &name, scope);
    program.buffers[cache].name = name.clone();
    program.buffers[cache].shape = axes.iter().map(|axis| axis.extent).collect();
    let by_axis: Vec<Expr> = axes.iter().map(|axis| Expr::Var(axis.var)).collect();
    program.blocks[block].map_expressions(&mut |expr| {
        map_loads(expr, buffer, &mut |_| Expr::Load(cache, by_axis.clone()))
    });
    let (copy, statement) = copy(program, &name, Expr::Load(buffer, indices), (cache, &axes));
    insert(program, &[], path[0], statement);
    must_hold(program, block)?;
    must_hold(program, copy)?;
    Ok(copy)
}

/// Whether a block reads a buffer in a branch of a choice, or may not run.
fn is_conditional(block: &Block, buffer: BufferId) -> bool {
    let (BlockBody::Map(value) | BlockBody::Reduce { value, .. }) = &block.body;
    let mut found = false;
    value.visit(&mut |part| {
        if let Expr::Select(_, then, otherwise) = part {
            for branch in [then, otherwise] {
                branch.visit(&mut |inside| {
                    found |= matches!(inside, Expr::Load(of, _) if *of == buffer);
                });
            }
        }
    });
    found
}

/// A block that stores `element` for all values of `axes`, under loops of its own.
fn copy(
    program: &mut Program,
    name: &str,
    element: Expr,
    (to, axes): (BufferId, &[Iterator]),
) -> (BlockId, Statement) {
    let named = |program: &Program, axis: &Iterator| program.vars[axis.var].name.clone();
    let vars: Vec<(VarId, VarId)> = axes
        .iter()
        .map(|axis| {
            let name = named(program, axis);
            (program.add_var(name.clone()), program.add_var(format!("{name}_loop")))
        })
        .collect();
    let renamed = |var: VarId| {
        let axis = axes.iter().position(|axis| axis.var == var)?;
        Some(Expr::Var(vars[axis].0))
    };
    let iterators = axes.iter().zip(&vars).map(|(axis, (var, _))| Iterator {
        var: *var,
        extent: axis.extent,
        kind: IteratorKind::Spatial,
    });
    let iterators: Vec<Iterator> = iterators.collect();
    let indices = iterators.iter().map(|iterator| Expr::Var(iterator.var)).collect();
    let name = unique_name(program, name);
    let body = BlockBody::Map(element.substitute(&renamed));
    let block = program.blocks.push(Block { name, iterators, buffer: to, indices, body });
    let bindings = vars.iter().map(|(_, var)| Expr::Var(*var)).collect();
    let realize = Realize { block, bindings, predicate: None };
    let loops = axes.iter().zip(&vars).map(|(axis, (_, var))| (*var, Expr::from(axis.extent)));
    (block, nest(loops.collect(), Statement::Realize(realize)))
}
