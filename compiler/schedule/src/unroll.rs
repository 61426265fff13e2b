//! `unroll`: a loop is written out.
//!
//! Legal: for a loop whose extent is constant, or at most a constant (the last part of a split).
//! Buys: constant indices, so that small buffers can live in registers, and independent instructions
//! side by side. Costs: code size.

use crate::edit::loop_at;
use crate::error::{Outcome, refuse_loop};
use crate::serial::annotate;
use hone_tensor::{LoopKind, Program, VarId};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<()> {
    if loop_at(program, target)?.most().is_none() {
        return refuse_loop(program, target, "its extent has no constant bound");
    }
    annotate(program, target, LoopKind::Unrolled)
}
