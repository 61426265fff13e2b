//! The steps, in order.

use std::sync::Arc;
use std::time::Duration;

use hone_crds::ModelCompilation;
use kube::ResourceExt;

use super::apply::{self, ApplyError};
use super::model::Plan;
use super::observe::{self, ObserveError};
use super::{CONTROLLER, plan, status};
use crate::broker::{self, Applicant};
use crate::context::Context;
use crate::runtime::queue::{Key, Priority};
use crate::runtime::worker::{FailureClass, ReconcileFailure, class_of};

/// Why a reconcile is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The state could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Something could not be done or written.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl ReconcileFailure for ReconcileError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Apply(ApplyError::NotLeading) => FailureClass::NotLeading,
            Self::Apply(ApplyError::Kube { source, .. }) => class_of(source),
            Self::Apply(ApplyError::Job(_)) | Self::Observe(_) => FailureClass::Fault,
        }
    }
}

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
    let plan = plan::plan(&context.config, &observed);
    ask(&context, &object, &plan);
    let done = plan.actions.clone();
    let mut applied = apply::apply(&context, &object, plan).await?;
    if !applied.refusals.is_empty() {
        // What the API server refused is part of what is seen, so the plan says what follows from it.
        observed.refusals = std::mem::take(&mut applied.refusals);
        let mut plan = plan::plan(&context.config, &observed);
        plan.actions.retain(|action| !done.contains(action));
        ask(&context, &object, &plan);
        let version = applied.resource_version;
        applied = apply::apply(&context, &object, plan).await?;
        applied.resource_version = version;
    }
    let again = applied.plan.again_seconds;
    status::write(&context, &object, &observed.jobs, applied).await?;
    Ok(again.map(Duration::from_secs))
}

/// Tells the broker what devices are wished for, and has the pools look that may have one.
fn ask(context: &Context, object: &ModelCompilation, plan: &Plan) {
    let applicant = Applicant {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    };
    for pool in context.broker.ask(&applicant, plan.requests.clone()) {
        let key = Key { kind: broker::CONTROLLER, namespace: String::new(), name: pool };
        match context.broker.may_have_free(&key.name) {
            true => context.queue.add(key, Priority::Change),
            false => context.queue.add_after(key, Duration::from_secs(5)),
        }
    }
}
