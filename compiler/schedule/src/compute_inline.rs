//! `compute_inline`: the value of a map stands in place of every load of it.
//!
//! Legal: for a map that alone computes a temporary, at indices that are one iterator each (apart
//! from an offset), that depends on no loop but those around its readers, and all of whose readers
//! stand after it: later iterations of a loop need what earlier ones stored.
//! Buys: no buffer and no pass over it. Costs: the value is computed once per load.

use crate::edit::{block_domain, block_path, detach, map_loads, must_hold, realize_at};
use crate::error::{Outcome, refuse_block};
use hone_tensor::{Block, BlockBody, BlockId, Domain, Expr, Program, Role, VarId};

pub(crate) fn apply(program: &mut Program, block: BlockId) -> Outcome<()> {
    block_path(program, block)?;
    let own = program.blocks[block].clone();
    let BlockBody::Map(value) = &own.body else {
        return refuse_block(program, block, "it is a reduction");
    };
    if program.buffers[own.buffer].role != Role::Temporary {
        return refuse_block(program, block, "its buffer is a parameter of the program");
    }
    if program.writers(own.buffer).len() > 1 {
        return refuse_block(program, block, "another block writes its buffer too");
    }
    if realize_at(program, block)?.predicate.is_some() {
        return refuse_block(program, block, "it runs under a condition");
    }
    let readers = program.readers(own.buffer);
    if readers.is_empty() {
        return refuse_block(program, block, "no block reads it");
    }
    let order = program.blocks_in_order();
    let mut before = order.iter().take_while(|other| **other != block);
    if readers.contains(&block) || before.any(|other| readers.contains(other)) {
        return refuse_block(program, block, "later iterations of a loop read what it stores");
    }
    let axes = match axes_of_iterators(&own) {
        Ok(axes) => axes,
        Err(reason) => return refuse_block(program, block, reason),
    };
    let value = value.clone();
    for reader in readers {
        let path = block_path(program, reader)?;
        let domain = block_domain(&program.blocks[reader], &program.domain_at(&path));
        program.blocks[reader].map_expressions(&mut |expr| {
            let inlined = map_loads(expr, own.buffer, &mut |indices| {
                let solved = |var: VarId| solve(&own, &axes, &indices, var);
                value.substitute(&solved)
            });
            simplify_changed(expr, inlined, &domain)
        });
    }
    detach(program, block);
    must_hold(program, block)
}

fn simplify_changed(old: &Expr, new: Expr, domain: &Domain) -> Expr {
    if *old == new { new } else { domain.simplify(&new) }
}

/// For each iterator the axis whose index it is, and what is added to it there.
pub(crate) fn axes_of_iterators(block: &Block) -> Result<Vec<Option<(usize, Expr)>>, String> {
    let mut axes: Vec<Option<(usize, Expr)>> = vec![None; block.iterators.len()];
    for (axis, index) in block.indices.iter().enumerate() {
        let mentioned: Vec<usize> = (0..block.iterators.len())
            .filter(|place| index.mentions(block.iterators[*place].var))
            .collect();
        let [place] = mentioned[..] else {
            if mentioned.is_empty() {
                continue;
            }
            return Err(format!("its index on axis {axis} mixes several iterators"));
        };
        let var = block.iterators[place].var;
        let offset = Domain::default().simplify(&(index.clone() - Expr::Var(var)));
        if offset.mentions(var) || axes[place].is_some() {
            return Err(format!("its index on axis {axis} is not an iterator by itself"));
        }
        axes[place] = Some((axis, offset));
    }
    let spatial = block.iterators.iter().zip(&axes);
    for (iterator, axis) in spatial {
        let reduced = iterator.kind == hone_tensor::IteratorKind::Reduction;
        if axis.is_none() && iterator.extent > 1 && !reduced {
            return Err(format!("its iterator {} is in no index", iterator.var));
        }
    }
    Ok(axes)
}

/// The value of a block's iterator at the element that `indices` name.
fn solve(
    block: &Block,
    axes: &[Option<(usize, Expr)>],
    indices: &[Expr],
    var: VarId,
) -> Option<Expr> {
    let place = block.iterators.iter().position(|own| own.var == var)?;
    match &axes[place] {
        Some((axis, offset)) => Some(indices[*axis].clone() - offset.clone()),
        None => Some(Expr::Integer(0)),
    }
}
