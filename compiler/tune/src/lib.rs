//! Chooses schedules: templates emit traces; a source of decisions sets their knobs, by default an
//! analytic model.
//!
//! A template is a function that takes a plain program and applies primitives to it; which one fits
//! is read off the program itself (its accesses and block axes), never off operator names. Every
//! template may refuse; the last one, plain loops, never does.

mod access;
mod decisions;
mod device;
mod digest;
mod grain;
mod inline;
mod templates;
mod tile;

pub use decisions::{
    Choice, Decision, Preferred, Prescription, Question, Randomly, Replay, Source, WholeSoftmax,
};
pub use device::{DeviceSchedule, plain_for_device, schedule_for_device};
pub use digest::structural_digest;
pub use grain::{FUNCTION_OPERATIONS, StatementWork, min_parts_per_thread, work};
pub use hone_machine::Machine;
pub use templates::{Plain, Scheduled, schedule, schedule_as, schedule_naively, schedule_with};
