//! `fuse`: two loops become one, over all pairs in the same order.
//!
//! Legal: both serial, the inner one directly and alone inside the outer, with a constant extent.
//! Buys: one loop with more iterations, to spread over threads or to split anew. Costs: a division
//! and a remainder in the indices, unless a later split takes them out again.

use crate::edit::{loop_at, loop_path, must_be_serial, replace, substitute};
use crate::error::{Outcome, loop_name, refuse_loop};
use hone_tensor::{Expr, Loop, LoopKind, Program, Statement, VarId};

pub(crate) fn apply(program: &mut Program, outer: VarId, inner: VarId) -> Outcome<VarId> {
    let path = loop_path(program, outer)?;
    let (first, second) = (loop_at(program, outer)?, loop_at(program, inner)?);
    must_be_serial(program, &first)?;
    must_be_serial(program, &second)?;
    match first.body.as_slice() {
        [Statement::Loop(only)] if only.var == inner => {}
        _ => {
            let reason = format!("it does not stand alone inside {}", loop_name(program, outer));
            return refuse_loop(program, inner, reason);
        }
    }
    let Some(count) = second.extent.as_integer() else {
        return refuse_loop(program, inner, "its extent is not constant");
    };
    let name = format!("{}_{}", program.vars[outer].name, program.vars[inner].name);
    let fused = program.add_var(name);
    let mut domain = program.domain_at(&path);
    let extent = domain.simplify_extent(&(first.extent * count));
    domain.push(fused, &extent);
    let mut body = second.body;
    let quotient = Expr::Var(fused).floor_divide(Expr::Integer(count));
    let rest = Expr::Var(fused).modulo(Expr::Integer(count));
    substitute(program, &mut body, &domain, &|var| match var {
        _ if var == outer => Some(quotient.clone()),
        _ if var == inner => Some(rest.clone()),
        _ => None,
    });
    let own = Loop { var: fused, extent, kind: LoopKind::Serial, body };
    replace(program, &path, Statement::Loop(Box::new(own)));
    Ok(fused)
}
