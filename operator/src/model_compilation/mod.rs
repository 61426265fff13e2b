//! `ModelCompilation`: observe, plan, apply, status.

pub mod deletion;
pub mod digest;
pub mod goals;
pub mod job;
pub mod model;
pub mod observe;
pub mod plan;
pub mod pools;
pub mod reconcile;
pub mod refusal;
pub mod request;
pub mod result;
pub mod status;
pub mod summary;
pub mod target;

/// The controller's name in keys, metrics and logs.
pub const CONTROLLER: &str = "modelcompilation";
