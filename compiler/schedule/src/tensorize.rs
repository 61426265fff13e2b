//! `tensorize`: a loop and the one inside it become an instruction of some machines.
//!
//! Legal: a constant extent, and below it exactly the nest that the instruction stands for, a sum
//! whose initial value is set elsewhere. The nest stays, as the instruction's software model.
//! Buys: several products in each lane for one instruction. Costs: operands must lie in pairs or
//! fours; code for machines without the instruction runs the nest.

use crate::edit::loop_at;
use crate::error::{Outcome, refuse_loop};
use crate::serial::annotate;
use hone_tensor::{Intrinsic, LoopKind, Program, VarId};

pub(crate) fn apply(program: &mut Program, target: VarId, intrinsic: Intrinsic) -> Outcome<()> {
    let outermost = loop_at(program, target)?;
    if let Err(reason) = intrinsic.find(program, &outermost) {
        return refuse_loop(program, target, reason);
    }
    annotate(program, target, LoopKind::Tensorized(intrinsic))
}
