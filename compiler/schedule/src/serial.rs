//! `serial`: takes a loop's annotation away, so that it runs in order and may be split again.
//!
//! Legal: always, but for a bound loop on which a `sync` or another bound loop depends.

use crate::edit::{loop_at, loop_path, must_not_wait};
use crate::error::{Outcome, refuse_loop};
use hone_tensor::{LoopKind, Program, VarId, verify};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<()> {
    let bound = program.loop_of(target).is_some_and(|own| own.axis().is_some());
    annotate(program, target, LoopKind::Serial)?;
    if !bound {
        return Ok(());
    }
    verify(program).or_else(|error| refuse_loop(program, target, format!("then {error}")))
}

/// Sets a loop's kind.
pub(crate) fn annotate(program: &mut Program, target: VarId, kind: LoopKind) -> Outcome<()> {
    loop_path(program, target)?;
    if let Some(axis) = program.loop_of(target).and_then(|own| own.axis())
        && kind != LoopKind::Serial
    {
        let reason = format!("it is {}: make it serial first", axis.name());
        return refuse_loop(program, target, reason);
    }
    if kind != LoopKind::Serial {
        must_not_wait(program, &loop_at(program, target)?)?;
    }
    if let Some(own) = program.loop_of_mut(target) {
        own.kind = kind;
    }
    Ok(())
}
