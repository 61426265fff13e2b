//! `serial`: takes a loop's annotation away, so that it runs in order and may be split again.
//!
//! Legal: always.

use crate::edit::loop_path;
use crate::error::Outcome;
use hone_tensor::{LoopKind, Program, VarId};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<()> {
    annotate(program, target, LoopKind::Serial)
}

/// Sets a loop's kind.
pub(crate) fn annotate(program: &mut Program, target: VarId, kind: LoopKind) -> Outcome<()> {
    loop_path(program, target)?;
    if let Some(own) = program.loop_of_mut(target) {
        own.kind = kind;
    }
    Ok(())
}
