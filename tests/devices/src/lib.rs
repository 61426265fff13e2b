//! What devices of many lanes are tested with: kernels of the official operator cases and of whole networks.
//!
//! A [`Collector`] computes graphs by the interpreter of loop programs, kernel by kernel. It keeps the code that a
//! [`Device`] makes of each kernel, runs it on the same inputs and holds the results against the interpreter's.

mod artifacts;
mod collector;
mod compare;
mod networks;
mod programs;

pub use artifacts::{error, outputs_in_c};
pub use collector::{Collector, Device, Job, Outcome, Run};
pub use compare::compare;
pub use networks::{inputs, network_outcomes, networks};
pub use programs::{product, schedule_cases, sixteen_bits, sums, whole_inputs};

/// Says how many of something there were, in the form that `cargo xtask gpu` adds up.
pub fn count(number: usize, what: &str) {
    println!("counts: {number} {what}");
}
