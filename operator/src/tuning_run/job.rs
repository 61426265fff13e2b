//! What the Job of a run needs besides its plan.

use hone_crds::TuningRun;
use k8s_openapi::api::batch::v1::Job;

use super::request::secrets;
use crate::children::manifest::{self, JobError, Needs};
use crate::children::steps::JobPlan;
use crate::config::Config;

/// The Job of `plan` for `object`.
///
/// # Errors
/// [`JobError`] when our own values have no JSON form, which would be our bug.
pub fn manifest(config: &Config, object: &TuningRun, plan: &JobPlan) -> Result<Job, JobError> {
    let needs = Needs {
        worker: object.spec.worker.as_ref(),
        secrets: secrets(object, plan.pool.as_ref(), plan.purpose),
        shared_volume: true,
        platform: Some(&object.spec.target),
        span: None,
    };
    manifest::manifest(config, object, plan, &needs)
}
