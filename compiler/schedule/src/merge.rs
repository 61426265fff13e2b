//! `merge`: two neighbouring loops become one, whose iterations do what the first does and then what the second does.
//!
//! Legal: both serial, of the same constant extent, the second directly behind the first; no buffer is written below both;
//! and what the second reads in an iteration of what the first writes, that iteration or an earlier one of the first has
//! written. Every element is stored once, so nothing that the first reads can be changed too early.
//! Buys: what the second reads is still in the cache or in registers, and threads wait once where they waited twice.
//! Costs: the operands of both share the caches. It is loop fusion (Kennedy and McKinley, 1993); [`super::fuse`] makes one of
//! nested loops.

use crate::edit::{loop_at, loop_path, must_be_serial, replace, substitute};
use crate::error::{Outcome, Refusal, loop_name, refuse_loop};
use hone_tensor::{Expr, Program, Statement, VarId};

pub(crate) fn apply(program: &mut Program, first: VarId, second: VarId) -> Outcome<()> {
    let (path, behind) = (loop_path(program, first)?, loop_path(program, second)?);
    let (mut own, other) = (loop_at(program, first)?, loop_at(program, second)?);
    must_be_serial(program, &own)?;
    must_be_serial(program, &other)?;
    let mut next = path.clone();
    if let Some(last) = next.last_mut() {
        *last += 1;
    }
    if next != behind {
        let reason = format!("it does not stand directly behind {}", loop_name(program, first));
        return refuse_loop(program, second, reason);
    }
    if own.extent.as_integer().is_none() || own.extent != other.extent {
        let reason = format!("its extent is not that of {}", loop_name(program, first));
        return refuse_loop(program, second, reason);
    }
    let written = |body: &[Statement]| -> Vec<_> {
        let blocks = body.iter().flat_map(Statement::blocks);
        blocks.map(|block| program.blocks[block].buffer).collect()
    };
    let (one, rest) = (written(&own.body), written(&other.body));
    if let Some(buffer) = one.into_iter().find(|buffer| rest.contains(buffer)) {
        let reason = format!("both write '{}'", program.buffers[buffer].name);
        return refuse_loop(program, second, reason);
    }
    let mut domain = program.domain_at(&path);
    domain.push(first, &own.extent);
    let mut body = other.body;
    substitute(program, &mut body, &domain, &|var| (var == second).then_some(Expr::Var(first)));
    own.body.extend(body);
    replace(program, &path, Statement::Loop(Box::new(own)));
    if let Some((last, above)) = behind.split_last()
        && let Some(around) = program.body_at_mut(above)
    {
        around.remove(*last);
    }
    hone_tensor::verify(program).map_err(|error| Refusal {
        object: loop_name(program, first),
        reason: format!("then {error}"),
    })
}
