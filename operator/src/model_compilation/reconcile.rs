//! The steps, in order.

use std::sync::Arc;
use std::time::Duration;

use hone_crds::ModelCompilation;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{CONTROLLER, job, observe, plan, status};
use crate::children::apply::{self, Owner, ReconcileError};
use crate::children::manifest::JobError;
use crate::children::steps::JobPlan;
use crate::context::Context;
use crate::runtime::queue::Key;

/// Brings one object a step on: after which time to look again, unless something changes sooner.
///
/// # Errors
/// [`ReconcileError`]; the caller tries again with back-off.
pub async fn reconcile(
    object: Arc<ModelCompilation>,
    context: Arc<Context>,
) -> Result<Option<Duration>, ReconcileError> {
    let key = Key::of(CONTROLLER, &*object);
    if context.queue.is_stale(&key, object.resource_version().as_deref()) {
        // The watch queues it; the second look is for a watch that was cut off meanwhile.
        return Ok(Some(Duration::from_secs(5)));
    }
    let mut observed = observe::observe(&context, &object).await?;
    let (plan, applied) = apply::carry_out(&context, &*object, CONTROLLER, |refusals| {
        observed.refusals = refusals;
        plan::plan(&context.config, &observed)
    })
    .await?;
    status::write(&context, &object, &observed.jobs, plan.status, applied).await?;
    Ok(plan.again_seconds.map(Duration::from_secs))
}

impl Owner for ModelCompilation {
    fn job(&self, context: &Context, plan: &JobPlan) -> Result<Job, JobError> {
        job::manifest(&context.config, self, plan)
    }
}
