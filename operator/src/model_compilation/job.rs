//! What the Job of a compilation needs besides its plan.

use hone_crds::ModelCompilation;
use k8s_openapi::api::batch::v1::Job;

use super::model::{JobPlan, Purpose};
use super::request::secrets;
pub use crate::children::manifest::JobError;
use crate::children::manifest::{self, Needs};
use crate::config::Config;
use crate::traces;

/// The Job of `plan` for `object`.
///
/// # Errors
/// [`JobError`] when our own values have no JSON form, which would be our bug.
pub fn manifest(
    config: &Config,
    object: &ModelCompilation,
    plan: &JobPlan,
) -> Result<Job, JobError> {
    let mut targets = object.spec.targets.iter();
    let target = targets.find(|target| Some(&target.name) == plan.target.as_ref());
    let compiles = plan.purpose == Purpose::Compile;
    let needs = Needs {
        worker: object.spec.worker.as_ref(),
        secrets: secrets(object, plan.purpose),
        shared_volume: compiles || object.spec.output.uri.starts_with("file://"),
        platform: target.and_then(|target| target.platform.as_ref()),
        span: Some(traces::whole(object)),
    };
    manifest::manifest(config, object, plan, &needs)
}
