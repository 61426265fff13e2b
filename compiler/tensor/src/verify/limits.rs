//! The form of loops' limits.

use super::VerifyError;
use crate::{Expr, Limit, LoopKind, Program, Role};
use hone_types::DataType;

pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    program.limits.iter().try_for_each(|limit| {
        check_limit(program, limit)
            .map_err(|reason| VerifyError::LoopLimit { var: limit.target, reason })
    })
}

fn check_limit(program: &Program, limit: &Limit) -> Result<(), &'static str> {
    let path = program.find_loop(limit.target).ok_or("is of no loop")?;
    let own = program.loop_of(limit.target).ok_or("is of no loop")?;
    if !matches!(own.kind, LoopKind::Serial | LoopKind::Parallel) {
        return Err("is of one that is neither serial nor parallel");
    }
    if program.limits.iter().filter(|other| other.target == limit.target).count() > 1 {
        return Err("is not the only one");
    }
    let around = program.enclosing(&path);
    let is_known = |var| var == own.var || around.iter().any(|outer| outer.var == var);
    let mut fits = true;
    limit.first.visit(&mut |part| match part {
        Expr::Var(var) => fits &= is_known(*var),
        Expr::Load(..) => fits = false,
        _ => {}
    });
    if !fits || limit.first.dtype(program) != DataType::I64 {
        return Err("is no index over loops around it");
    }
    let size = &program.buffers[limit.size];
    let is_input = matches!(size.role, Role::Input(_));
    match is_input && size.dtype == DataType::I64 && size.shape.is_empty() {
        true => Ok(()),
        false => Err("is by no input of one i64"),
    }
}
