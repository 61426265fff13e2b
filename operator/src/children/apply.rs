//! Does what a plan says. Each action may be done again harmlessly.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::manifest::JobError;
use super::observe::ObserveError;
use super::reasons::Reason;
use super::steps::{Action, JobBounds, JobPlan, Plan, Refusal};
use super::{lost, names, owner, placement, runs};
use crate::broker::{self, Applicant};
use crate::context::Context;
use crate::runtime::worker::{FailureClass, ReconcileFailure, class_of};

/// A kind that owns Jobs.
pub trait Owner:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
    /// The Job of a plan for this object.
    ///
    /// # Errors
    /// [`JobError`] when our own values have no JSON form.
    fn job(&self, context: &Context, plan: &JobPlan) -> Result<Job, JobError>;
}

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

/// What came of actions. Only this can become a status.
#[derive(Debug)]
pub struct Applied {
    /// The resource version to which the status belongs.
    pub resource_version: Option<String>,
    /// Jobs and tuning runs that the API server refused, by name.
    pub refusals: BTreeMap<String, Refusal>,
    /// The pools of Jobs that were there already, by name.
    pub pools: BTreeMap<String, String>,
    /// Whether the object is on its way out, so that no status is written.
    pub gone: bool,
}

/// Plans for `object`, a child of the kind of `controller`, and does it. What the API server refuses of it is given to
/// `plan` as part of what is seen, and what follows from that is done, too. Returns the last plan and what came of it.
///
/// # Errors
/// As for [`apply`].
pub async fn carry_out<K: Owner, S>(
    context: &Context,
    object: &K,
    controller: &'static str,
    mut plan: impl FnMut(BTreeMap<String, Refusal>) -> Plan<S>,
) -> Result<(Plan<S>, Applied), ApplyError> {
    let ask = |plan: &Plan<S>| {
        broker::ask(context, Applicant::of(controller, object), &plan.requests);
    };
    let first = plan(BTreeMap::new());
    ask(&first);
    let applied = apply(context, object, &first.actions).await?;
    if applied.refusals.is_empty() {
        return Ok((first, applied));
    }
    let mut second = plan(applied.refusals);
    second.actions.retain(|action| !first.actions.contains(action));
    ask(&second);
    let again = apply(context, object, &second.actions).await?;
    // The second look is at the same object, whose finalizer the first may have changed.
    let resource_version = applied.resource_version;
    Ok((second, Applied { resource_version, ..again }))
}

/// Does all `actions` of a plan for `object` in order.
///
/// # Errors
/// [`ApplyError`]; what was done before stays done, and is found again by the next look.
pub async fn apply<K: Owner>(
    context: &Context,
    object: &K,
    actions: &[Action],
) -> Result<Applied, ApplyError> {
    let mut applied = Applied {
        resource_version: object.resource_version(),
        refusals: BTreeMap::new(),
        pools: BTreeMap::new(),
        gone: false,
    };
    let mut failed = None;
    for action in actions.iter().cloned() {
        if !context.fence.leads() {
            return Err(ApplyError::NotLeading);
        }
        match action {
            Action::AddFinalizer => {
                applied.resource_version = set_finalizer(context, object, true).await?;
            }
            Action::RemoveFinalizer => {
                applied.resource_version = set_finalizer(context, object, false).await?;
                applied.gone |= object.meta().deletion_timestamp.is_some();
            }
            // One target's Job that cannot be made does not keep the others from theirs.
            Action::CreateJob(plan) => match create_job(context, object, &plan).await {
                Ok(made) => note(&mut applied, plan.name, made),
                Err(error) => failed = failed.or(Some(error)),
            },
            Action::DeleteJob(name) => delete_child(jobs(context, object), "Job", &name).await?,
            Action::AdjustJob(bounds) => adjust_job(context, object, &bounds).await?,
            Action::WakeJob(name) => wake_job(context, object, &name).await?,
            Action::PlaceJob(placement) => placement::place(context, object, &placement).await?,
            Action::RemovePod(pod) => lost::remove(context, object, &pod).await?,
            Action::ApplyRun(plan) => match runs::apply(context, object, &plan).await {
                Ok(refused) => {
                    applied.refusals.extend(refused.map(|why| (plan.name.clone(), why)));
                }
                Err(error) => failed = failed.or(Some(error)),
            },
            Action::DeleteRun(name) => {
                delete_child(runs::api(context, object), "TuningRun", &name).await?;
            }
            Action::DeleteSelf => {
                delete_self(context, object).await?;
                applied.gone = true;
            }
            // A Job that was refused has not started.
            Action::Event(event)
                if event.reason == Reason::Started.as_str()
                    && applied.refusals.keys().any(|job| event.note.contains(job)) => {}
            Action::Event(event) => context.events.send(event, object.object_ref(&())),
        }
    }
    failed.map_or(Ok(applied), Err)
}

/// What became of a Job that was to be made.
enum Made {
    /// It is there. Where it was before: the pool that it names.
    There(Option<String>),
    Refused(Refusal),
}

fn note(applied: &mut Applied, job: String, made: Made) {
    match made {
        Made::There(Some(pool)) => drop(applied.pools.insert(job, pool)),
        Made::There(None) => {}
        Made::Refused(why) => drop(applied.refusals.insert(job, why)),
    }
}

pub(super) fn kube_error(what: String) -> impl FnOnce(kube::Error) -> ApplyError {
    move |source| ApplyError::Kube { what, source: Box::new(source) }
}

fn objects<K: Owner>(context: &Context, object: &K) -> Api<K> {
    Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default())
}

pub(super) fn jobs<K: Owner>(context: &Context, object: &K) -> Api<Job> {
    Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default())
}

/// Adds or removes our finalizer at exactly the version that was planned for.
async fn set_finalizer<K: Owner>(
    context: &Context,
    object: &K,
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
    let done =
        objects(context, object).patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    match done {
        Ok(object) => Ok(object.resource_version()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => {
            Err(kube_error(format!("change the finalizers of {} '{name}'", K::kind(&())))(error))
        }
    }
}

/// Makes the Job, which its name identifies. Made and not applied: that costs the API server a fraction, and nothing
/// of it is changed later.
async fn create_job<K: Owner>(
    context: &Context,
    object: &K,
    plan: &JobPlan,
) -> Result<Made, ApplyError> {
    let manifest = object.job(context, plan)?;
    let params =
        PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    let api = jobs(context, object);
    match api.create(&params, &manifest).await {
        Ok(_) => {
            context.metrics.jobs_created();
            Ok(Made::There(None))
        }
        // Made already, by this reconcile cut short or by the replica before; or by somebody else.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            match api.get_metadata_opt(&plan.name).await {
                Ok(found) => Ok(existing(object, found.map(|found| found.metadata))),
                Err(error) => Err(kube_error(format!("read Job '{}'", plan.name))(error)),
            }
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Made::Refused(Refusal { code: status.code, message: status.message.clone() }))
        }
        Err(error) => Err(kube_error(format!("make Job '{}'", plan.name))(error)),
    }
}

/// A Job of the wanted name is there: ours by its owner's uid, or another's.
fn existing<K: Owner>(object: &K, found: Option<ObjectMeta>) -> Made {
    let Some(found) = found else { return Made::There(None) };
    let kind = K::kind(&());
    let owner = owner::controller(&found, hone_crds::GROUP, &kind);
    match owner.is_some_and(|owner| Some(&owner.uid) == object.meta().uid.as_ref()) {
        true => {
            let pool = found.annotations.iter().flatten();
            let mut pool = pool.filter(|(key, _)| *key == names::POOL_ANNOTATION);
            Made::There(pool.next().map(|(_, pool)| pool.clone()))
        }
        false => Made::Refused(Refusal { code: 409, message: "another owns it".to_owned() }),
    }
}

/// Deletes a child of `kind`, which stays until its pods are gone: its device is not free before, nor its log.
async fn delete_child<C>(api: Api<C>, kind: &str, name: &str) -> Result<(), ApplyError>
where
    C: Clone + Debug + DeserializeOwned,
{
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(kube_error(format!("delete {kind} '{name}'"))(error)),
    }
}

async fn adjust_job<K: Owner>(
    context: &Context,
    object: &K,
    bounds: &JobBounds,
) -> Result<(), ApplyError> {
    let patch = json!({"spec": {
        "activeDeadlineSeconds": bounds.active_deadline_seconds,
        "backoffLimit": bounds.backoff_limit,
    }});
    patch_job(context, object, &bounds.name, &patch).await
}

/// Changes what nobody reads, which is enough for the Job controller to look at the Job.
async fn wake_job<K: Owner>(context: &Context, object: &K, name: &str) -> Result<(), ApplyError> {
    tracing::info!(job = name, "the Job has had no pod for long: the Job controller is woken");
    let now = jiff::Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {names::WOKEN_ANNOTATION: now}}});
    patch_job(context, object, name, &patch).await
}

async fn patch_job<K: Owner>(
    context: &Context,
    object: &K,
    name: &str,
    patch: &serde_json::Value,
) -> Result<(), ApplyError> {
    let api = jobs(context, object);
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(kube_error(format!("change Job '{name}'"))(error)),
    }
}

/// Deletes the object, but only the very object that was planned for.
async fn delete_self<K: Owner>(context: &Context, object: &K) -> Result<(), ApplyError> {
    let name = object.name_any();
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.uid(),
            resource_version: object.resource_version(),
        }),
        ..DeleteParams::background()
    };
    match objects(context, object).delete(&name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(kube_error(format!("delete {} '{name}'", K::kind(&())))(error)),
    }
}
