//! Reshapes loop programs without changing what they compute; each change is a recorded step.
//!
//! A [`Schedule`] holds a program and the [`Trace`] of steps that made it from the plain one. Every
//! primitive is a method of the schedule and a [`Step`]; it checks that it is legal, says why where
//! it is not ([`ScheduleError::Refused`]), and leaves the program as it was then. Replaying a trace on
//! the same plain program gives an identical program: loops and blocks are named by their table
//! handles, and handles are given out in a fixed order. The trace is therefore the tuning record.
//!
//! Conventions:
//! - loops are named by their variable, blocks by their handle;
//! - a loop that a primitive makes starts serial; annotated loops must be made serial again before
//!   they are split or fused;
//! - *below* a loop means in its body at any depth;
//! - a primitive that moves or rewrites a block drops the loops it had.
//!
//! A new primitive is a file here with `apply`, a line in the list below and one in [`step`]'s list.

mod argument;
mod compact;
mod edit;
mod error;
mod region;
mod reindex;
mod schedule;
mod step;
mod tensorize;
mod trace;

mod bind;
mod cache_read;
mod cache_write;
mod compute_at;
mod compute_inline;
mod decompose_padding;
mod decompose_reduction;
mod fuse;
mod insert_syncs;
mod merge;
mod parallel;
mod partition;
mod prefetch;
mod reorder;
mod reverse_compute_at;
mod reverse_compute_inline;
mod rfactor;
mod serial;
mod set_scope;
mod split;
mod transform_layout;
mod unroll;
mod vectorize;
mod virtual_thread;

pub use argument::Handle;
pub use error::ScheduleError;
pub use schedule::Schedule;
pub use step::Step;
pub use trace::{Entry, Trace};
pub use transform_layout::{AxisPart, Layout};

#[cfg(test)]
mod tests;
