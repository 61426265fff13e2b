//! `decompose_reduction`: setting a reduction's initial value becomes a block of its own.
//!
//! The new block, named as the old one with `_init` added, stands directly in front of the loop; it
//! gets copies, with their annotations, of the loops from that one inwards that its place depends on.
//! The old block then only updates.
//!
//! Legal: the loop is around the block, no loop outside it is one that the block reduces over, and
//! no element is computed again in other iterations of the loops from there inwards.
//! Buys: no test for the first update in the innermost loop, and accumulators that stay in registers.

use crate::edit::{
    bindings_of, block_path, copy_nest, insert, loop_path, loops_from, realize_at, reduces_over,
};
use crate::error::{Outcome, loop_name, refuse_block};
use hone_tensor::{
    Block, BlockBody, BlockId, Expr, Iterator, IteratorKind, Loop, Program, Realize, Statement,
    VarId,
};

pub(crate) fn apply(program: &mut Program, block: BlockId, target: VarId) -> Outcome<BlockId> {
    let path = block_path(program, block)?;
    let target_path = loop_path(program, target)?;
    let realize = realize_at(program, block)?;
    let initial = match &program.blocks[block].body {
        BlockBody::Reduce { initial: Some(initial), .. } => initial.clone(),
        BlockBody::Reduce { initial: None, .. } => {
            return refuse_block(program, block, "its initial value is set elsewhere already");
        }
        BlockBody::Map(_) => return refuse_block(program, block, "it is not a reduction"),
    };
    if !crate::edit::below(&target_path, &path) {
        return refuse_block(
            program,
            block,
            format!("{} is not around it", loop_name(program, target)),
        );
    }
    if realize.predicate.is_some() {
        return refuse_block(program, block, "it runs under a condition");
    }
    let own = program.blocks[block].clone();
    let outside = program.enclosing(&target_path).into_iter().map(|own| own.var);
    if let Some(var) = outside.into_iter().find(|var| reduces_over(&own, &realize, *var)) {
        let reason = format!("{} is outside and reduced over", loop_name(program, var));
        return refuse_block(program, block, reason);
    }
    if let Err(var) = program.updates_once(block, target_path.len() - 1) {
        let reason = format!(
            "it computes elements again in other iterations of {}",
            loop_name(program, var)
        );
        return refuse_block(program, block, reason);
    }
    let init = init_block(program, &own, initial);
    let loops = spatial_loops(program, &own, &realize, &path, target_path.len() - 1);
    let spatial: Vec<Expr> = bindings_of(&own, &realize, IteratorKind::Spatial).cloned().collect();
    let statement = copy_nest(program, &loops, "_init", |program, change| {
        program.blocks[init].map_expressions(&mut |expr| expr.substitute(change));
        let bindings = spatial.iter().map(|binding| binding.substitute(change)).collect();
        Statement::Realize(Realize { block: init, bindings, predicate: None })
    });
    if let BlockBody::Reduce { initial, .. } = &mut program.blocks[block].body {
        *initial = None;
    }
    if let Some((place, above)) = target_path.split_last() {
        insert(program, above, *place, statement);
    }
    Ok(init)
}

/// The map that stores the initial value.
fn init_block(program: &mut Program, own: &Block, initial: Expr) -> BlockId {
    let spatial = own.iterators.iter().filter(|own| own.kind == IteratorKind::Spatial);
    let pairs: Vec<(VarId, Iterator)> = spatial
        .map(|old| {
            let var = program.add_var(program.vars[old.var].name.clone());
            (old.var, Iterator { var, ..old.clone() })
        })
        .collect();
    let change =
        |var: VarId| pairs.iter().find(|(old, _)| *old == var).map(|(_, new)| Expr::Var(new.var));
    let name = crate::edit::unique_name(program, &format!("{}_init", own.name));
    program.blocks.push(Block {
        name,
        buffer: own.buffer,
        indices: own.indices.iter().map(|index| index.substitute(&change)).collect(),
        body: BlockBody::Map(initial.substitute(&change)),
        iterators: pairs.iter().map(|(_, new)| new.clone()).collect(),
    })
}

/// The loops around a block, from depth `from` inwards, on which its spatial iterators depend.
pub(crate) fn spatial_loops(
    program: &Program,
    own: &Block,
    realize: &Realize,
    path: &[usize],
    from: usize,
) -> Vec<Loop> {
    let mut loops = loops_from(program, path, from);
    let mut needed: Vec<Expr> = bindings_of(own, realize, IteratorKind::Spatial).cloned().collect();
    needed.extend(own.indices.iter().cloned());
    // From the innermost out, since extents mention outer loops.
    let mut kept = Vec::new();
    while let Some(own) = loops.pop() {
        if needed.iter().any(|expr| expr.mentions(own.var)) {
            needed.push(own.extent.clone());
            kept.push(own);
        }
    }
    kept.reverse();
    kept
}
