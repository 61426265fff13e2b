//! Tekton's `CustomRun` whose task is a `ModelCompilation` or a `TuningRun`: a pipeline has one as a task, with results,
//! timeout, retries and cancellation, and no pod that waits for it.
//!
//! Of each attempt one object is made, which the run controls; what it says becomes the run's condition. Nothing is done
//! here unless the administrator asks for it ([`crate::arguments::Arguments::tekton`]) and the cluster serves the kind.

pub mod apply;
pub mod asked;
pub mod kinds;
pub mod model;
pub mod observe;
pub mod params;
pub mod plan;
pub mod reason;
pub mod reconcile;
pub mod resource;
pub mod results;
pub mod served;
pub mod status;

pub use resource::CustomRun;

/// The controller's name in keys, metrics and logs.
pub const CONTROLLER: &str = "customrun";
