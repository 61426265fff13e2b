//! `TuningRun`: observe, plan, apply, status. One Job at a time searches, and measures on one device of the pool; what it
//! finds lies in the run's log, from which the next Job goes on. Sessions measure on further devices.

pub mod digest;
pub mod job;
pub mod model;
pub mod observe;
pub mod plan;
pub mod progress;
pub mod reconcile;
pub mod request;
pub mod result;
pub mod sessions;
pub mod status;
pub mod warm_start;

/// The controller's name in keys, metrics and logs.
pub const CONTROLLER: &str = "tuningrun";
