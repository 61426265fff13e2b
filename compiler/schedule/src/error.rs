//! Why a step was not taken.

use hone_tensor::{BlockId, Program, VarId};
use thiserror::Error;

/// Why a schedule could not be changed or replayed. The program is as it was before the step.
#[derive(Debug, Error)]
pub enum ScheduleError {
    /// A block was asked for by a name that no block of the loop tree has.
    #[error("the program has no block named '{name}': it has {known}")]
    NoSuchBlock {
        /// The name.
        name: String,
        /// Names of the blocks there are.
        known: String,
    },
    /// The step would change what the program computes, or is not defined on this object.
    #[error("{primitive} of {object} refused: {reason}")]
    Refused {
        /// The primitive.
        primitive: &'static str,
        /// The loop or block.
        object: String,
        /// Why.
        reason: String,
    },
    /// A step left a program that is not well formed: a defect of the primitive.
    #[error("the program is not well formed after {step}")]
    Broken {
        /// The step.
        step: String,
        /// What the verifier found.
        #[source]
        source: Box<hone_tensor::VerifyError>,
    },
    /// The program that code was to be made from is not well formed: a defect of a primitive.
    #[error("the scheduled program is not well formed")]
    Unsound(#[source] Box<hone_tensor::VerifyError>),
    /// A replayed step gave other handles than the recorded one: another program or another version.
    #[error(
        "step {place} of the trace gave {actual}, the trace has {expected}: it is of another program"
    )]
    Diverged {
        /// Position in the trace.
        place: usize,
        /// Handles recorded.
        expected: String,
        /// Handles now.
        actual: String,
    },
    /// Text that is not a step.
    #[error("'{text}' is not a step: {reason}")]
    Syntax {
        /// The text.
        text: String,
        /// What is wrong.
        reason: String,
    },
}

/// A refusal before the primitive's name is put to it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) object: String,
    pub(crate) reason: String,
}

pub(crate) type Outcome<T> = Result<T, Refusal>;

/// A refusal that concerns a loop.
pub(crate) fn refuse_loop<T>(
    program: &Program,
    target: VarId,
    reason: impl Into<String>,
) -> Outcome<T> {
    Err(Refusal { object: loop_name(program, target), reason: reason.into() })
}

/// A refusal that concerns a block.
pub(crate) fn refuse_block<T>(
    program: &Program,
    block: BlockId,
    reason: impl Into<String>,
) -> Outcome<T> {
    Err(Refusal { object: block_name(program, block), reason: reason.into() })
}

pub(crate) fn loop_name(program: &Program, target: VarId) -> String {
    match program.vars.get(target) {
        Some(var) => format!("loop {target} '{}'", var.name),
        None => format!("loop {target}"),
    }
}

pub(crate) fn block_name(program: &Program, block: BlockId) -> String {
    match program.blocks.get(block) {
        Some(own) => format!("{block} '{}'", own.name),
        None => block.to_string(),
    }
}
