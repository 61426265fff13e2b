//! `bind`: a loop's iterations become launches, blocks or lanes of a device.
//!
//! An extent that is at most a constant becomes that constant, and what is below runs under the condition that
//! the iteration is one of the loop's. A loop below one that is bound to the same lanes is divided among them:
//! each lane, which ran all of its iterations, runs that of its own place. With `cache_read` into shared memory
//! and `compute_at` before it, the lanes of a block fetch a tile together; [`insert_syncs`](crate::insert_syncs)
//! then lets them wait for it.
//!
//! Legal: the loop is serial; around one bound to the grid stand only such, around one bound to blocks only those
//! two, around one bound to lanes a loop over blocks. No iteration of a loop over blocks or lanes writes what
//! another one accesses, so no reduction and nothing that iterations leave to later ones, but in shared memory.
//! A loop that is divided among lanes has as many iterations, each of which writes other elements of shared
//! memory and nothing else, and is the same on all lanes.
//! Buys: a device's threads. Costs: lanes whose condition does not hold are idle.

use crate::edit::{loop_at, loop_path, must_be_serial, substitute};
use crate::error::{Outcome, refuse_loop};
use hone_tensor::{
    Axis, BinaryOp, BlockId, Expr, Level, Loop, LoopKind, Program, Scope, Statement, VarId, verify,
};

pub(crate) fn apply(program: &mut Program, target: VarId, axis: Axis) -> Outcome<()> {
    let path = loop_path(program, target)?;
    let own = loop_at(program, target)?;
    must_be_serial(program, &own)?;
    let around = program.enclosing(&path);
    let alike =
        around.iter().find(|outer| outer.axis() == Some(axis)).map(|outer| (**outer).clone());
    match alike {
        Some(outer) if axis.level == Level::Lane => {
            divide(program, &path, &outer, &own)?;
        }
        Some(outer) => {
            let reason = format!("loop {} around it is {} already", outer.var, axis.name());
            return refuse_loop(program, target, reason);
        }
        None => {
            let apart = match axis.level {
                Level::Grid => Ok(()),
                Level::Block => program.threads_apart(target),
                Level::Lane => program.lanes_apart(target),
            };
            if let Err(reason) = apart {
                return refuse_loop(program, target, reason);
            }
            fix_extent(program, &path, &own)?;
            if let Some(bound) = program.loop_of_mut(target) {
                bound.kind = LoopKind::Bound(axis);
            }
        }
    }
    verify(program).or_else(|error| refuse_loop(program, target, format!("then {error}")))
}

/// Makes the extent its largest, and what is below conditional.
fn fix_extent(program: &mut Program, path: &[usize], own: &Loop) -> Outcome<()> {
    if own.extent.as_integer().is_some() {
        return Ok(());
    }
    let Some(most) = own.most() else {
        return refuse_loop(program, own.var, "its extent has no constant bound");
    };
    let mut bounds = Vec::new();
    operands(&own.extent, &mut bounds);
    bounds.retain(|bound| bound.as_integer().is_none_or(|bound| bound < most));
    let conditions = bounds.into_iter().map(|bound| Expr::Var(own.var).less(bound));
    let Some(condition) = conditions.reduce(Expr::and) else { return Ok(()) };
    if let Some(Statement::Loop(bound)) = program.statement_mut(path) {
        bound.extent = Expr::Integer(most);
        bound.body.iter_mut().for_each(|statement| restrict(statement, &condition));
    }
    Ok(())
}

/// The operands of minima.
fn operands(extent: &Expr, found: &mut Vec<Expr>) {
    match extent {
        Expr::Binary(BinaryOp::Minimum, left, right) => {
            operands(left, found);
            operands(right, found);
        }
        _ => found.push(extent.clone()),
    }
}

fn restrict(statement: &mut Statement, condition: &Expr) {
    match statement {
        Statement::Loop(own) => own.body.iter_mut().for_each(|inner| restrict(inner, condition)),
        Statement::Realize(realize) => {
            let before = realize.predicate.take();
            realize.predicate = Some(match before {
                Some(before) => before.and(condition.clone()),
                None => condition.clone(),
            });
        }
        Statement::Sync(_) => {}
    }
}

/// Lets each lane of the loop `outer` run its own iteration of the loop below it.
fn divide(program: &mut Program, path: &[usize], outer: &Loop, own: &Loop) -> Outcome<()> {
    if own.extent.as_integer().is_none() || own.extent != outer.extent {
        let reason = format!("it has not as many iterations as loop {} around it", outer.var);
        return refuse_loop(program, own.var, reason);
    }
    let blocks: Vec<BlockId> = own.body.iter().flat_map(Statement::blocks).collect();
    for block in &blocks {
        if let Err(reason) = may_divide(program, *block, outer.var) {
            return refuse_loop(program, own.var, reason);
        }
    }
    if let Err(reason) = program.independent(own.var) {
        return refuse_loop(program, own.var, reason);
    }
    let domain = program.domain_at(path);
    let mut body = own.body.clone();
    let lane = Expr::Var(outer.var);
    substitute(program, &mut body, &domain, &|var| (var == own.var).then(|| lane.clone()));
    if let Some((place, above)) = path.split_last()
        && let Some(around) = program.body_at_mut(above)
    {
        around.splice(*place..=*place, body);
    }
    Ok(())
}

/// Whether every lane of the loop over `lane` runs the block alike, so that one can do it for the others.
fn may_divide(program: &Program, block: BlockId, lane: VarId) -> Result<(), String> {
    let own = &program.blocks[block];
    let name = &own.name;
    if program.buffers[own.buffer].scope != Scope::Shared {
        return Err(format!("block '{name}' below it writes memory that is not shared"));
    }
    let private = |scope| matches!(scope, Scope::Scratch | Scope::Register);
    let reads =
        |(buffer, entry): (_, &hone_tensor::Buffer)| private(entry.scope) && own.reads(buffer);
    if program.buffers.iter().any(reads) {
        return Err(format!("block '{name}' below it reads memory of one lane"));
    }
    let realize = program.realize_of(block);
    let placed = realize.into_iter().flat_map(|own| own.bindings.iter().chain(&own.predicate));
    match own.expressions().into_iter().chain(placed).any(|expr| expr.mentions(lane)) {
        true => Err(format!("block '{name}' below it differs between lanes")),
        false => Ok(()),
    }
}
