//! `parallel`: a loop's iterations are spread over threads.
//!
//! Legal: the loop is outermost in a top-level statement, or directly below a serial one that is, and no two iterations
//! write the same element, but in memory of one thread.
//! Buys: all cores. Costs: a start and a wait, below a serial loop in each of its iterations; iterations should be few
//! and large.

use crate::edit::loop_path;
use crate::error::{Outcome, refuse_loop};
use crate::serial::annotate;
use hone_tensor::{Loop, LoopKind, Program, VarId};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<()> {
    let path = loop_path(program, target)?;
    let is_serial = |outer: &&Loop| outer.kind == LoopKind::Serial;
    if path.len() > 2 || !program.enclosing(&path).iter().all(is_serial) {
        let reason = "it is neither outermost nor directly below an outermost serial loop";
        return refuse_loop(program, target, reason);
    }
    match program.threads_apart(target) {
        Ok(()) => annotate(program, target, LoopKind::Parallel),
        Err(reason) => refuse_loop(program, target, reason),
    }
}
