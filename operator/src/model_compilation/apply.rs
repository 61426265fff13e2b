//! Does what a plan says. Each action may be done again harmlessly.

use hone_crds::ModelCompilation;
use hone_crds::status::Failure;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::job::{self, JobError};
use super::model::{Action, JobBounds, JobPlan, Plan};
use super::names;
use super::target::failure;
use crate::context::Context;

/// Why an action failed in a way that is worth trying again.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// This replica does not hold the lease any more, or cannot tell.
    #[error("this replica does not lead: nothing is written")]
    NotLeading,
    /// A Job cannot be written down.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The API server refused or did not answer.
    #[error("cannot {what}")]
    Kube {
        /// What was tried, on which object.
        what: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
}

/// What came of a plan. Only this can become a status.
#[derive(Debug)]
pub struct Applied {
    /// The plan.
    pub plan: Plan,
    /// The resource version to which the status belongs.
    pub resource_version: Option<String>,
    /// Targets whose Job the API server refused, and why.
    pub refused: Vec<(Option<String>, Failure)>,
    /// Whether the object is on its way out, so that no status is written.
    pub gone: bool,
}

/// Does all actions of `plan` in order.
///
/// # Errors
/// [`ApplyError`]; what was done before stays done, and is found again by the next look.
pub async fn apply(
    context: &Context,
    object: &ModelCompilation,
    plan: Plan,
) -> Result<Applied, ApplyError> {
    let mut applied = Applied {
        resource_version: object.resource_version(),
        plan,
        refused: Vec::new(),
        gone: false,
    };
    for action in applied.plan.actions.clone() {
        if !context.fence.leads() {
            return Err(ApplyError::NotLeading);
        }
        match action {
            Action::AddFinalizer => {
                applied.resource_version = set_finalizer(context, object, true).await?;
            }
            Action::RemoveFinalizer => {
                applied.resource_version = set_finalizer(context, object, false).await?;
                applied.gone |= object.metadata.deletion_timestamp.is_some();
            }
            Action::CreateJob(plan) => {
                if let Some(why) = create_job(context, object, &plan).await? {
                    applied.refused.push((plan.target.clone(), why));
                }
            }
            Action::DeleteJob(name) => delete_job(context, object, &name).await?,
            Action::AdjustJob(bounds) => adjust_job(context, object, &bounds).await?,
            Action::DeleteSelf => {
                delete_self(context, object).await?;
                applied.gone = true;
            }
            // A Job that was refused has not started.
            Action::Event(event) if event.reason == "Started" && !applied.refused.is_empty() => {}
            Action::Event(event) => context.events.send(event, object.object_ref(&())),
        }
    }
    Ok(applied)
}

fn kube_error(what: String) -> impl FnOnce(kube::Error) -> ApplyError {
    move |source| ApplyError::Kube { what, source: Box::new(source) }
}

fn compilations(context: &Context, object: &ModelCompilation) -> Api<ModelCompilation> {
    Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default())
}

fn jobs(context: &Context, object: &ModelCompilation) -> Api<Job> {
    Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default())
}

/// Adds or removes our finalizer at exactly the version that was planned for.
async fn set_finalizer(
    context: &Context,
    object: &ModelCompilation,
    wanted: bool,
) -> Result<Option<String>, ApplyError> {
    let mut finalizers: Vec<&str> = object.finalizers().iter().map(String::as_str).collect();
    finalizers.retain(|name| *name != names::FINALIZER);
    if wanted {
        finalizers.push(names::FINALIZER);
    }
    let patch = json!({"metadata": {
        "finalizers": finalizers, "resourceVersion": object.resource_version(),
    }});
    let name = object.name_any();
    let done = compilations(context, object)
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    match done {
        Ok(object) => Ok(object.resource_version()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => {
            Err(kube_error(format!("change the finalizers of ModelCompilation '{name}'"))(error))
        }
    }
}

/// Makes the Job, which its name identifies; the failure where the API server refuses it for what is
/// in it. Made and not applied: that costs the API server a fraction, and nothing of it is changed later.
async fn create_job(
    context: &Context,
    object: &ModelCompilation,
    plan: &JobPlan,
) -> Result<Option<Failure>, ApplyError> {
    let manifest = job::manifest(&context.config, object, plan)?;
    let params =
        PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    match jobs(context, object).create(&params, &manifest).await {
        Ok(_) => {
            context.metrics.jobs_created();
            Ok(None)
        }
        // Made already, by this reconcile cut short or by the replica before.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            let message = format!("the API server refuses Job '{}': {}", plan.name, status.message);
            Ok(Some(failure("JobRefused", &message)))
        }
        Err(error) => Err(kube_error(format!("make Job '{}'", plan.name))(error)),
    }
}

async fn delete_job(
    context: &Context,
    object: &ModelCompilation,
    name: &str,
) -> Result<(), ApplyError> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match jobs(context, object).delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(kube_error(format!("delete Job '{name}'"))(error)),
    }
}

async fn adjust_job(
    context: &Context,
    object: &ModelCompilation,
    bounds: &JobBounds,
) -> Result<(), ApplyError> {
    let patch = json!({"spec": {
        "activeDeadlineSeconds": bounds.active_deadline_seconds,
        "backoffLimit": bounds.backoff_limit,
    }});
    let api = jobs(context, object);
    let params = PatchParams::default();
    match api.patch(&bounds.name, &params, &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(kube_error(format!("change the bounds of Job '{}'", bounds.name))(error)),
    }
}

/// Deletes the compilation, but only the very object that was planned for.
async fn delete_self(context: &Context, object: &ModelCompilation) -> Result<(), ApplyError> {
    let name = object.name_any();
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.uid(),
            resource_version: object.resource_version(),
        }),
        ..DeleteParams::background()
    };
    match compilations(context, object).delete(&name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(kube_error(format!("delete ModelCompilation '{name}'"))(error)),
    }
}
