//! Loop kinds, and memory of one thread.

use super::VerifyError;
use crate::{Block, BlockId, BufferId, Expr, Loop, LoopKind, Program, Scope, Statement};

pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    program.body.iter().try_for_each(|statement| check_statement(program, statement, &mut vec![]))
}

/// Checks a statement inside the loops `around`, outermost first.
fn check_statement<'a>(
    program: &Program,
    statement: &'a Statement,
    around: &mut Vec<&'a Loop>,
) -> Result<(), VerifyError> {
    let Statement::Loop(own) = statement else { return Ok(()) };
    check_loop(program, own, around).map_err(|reason| {
        let (var, kind) = (own.var, own.kind);
        VerifyError::Loop { var, kind, reason }
    })?;
    around.push(own);
    own.body.iter().try_for_each(|statement| check_statement(program, statement, around))?;
    around.pop();
    Ok(())
}

fn check_loop(program: &Program, own: &Loop, around: &[&Loop]) -> Result<(), String> {
    let bounded = own.most().is_some();
    match own.kind {
        // What bound ones need is checked in `launch`.
        LoopKind::Serial | LoopKind::Bound(_) => Ok(()),
        LoopKind::Parallel => match around {
            [] => program.threads_apart(own.var),
            [outer] if outer.kind == LoopKind::Serial => program.threads_apart(own.var),
            _ => Err("it is neither outermost nor directly below an outermost serial loop".into()),
        },
        LoopKind::Unrolled | LoopKind::Vectorized if !bounded => {
            Err("its extent has no constant bound".into())
        }
        LoopKind::Unrolled => Ok(()),
        LoopKind::Tensorized(intrinsic) => intrinsic.find(program, own).map(drop),
        LoopKind::Vectorized => {
            if own.body.iter().any(|statement| matches!(statement, Statement::Loop(_))) {
                return Err("it is not innermost".into());
            }
            program.independent(own.var)
        }
    }
}

/// Checks the memory of threads; [`super`] says what.
pub fn verify_registers(program: &Program) -> Result<(), VerifyError> {
    for (buffer, entry) in program.buffers.iter() {
        if matches!(entry.scope, Scope::Global | Scope::Shared) {
            continue;
        }
        let uses = |statement: &&Statement| {
            statement.blocks().iter().any(|block| touches(&program.blocks[*block], buffer))
        };
        if program.body.iter().filter(uses).count() > 1 {
            return Err(VerifyError::Private { buffer: entry.name.clone() });
        }
    }
    program.blocks_in_order().into_iter().try_for_each(|block| check_registers(program, block))
}

fn touches(block: &Block, buffer: BufferId) -> bool {
    block.buffer == buffer || block.reads(buffer)
}

fn check_registers(program: &Program, block: BlockId) -> Result<(), VerifyError> {
    let own = &program.blocks[block];
    let Some(path) = program.find_block(block) else { return Ok(()) };
    let Some(realize) = program.realize_of(block) else { return Ok(()) };
    let domain = program.domain_at(&path);
    let loops = program.enclosing(&path);
    if loops.iter().any(|outer| domain.bounds(&outer.extent).is_some_and(|own| own.max <= 0)) {
        // It never runs.
        return Ok(());
    }
    let check = |buffer: BufferId, indices: &[Expr]| {
        if program.buffers[buffer].scope != Scope::Register {
            return Ok(());
        }
        let indices: Vec<Expr> =
            indices.iter().map(|index| realize.resolve(own, index, &domain)).collect();
        let rolled = loops.iter().find(|own| {
            !matches!(own.kind, LoopKind::Unrolled | LoopKind::Vectorized | LoopKind::Tensorized(_))
                && indices.iter().any(|index| index.mentions(own.var))
        });
        match rolled {
            None => Ok(()),
            Some(rolled) => Err(VerifyError::Register {
                block: own.name.clone(),
                buffer: program.buffers[buffer].name.clone(),
                var: rolled.var,
            }),
        }
    };
    check(own.buffer, &own.indices)?;
    for (buffer, _) in program.buffers.iter() {
        own.loads(buffer).into_iter().try_for_each(|indices| check(buffer, indices))?;
    }
    Ok(())
}
