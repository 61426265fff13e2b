//! Tuning on one machine: searches for faster schedules of a model's programs by measuring, keeps every
//! trial in records, and lets a schedule replace the one before only where the whole network is faster.
//!
//! `session` is the loop; `device` and `measure` are the two ends of the process that measures;
//! `confirm` is the comparison in the network; `store` says where records lie.

mod confirm;
mod device;
mod interrupt;
mod measure;
mod near;
mod outcome;
mod protocol;
mod session;
mod statistics;
pub mod store;
mod summary;

pub use device::DEVICE_VARIABLE;
pub use interrupt::Interrupt;
pub use measure::serve;
pub use outcome::{Outcome, TaskOutcome};
pub use session::{Session, Settings};
pub use summary::Summary;
