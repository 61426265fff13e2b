//! Chooses schedules: templates emit traces with knobs, an analytic model sets the knobs.
//!
//! A template is a function that takes a plain program and applies primitives to it; which one fits
//! is read off the program's own form (its accesses and iterators), never off operator names. Every
//! template may refuse; the last one, plain loops, never does.

mod access;
mod grain;
mod inline;
mod machine;
mod templates;
mod tile;

pub use grain::min_tasks_per_thread;
pub use machine::Machine;
pub use templates::{Scheduled, schedule, schedule_naively};
