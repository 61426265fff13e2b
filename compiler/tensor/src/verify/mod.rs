//! Checks that a program is well formed.
//!
//! Checked by [`verify`], after every schedule primitive in debug builds, and before code is made:
//! - form: a block stands at most once in the tree, a variable is bound by one loop or iterator,
//!   only variables of enclosing loops and the block's iterators are mentioned; ranks, counts and
//!   element types fit; spatial iterators come before reduction ones; a map has no reduction
//!   iterators; a buffer's size fits the index arithmetic;
//! - bounds: bindings stay in their iterator's domain and accesses in their buffer. What a predicate,
//!   the condition of a `Select` or an extent that may be zero protects is inside where these hold.
//!   What cannot be shown is refused;
//! - order: what a block reads was computed before, by the last update of its reduction; or it was stored
//!   in an earlier iteration of a loop around both, which its indices have to show;
//! - coverage: what a block certainly reads, and every element of an output, lies in the box around
//!   what is written before and is no larger than what can have been written; a reduction visits as
//!   many points, the first one first;
//! - loops: parallel ones are outermost, or directly below an outermost serial one, of which no iteration then leaves
//!   anything to a later one in memory of a thread; vectorized ones are innermost, and in both no iteration accesses
//!   what another one writes; vectorized and unrolled ones have a constant extent; tensorized ones
//!   contain the nest that their intrinsic stands for;
//! - limits are of serial and parallel loops, by a size that is an input, and mention loops around them only; that what they
//!   leave out is not needed is shown where they are made ([`crate::Prefix::limit`]);
//! - loops that are bound to a device's axes, and `sync`s: see `launch`.
//!
//! Checked by [`verify_registers`], before code is made: register buffers are indexed by unrolled,
//! vectorized and tensorized loops and constants only, and memory of one thread is used within one statement.

mod bounds;
mod carried;
mod coverage;
mod enumerate;
mod facts;
mod form;
mod launch;
mod limits;
mod loops;
mod order;

use crate::{Level, LoopKind, Program, VarId};
use thiserror::Error;

pub use launch::verify_launches;
pub use loops::verify_registers;

/// What is wrong with a program.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum VerifyError {
    /// A block stands at two places.
    #[error("block '{block}' stands more than once in the loop tree")]
    BlockTwice {
        /// The block.
        block: String,
    },
    /// A variable is bound at two places.
    #[error("variable {var} is bound more than once")]
    VarTwice {
        /// The variable.
        var: VarId,
    },
    /// A variable is used where no loop binds it.
    #[error("{object} mentions {var}, which is not bound there")]
    Unbound {
        /// The loop or block.
        object: String,
        /// The variable.
        var: VarId,
    },
    /// A block's parts do not fit each other.
    #[error("block '{block}': {reason}")]
    Form {
        /// The block.
        block: String,
        /// What does not fit.
        reason: String,
    },
    /// A binding takes values outside the iterator's domain.
    #[error("block '{block}': the binding of {var} takes {min}..={max}, its domain is 0..{extent}")]
    LeavesDomain {
        /// The block.
        block: String,
        /// The iterator.
        var: VarId,
        /// Least value.
        min: i64,
        /// Largest value.
        max: i64,
        /// The iterator's extent.
        extent: usize,
    },
    /// A binding of which it cannot be shown that it stays in the iterator's domain.
    #[error("block '{block}': it cannot be shown that the binding of {var} stays in 0..{extent}")]
    BindingUnshown {
        /// The block.
        block: String,
        /// The iterator.
        var: VarId,
        /// The iterator's extent.
        extent: usize,
    },
    /// An access of which it cannot be shown that it is inside its buffer.
    #[error(
        "block '{block}': it cannot be shown that its access to '{buffer}' is inside axis {axis} of \
         extent {extent}"
    )]
    AccessUnshown {
        /// The block.
        block: String,
        /// The buffer.
        buffer: String,
        /// The axis.
        axis: usize,
        /// The axis' extent.
        extent: usize,
    },
    /// An access outside a buffer.
    #[error(
        "block '{block}' accesses '{buffer}' at {min}..={max} on axis {axis} of extent {extent}"
    )]
    OutOfBounds {
        /// The block.
        block: String,
        /// The buffer.
        buffer: String,
        /// The axis.
        axis: usize,
        /// Least index.
        min: i64,
        /// Largest index.
        max: i64,
        /// The axis' extent.
        extent: usize,
    },
    /// A block reads what is not computed yet.
    #[error("block '{reader}' reads '{buffer}' before block '{writer}' has computed it")]
    Order {
        /// The reader.
        reader: String,
        /// The buffer.
        buffer: String,
        /// The writer.
        writer: String,
    },
    /// Nothing computes what a block reads or continues.
    #[error("block '{reader}' reads '{buffer}', which no block computes")]
    NeverWritten {
        /// The reader.
        reader: String,
        /// The buffer.
        buffer: String,
    },
    /// A block reads what nothing computes before.
    #[error(
        "block '{reader}' reads {needed} on axis {axis} of '{buffer}'; written before: {written}"
    )]
    NotCovered {
        /// The reader.
        reader: String,
        /// The buffer.
        buffer: String,
        /// The axis.
        axis: usize,
        /// What is written, in words.
        written: String,
        /// The indices read.
        needed: String,
    },
    /// A part of an output is not computed.
    #[error("output '{buffer}' has {needed} on axis {axis}; written: {written}")]
    OutputNotCovered {
        /// The output.
        buffer: String,
        /// The axis.
        axis: usize,
        /// What is written, in words.
        written: String,
        /// The indices of the axis.
        needed: String,
    },
    /// A reduction leaves points out.
    #[error("block '{block}' reduces over {var} in {needed}; visited: {written}")]
    ReductionNotCovered {
        /// The block.
        block: String,
        /// The reduction iterator.
        var: VarId,
        /// What is visited, in words.
        written: String,
        /// The iterator's domain.
        needed: String,
    },
    /// A reduction does not begin with the point at which its initial value is stored.
    #[error("block '{block}': the first iteration does not bind {var} to 0")]
    InitialLate {
        /// The block.
        block: String,
        /// The reduction iterator.
        var: VarId,
    },
    /// A buffer that is too large for index arithmetic.
    #[error("buffer '{buffer}' has more bytes than 64-bit indices count")]
    TooLarge {
        /// The buffer.
        buffer: String,
    },
    /// A loop's kind does not fit it.
    #[error("loop {var} is {}, but {reason}", kind_name(*kind))]
    Loop {
        /// The loop.
        var: VarId,
        /// Its kind.
        kind: LoopKind,
        /// What does not fit.
        reason: String,
    },
    /// A limit does not fit its loop.
    #[error("the limit of loop {var} {reason}")]
    LoopLimit {
        /// The loop.
        var: VarId,
        /// What does not fit.
        reason: &'static str,
    },
    /// A register buffer is indexed by something that is not known when code is made.
    #[error(
        "block '{block}' indexes the register buffer '{buffer}' by {var}: unroll or vectorize that loop"
    )]
    Register {
        /// The block.
        block: String,
        /// The buffer.
        buffer: String,
        /// The loop.
        var: VarId,
    },
    /// A `sync` that not all lanes reach, or that nobody can wait at.
    #[error("sync {}: {reason}", level.name())]
    Sync {
        /// What waits.
        level: Level,
        /// What is wrong.
        reason: String,
    },
    /// Shared memory that is not that of one launch's blocks.
    #[error("'{buffer}' is shared memory of a block, but {reason}")]
    Shared {
        /// The buffer.
        buffer: String,
        /// What is wrong.
        reason: String,
    },
    /// A launch asks for more than the device has.
    #[error("a launch has {actual} {what}, the device allows {most}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// How many the launch has.
        actual: usize,
        /// How many it may have.
        most: usize,
    },
    /// Lanes may access an element that another one writes, with no `sync` between.
    #[error("race: {text}")]
    Race {
        /// Which blocks, and in which buffer.
        text: String,
    },
    /// Memory of one thread is used by several statements.
    #[error("'{buffer}' is memory of one thread, but several kernels use it")]
    Private {
        /// The buffer.
        buffer: String,
    },
}

/// Checks a program; the module's head lists what.
pub fn verify(program: &Program) -> Result<(), VerifyError> {
    form::check(program)?;
    bounds::check(program)?;
    order::check(program)?;
    coverage::check(program)?;
    loops::check(program)?;
    limits::check(program)?;
    launch::check(program)
}

fn kind_name(kind: LoopKind) -> &'static str {
    match kind {
        LoopKind::Serial => "serial",
        LoopKind::Parallel => "parallel",
        LoopKind::Unrolled => "unrolled",
        LoopKind::Vectorized => "vectorized",
        LoopKind::Tensorized(intrinsic) => intrinsic.name(),
        LoopKind::Bound(axis) => axis.name(),
    }
}

#[cfg(test)]
mod tests;
