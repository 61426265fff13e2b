//! What to compute, as loop programs over buffers; no operator names, no machine, no search.
//!
//! A [`Program`] holds buffers, blocks and a tree of loops. A *block* computes one buffer: iterators
//! with constant extents (spatial or reduction), and one store `buffer[indices] = value` or, for a
//! reduction, `buffer[indices] = combine(buffer[indices], value)` after an initial value. A block
//! stands once in the loop tree, as a [`Realize`] that binds each of its iterators to an expression
//! over the enclosing loops' variables. Operators *define* by adding blocks through a [`Builder`]; a
//! schedule then reshapes loops and moves blocks without changing what is computed.
//!
//! Always holds (the verifier checks it; `tests/programs` has a refused case of each):
//! - each block stands once in the tree (or no longer, once it was inlined); each loop variable
//!   belongs to one loop;
//! - a block's bindings never leave its iterators' domain. They leave out nothing that is needed: what
//!   a later reader certainly reads, every element of an output, every point of a reduction. The
//!   verifier compares with the box around what is written and with the number of elements that can
//!   have been written. A hole inside the box that the number does not show is left to the
//!   interpreter, whose fresh memory is NaN; so is what is read under a condition;
//! - every buffer access is inside the buffer's shape where it is executed: under its predicate, on
//!   its side of a `Select`, below loops that may not run where they do. What cannot be shown to be
//!   inside is refused;
//! - a reduction's first update at a point comes after its initial value there; readers come after
//!   the last update. The initial value is stored where all reduction iterators are 0, directly before
//!   that update; loops count up from 0, so that this comes first, and again where a moved block
//!   computes the same elements again;
//! - a map may read what earlier iterations of a loop around it stored, its own buffer included: a
//!   recurrence or a running sum. The indices show that the iteration is an earlier one, so that no
//!   primitive that keeps this changes a result; what the first iteration reads instead stands
//!   under a condition. Such a loop is neither parallel nor vectorized;
//! - loops of kind [`LoopKind::Parallel`] are outermost in a top-level statement, or directly below a serial loop that
//!   is ([`Waves`]): each iteration of that one waits for all of theirs. Those of kind
//!   [`LoopKind::Vectorized`] innermost. No iteration of them reads or writes an element that another
//!   one writes, except in memory of one thread, which is used below the parallel loop only;
//! - loops of kind [`LoopKind::Tensorized`] contain just the nest that their intrinsic stands for;
//! - loops that are bound to a device's axes (`launch.rs` in `verify` has the whole list) stand grid around
//!   block around lane; no axis is bound twice in one nest; a `sync` is reached by all lanes of a block or by
//!   none; between two of them no lane accesses what another one writes, in shared memory as in global
//!   ([`verify_launches`], once a schedule is complete);
//! - buffers in registers are indexed by unrolled, vectorized and tensorized loops and constants only
//!   ([`verify_registers`], once a schedule is complete).
//!
//! A loop's extent is a constant, or `min(factor, bound - outer * factor)` style expressions for the
//! last part of a split that does not divide; where it comes to zero or less, the loop does not run.
//! Index arithmetic is in `i64`; what does not fit is not simplified, and refused as an index.
//!
//! A block's expressions speak of its iterators. Where a buffer was shrunk to what one iteration of a
//! loop uses, the indices into it may also mention variables of loops around the block, to count from
//! the first element used. [`Realize::resolve`] gives any expression of a block over loop variables
//! alone, simplified: what the interpreter runs and code is made from.

mod affine;
mod builder;
mod domain;
mod epochs;
#[cfg(test)]
mod exhaustive;
mod expr;
mod hardware;
mod independence;
mod interpret;
mod intrinsic;
mod launch;
mod prefix;
mod program;
mod steps;
mod sum;
mod text;
mod tree;
mod verify;
mod waves;

pub use affine::{Range, bounds, simplify};
pub use builder::{Builder, Indices};
pub use domain::Domain;
pub use epochs::Conflict;
pub use expr::{BinaryOp, Expr, UnaryOp};
pub use hardware::{Axis, Dimension, Level, Limits};
pub use interpret::{Accessor, InterpretError, Race, interpret};
pub use intrinsic::{Extent, Intrinsic, Match};
pub use launch::Launch;
pub use prefix::{Behind, Contents, Need, Positions, Prefix, contents};
pub use program::{
    Block, BlockBody, BlockId, Buffer, BufferId, Combiner, Iterator, IteratorKind, Limit, Loop,
    LoopKind, Prefetch, Program, Realize, Role, Scope, Statement, Var, VarId,
};
pub use steps::{Argument, Kernel, Step};
pub use text::{ParseError, parse};
pub use verify::{VerifyError, verify, verify_launches, verify_registers};
pub use waves::Waves;
