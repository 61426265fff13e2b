//! Gathers what a plan depends on: from the watched caches, and for finished Jobs from their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hone_artifact::termination::Termination;
use hone_crds::{ModelCompilation, Phase, TargetStatus};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};

use super::model::{Ended, Finish, JobView, NamespaceView, Observed, Outcome, PoolView, Purpose};
use super::{digest, names};
use crate::context::Context;

/// Why the state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The pods of a finished Job cannot be listed.
    #[error("cannot list the pods of Job '{job}'")]
    Pods {
        /// The Job.
        job: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
}

/// What there is for `object`. Reads the cluster only for Jobs that finished and are not in the status yet.
///
/// # Errors
/// [`ObserveError`].
pub async fn observe(
    context: &Context,
    object: &ModelCompilation,
) -> Result<Observed, ObserveError> {
    let namespace = object.namespace().unwrap_or_default();
    let jobs = jobs(context, object, &namespace);
    let outcomes = outcomes(context, object, &jobs, &namespace).await?;
    let deleting = object.metadata.deletion_timestamp.is_some();
    Ok(Observed {
        now: Time(jiff::Timestamp::now()),
        random: context.random(),
        jobs,
        outcomes,
        pools: pools(context),
        namespace: namespace_view(context, &namespace),
        cached: cached(context, object, &namespace),
        shared_artifacts: if deleting {
            shared_artifacts(context, object, &namespace)
        } else {
            BTreeSet::new()
        },
        object: object.clone(),
    })
}

fn jobs(context: &Context, object: &ModelCompilation, namespace: &str) -> Vec<JobView> {
    let uid = object.uid().unwrap_or_default();
    let names = context.stores.job_index.get(&uid);
    let get = |name: &String| {
        let key = ObjectRef::<Job>::new(name).within(namespace);
        context.stores.jobs.get(&key)
    };
    names.iter().filter_map(get).map(|job| view(&job)).collect()
}

/// A Job as planning sees it.
fn view(job: &Arc<Job>) -> JobView {
    let labels = job.labels();
    let cleanup =
        labels.get(names::PURPOSE_LABEL).map(String::as_str) == Some(names::PURPOSE_CLEANUP);
    let status = job.status.as_ref();
    let spec = job.spec.as_ref();
    JobView {
        name: job.name_any(),
        purpose: if cleanup { Purpose::Cleanup } else { Purpose::Compile },
        created: job.metadata.creation_timestamp.clone(),
        deleting: job.metadata.deletion_timestamp.is_some(),
        ready: status.and_then(|s| s.ready).unwrap_or(0),
        failed: status.and_then(|s| s.failed).unwrap_or(0),
        finish: finish(job),
        active_deadline_seconds: spec.and_then(|s| s.active_deadline_seconds),
        backoff_limit: spec.and_then(|s| s.backoff_limit),
    }
}

/// How a Job ended; `None` while it is under way.
fn finish(job: &Job) -> Option<Finish> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let is = |kind: &str| {
        conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
    };
    if is("Complete").is_some() {
        return Some(Finish::Complete);
    }
    let failed = is("Failed")?;
    Some(Finish::Failed(failed.reason.clone().unwrap_or_default()))
}

/// What the pods of finished compile Jobs left, for those that the status does not tell of yet.
async fn outcomes(
    context: &Context,
    object: &ModelCompilation,
    jobs: &[JobView],
    namespace: &str,
) -> Result<BTreeMap<String, Outcome>, ObserveError> {
    let mut outcomes = BTreeMap::new();
    for target in &object.spec.targets {
        let name = digest::job_name(object, target);
        let Some(job) = jobs.iter().find(|job| job.name == name) else {
            continue;
        };
        let told = object.status.iter().flat_map(|s| &s.targets).any(|status| {
            status.job_ref.as_ref().is_some_and(|job| job.name == name)
                && matches!(status.phase, Phase::Succeeded | Phase::Failed)
        });
        if job.finish.is_none() || told {
            continue;
        }
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
        let selector = format!("batch.kubernetes.io/job-name={name}");
        let list = pods.list(&ListParams::default().labels(&selector)).await;
        let list = list
            .map_err(|source| ObserveError::Pods { job: name.clone(), source: Box::new(source) })?;
        outcomes.insert(name, outcome(&list.items, job.finish == Some(Finish::Complete)));
    }
    Ok(outcomes)
}

/// The decisive pod: the one that succeeded, else the one that ended last.
fn outcome(pods: &[Pod], complete: bool) -> Outcome {
    let ended = pods.iter().filter_map(|pod| {
        let phase = pod.status.as_ref()?.phase.as_deref()?;
        let wanted = if complete { "Succeeded" } else { "Failed" };
        let end = terminated(pod);
        let at = end.and_then(|end| end.finished_at.clone()).map(|time| time.0);
        (phase == wanted).then_some((at, pod, end))
    });
    let Some((_, pod, end)) = ended.max_by_key(|(at, ..)| *at) else {
        return Outcome::NoPod;
    };
    let pod_reason = pod.status.as_ref().and_then(|status| status.reason.clone());
    let message = end.and_then(|end| end.message.clone()).unwrap_or_default();
    let report = Termination::from_message(&message).ok();
    Outcome::Ended(Box::new(Ended {
        exit_code: end.map_or(0, |end| end.exit_code),
        reason: end
            .and_then(|end| end.reason.clone())
            .filter(|reason| reason != "Error" && reason != "Completed")
            .or(pod_reason)
            .unwrap_or_default(),
        other_message: if report.is_some() { String::new() } else { message },
        report,
    }))
}

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let worker = containers.iter().find(|c| c.name == names::CONTAINER)?;
    worker.state.as_ref()?.terminated.as_ref()
}

fn pools(context: &Context) -> Vec<PoolView> {
    let mut pools: Vec<PoolView> = context
        .stores
        .pools
        .state()
        .iter()
        .filter(|pool| pool.metadata.deletion_timestamp.is_none())
        .map(|pool| PoolView {
            name: pool.name_any(),
            spec: pool.spec.clone(),
            status: pool.status.clone().unwrap_or_default(),
        })
        .collect();
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    pools
}

fn namespace_view(context: &Context, name: &str) -> NamespaceView {
    let key = ObjectRef::new(name);
    let Some(namespace) = context.stores.namespaces.get(&key) else {
        return NamespaceView::default();
    };
    NamespaceView {
        labels: namespace.labels().clone(),
        terminating: namespace.metadata.deletion_timestamp.is_some(),
    }
}

/// Results in the namespace that equal what this object asks for.
fn cached(
    context: &Context,
    object: &ModelCompilation,
    namespace: &str,
) -> BTreeMap<String, TargetStatus> {
    let own = object.name_any();
    let keys = object
        .spec
        .targets
        .iter()
        .filter_map(|target| digest::content_key(&context.config, object, target));
    let find = |key: String| {
        let scoped = format!("{namespace}/{key}");
        let owners = context.stores.result_index.get(&scoped);
        owners.iter().filter(|owner| **owner != own).find_map(|owner| {
            let owner =
                context.stores.compilations.get(&ObjectRef::new(owner).within(namespace))?;
            // What is about to be deleted may take its artifact along.
            if owner.metadata.deletion_timestamp.is_some() {
                return None;
            }
            let status = owner.status.as_ref()?;
            let found = status.targets.iter().find(|target| {
                target.content_key.as_ref() == Some(&key) && super::result::is_complete(target)
            })?;
            Some((key.clone(), found.clone()))
        })
    };
    keys.filter_map(find).collect()
}

/// Artifacts that other compilations of the namespace name.
fn shared_artifacts(
    context: &Context,
    object: &ModelCompilation,
    namespace: &str,
) -> BTreeSet<String> {
    let own = object.name_any();
    let others = context.stores.compilations.state();
    others
        .iter()
        .filter(|other| other.namespace().as_deref() == Some(namespace) && other.name_any() != own)
        .filter(|other| other.metadata.deletion_timestamp.is_none())
        .flat_map(|other| other.status.iter().flat_map(|status| &status.targets))
        .filter_map(|target| target.artifact.as_ref())
        .map(|artifact| artifact.uri.clone())
        .collect()
}
