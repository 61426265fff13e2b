//! `reorder`: loops of one perfect nest change places.
//!
//! Legal: the loops lie one inside the other with nothing beside them from the first to the last; a
//! loop whose extent mentions another stays inside it; parallel loops stay outermost and vectorized
//! ones innermost; and a loop in whose iterations a moved block computes the same elements again stays
//! outside the loops which that block reduces over; loops that run over elements and reduced points
//! alike (fused ones) keep their order among themselves until that reduction is decomposed; what a block
//! reads of earlier iterations is still stored in earlier ones. Bound loops are not named.
//! Loops of the nest that are not named keep their places. The order of a reduction's
//! updates may change, and with it the rounding of floating-point sums.
//! Buys: reuse in caches and registers, and unit stride in the innermost loop.

use crate::edit::{loop_path, must_hold, reduces_over, replace, runs_over_both};
use crate::error::{Outcome, loop_name, refuse_loop};
use hone_tensor::{BlockId, Loop, LoopKind, Program, Statement, VarId};

pub(crate) fn apply(program: &mut Program, loops: Vec<VarId>) -> Outcome<()> {
    let mut paths = Vec::new();
    for (place, target) in loops.iter().enumerate() {
        if loops[..place].contains(target) {
            return refuse_loop(program, *target, "it is named twice");
        }
        if let Some(axis) = program.loop_of(*target).and_then(|own| own.axis()) {
            return refuse_loop(program, *target, format!("it is {}", axis.name()));
        }
        paths.push(loop_path(program, *target)?);
    }
    let Some(outermost) = paths.iter().min_by_key(|path| path.len()).cloned() else {
        return Ok(());
    };
    let (mut chain, inside) = perfect_nest(program, &outermost, &loops)?;
    let places: Vec<usize> =
        (0..chain.len()).filter(|place| loops.contains(&chain[*place].var)).collect();
    let old = chain.clone();
    for (place, target) in places.iter().zip(&loops) {
        if let Some(own) = old.iter().find(|own| own.var == *target) {
            chain[*place] = own.clone();
        }
    }
    check(program, &old, &chain, &inside, outermost.len() == 1)?;
    let mut body = inside;
    for mut own in chain.into_iter().rev() {
        own.body = body;
        body = vec![Statement::Loop(Box::new(own))];
    }
    let Some(nest) = body.pop() else { return Ok(()) };
    let blocks = nest.blocks();
    replace(program, &outermost, nest);
    let order: Vec<VarId> = old.iter().map(|own| own.var).collect();
    blocks.iter().try_for_each(|block| first_stays_first(program, *block, &order))?;
    blocks.iter().try_for_each(|block| updates_stay_single(program, *block))?;
    // What a loop leaves to its later iterations is stored before it is read.
    match blocks.iter().find(|block| program.blocks[**block].reads(program.blocks[**block].buffer))
    {
        Some(block) => must_hold(program, *block),
        None => Ok(()),
    }
}

/// The loops from the one at `path` to the last of `wanted`, without their bodies, and what the last
/// one repeats.
fn perfect_nest(
    program: &Program,
    path: &[usize],
    wanted: &[VarId],
) -> Outcome<(Vec<Loop>, Vec<Statement>)> {
    let mut chain: Vec<Loop> = Vec::new();
    let mut left: Vec<VarId> = wanted.to_vec();
    let mut body: Vec<Statement> = program.statement(path).cloned().into_iter().collect();
    while let Some(next) = left.first().copied() {
        match body.as_slice() {
            [Statement::Loop(own)] => {
                left.retain(|var| *var != own.var);
                chain.push(Loop { body: vec![], ..(**own).clone() });
                body = own.body.clone();
            }
            _ => {
                let outer =
                    chain.last().map_or("the program".into(), |own| loop_name(program, own.var));
                let reason = format!(
                    "it is not in one perfect nest with the others: {outer} repeats more than one loop"
                );
                return refuse_loop(program, next, reason);
            }
        }
    }
    Ok((chain, body))
}

/// Loops that run over elements and reduced points alike keep their order among themselves.
fn first_stays_first(program: &Program, block: BlockId, old: &[VarId]) -> Outcome<()> {
    let own = &program.blocks[block];
    let (Some(path), Some(realize)) = (program.find_block(block), program.realize_of(block)) else {
        return Ok(());
    };
    let both = |var: &VarId| runs_over_both(own, realize, *var);
    let before: Vec<VarId> = old.iter().copied().filter(both).collect();
    let loops = program.enclosing(&path).into_iter().map(|own| own.var);
    let after = loops.filter(|var| before.contains(var));
    match before.iter().zip(after).find(|(before, after)| *before != after) {
        None => Ok(()),
        Some((var, _)) => {
            let reason = format!(
                "it runs over elements and over what is reduced into them in '{}': decompose that reduction first",
                own.name
            );
            refuse_loop(program, *var, reason)
        }
    }
}

/// Inside the outermost loop that a block reduces over no element may be computed again: it would be
/// combined twice.
fn updates_stay_single(program: &Program, block: BlockId) -> Outcome<()> {
    let own = &program.blocks[block];
    let (Some(path), Some(realize)) = (program.find_block(block), program.realize_of(block)) else {
        return Ok(());
    };
    let loops = program.enclosing(&path);
    let Some(depth) = loops.iter().position(|around| reduces_over(own, realize, around.var)) else {
        return Ok(());
    };
    match program.updates_once(block, depth) {
        Ok(()) => Ok(()),
        Err(var) => {
            let (name, reduced) = (&own.name, loop_name(program, loops[depth].var));
            let reason = format!(
                "it repeats elements of '{name}' and would be inside {reduced}, over which they are reduced"
            );
            refuse_loop(program, var, reason)
        }
    }
}

fn check(
    program: &Program,
    old: &[Loop],
    chain: &[Loop],
    inside: &[Statement],
    top: bool,
) -> Outcome<()> {
    for (place, own) in chain.iter().enumerate() {
        if let Some(needed) = chain[place..].iter().find(|other| own.extent.mentions(other.var)) {
            let reason = format!("its extent depends on {}", loop_name(program, needed.var));
            return refuse_loop(program, own.var, format!("{reason}, which has to stay outside"));
        }
        let moves = |place: usize| old[place].var != chain[place].var;
        if own.kind == LoopKind::Parallel && (0..=place).any(moves) && !(top && place == 0) {
            return refuse_loop(program, own.var, "it is parallel and has to stay outermost");
        }
        let innermost = place + 1 == chain.len()
            && inside.iter().all(|statement| matches!(statement, Statement::Realize(_)));
        if own.kind == LoopKind::Vectorized && !innermost {
            return refuse_loop(program, own.var, "it is vectorized and has to stay innermost");
        }
    }
    Ok(())
}
