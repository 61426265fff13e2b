//! The steps, in order.

use std::sync::Arc;
use std::time::Duration;

use hone_crds::TuningRun;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{CONTROLLER, job, observe, plan, status};
use crate::broker::{self, Applicant};
use crate::children::apply::{self, Owner, ReconcileError};
use crate::children::manifest::JobError;
use crate::children::steps::JobPlan;
use crate::context::Context;
use crate::runtime::queue::Key;

impl Owner for TuningRun {
    fn job(&self, context: &Context, plan: &JobPlan) -> Result<Job, JobError> {
        job::manifest(&context.config, self, plan)
    }
}

/// Brings one run a step on: after which time to look again, unless something changes sooner.
///
/// # Errors
/// [`ReconcileError`]; the caller tries again with back-off.
pub async fn reconcile(
    object: Arc<TuningRun>,
    context: Arc<Context>,
) -> Result<Option<Duration>, ReconcileError> {
    let key = Key::of(CONTROLLER, &*object);
    if context.queue.is_stale(&key, object.resource_version().as_deref()) {
        // The watch queues it; the second look is for a watch that was cut off meanwhile.
        return Ok(Some(Duration::from_secs(5)));
    }
    let applicant = || Applicant::of(CONTROLLER, &*object);
    let mut observed = observe::observe(&context, &object).await?;
    let mut plan = plan::plan(&context.config, &observed);
    broker::ask(&context, applicant(), &plan.requests);
    let mut applied = apply::apply(&context, &*object, &plan.actions).await?;
    if !applied.refusals.is_empty() {
        // What the API server refused is part of what is seen, so the plan says what follows from it.
        observed.refusals = std::mem::take(&mut applied.refusals);
        let done = std::mem::take(&mut plan.actions);
        plan = plan::plan(&context.config, &observed);
        plan.actions.retain(|action| !done.contains(action));
        broker::ask(&context, applicant(), &plan.requests);
        applied = apply::apply(&context, &*object, &plan.actions).await?;
    }
    status::write(&context, &object, plan.status, applied).await?;
    Ok(plan.again_seconds.map(Duration::from_secs))
}
