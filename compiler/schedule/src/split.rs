//! `split`: one loop becomes two, `v = outer * factor + inner`.
//!
//! Legal: for every serial loop and every factor of at least 1. Where the factor does not divide the
//! extent the inner loop ends early in the last round: its extent is
//! `min(factor, extent - outer * factor)`; nothing is computed twice and no guard is added.
//! Buys: a part of known size, to move elsewhere, vectorize or unroll. Costs: an index multiplication,
//! and a loop of varying extent where it does not divide (see `partition`).

use crate::edit::{loop_at, loop_path, must_be_serial, replace, substitute};
use crate::error::{Outcome, refuse_loop};
use hone_tensor::{Expr, Loop, LoopKind, Program, Statement, VarId};

pub(crate) fn apply(
    program: &mut Program,
    target: VarId,
    factor: usize,
) -> Outcome<(VarId, VarId)> {
    let path = loop_path(program, target)?;
    let own = loop_at(program, target)?;
    must_be_serial(program, &own)?;
    let Some(step) = i64::try_from(factor).ok().filter(|factor| *factor > 0) else {
        return refuse_loop(program, target, format!("{factor} is no factor"));
    };
    let name = program.vars[target].name.clone();
    let outer = program.add_var(format!("{name}_o"));
    let inner = program.add_var(format!("{name}_i"));
    let mut domain = program.domain_at(&path);
    let (outer_extent, inner_extent) = extents(&own.extent, outer, step);
    let outer_extent = domain.simplify_extent(&outer_extent);
    domain.push(outer, &outer_extent);
    let inner_extent = domain.simplify_extent(&inner_extent);
    domain.push(inner, &inner_extent);
    let mut body = own.body;
    let index = Expr::Var(outer) * step + Expr::Var(inner);
    substitute(program, &mut body, &domain, &|var| (var == target).then(|| index.clone()));
    let kind = LoopKind::Serial;
    let inside = Loop { var: inner, extent: inner_extent, kind, body };
    let body = vec![Statement::Loop(Box::new(inside))];
    let outside = Loop { var: outer, extent: outer_extent, kind, body };
    replace(program, &path, Statement::Loop(Box::new(outside)));
    Ok((outer, inner))
}

fn extents(whole: &Expr, outer: VarId, factor: i64) -> (Expr, Expr) {
    match whole.as_integer() {
        Some(whole) if whole <= factor => (Expr::Integer(1), Expr::Integer(whole)),
        Some(whole) if whole % factor == 0 => {
            (Expr::Integer(whole / factor), Expr::Integer(factor))
        }
        _ => {
            let rounds = (whole.clone() + (factor - 1)).floor_divide(Expr::Integer(factor));
            let rest = whole.clone() - Expr::Var(outer) * factor;
            (rounds, Expr::Integer(factor).minimum(rest))
        }
    }
}
