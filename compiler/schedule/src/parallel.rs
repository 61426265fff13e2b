//! `parallel`: a loop's iterations are spread over threads.
//!
//! Legal: the loop is outermost in a top-level statement and no two iterations write the same
//! element, but in memory of one thread.
//! Buys: all cores. Costs: a start and a wait; iterations should be few and large.

use crate::edit::loop_path;
use crate::error::{Outcome, refuse_loop};
use crate::serial::annotate;
use hone_tensor::{LoopKind, Program, VarId};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<()> {
    if loop_path(program, target)?.len() > 1 {
        return refuse_loop(program, target, "it is not outermost");
    }
    match program.threads_apart(target) {
        Ok(()) => annotate(program, target, LoopKind::Parallel),
        Err(reason) => refuse_loop(program, target, reason),
    }
}
