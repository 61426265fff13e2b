//! `vectorize`: an innermost loop becomes the lanes of a vector.
//!
//! Legal: an extent that is at most a constant, only blocks inside, and no two iterations write the same element; a
//! reduction goes through `rfactor` first.
//! Buys: one instruction for all lanes. Costs: loads and stores that are not contiguous along the
//! loop become gathers and scatters.

use crate::edit::loop_at;
use crate::error::{Outcome, refuse_loop};
use crate::serial::annotate;
use hone_tensor::{LoopKind, Program, Statement, VarId};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<()> {
    let own = loop_at(program, target)?;
    if own.most().is_none() {
        return refuse_loop(program, target, "its extent has no constant bound");
    }
    if own.body.iter().any(|statement| matches!(statement, Statement::Loop(_))) {
        return refuse_loop(program, target, "there is a loop inside it");
    }
    match program.independent(target) {
        Ok(()) => annotate(program, target, LoopKind::Vectorized),
        Err(reason) => refuse_loop(program, target, reason),
    }
}
