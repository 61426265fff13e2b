//! Gathers what a plan depends on: from the watched caches, and for finished Jobs from their pods.

use std::collections::{BTreeMap, BTreeSet};

use hone_artifact::termination::Termination;
use hone_crds::{ModelCompilation, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};

use super::digest;
use super::model::{Ended, Finish, JobView, NamespaceView, Observed, Outcome, PoolView};
use crate::context::Context;
use crate::seen::SeenPod;
use crate::watched::{self, JOB_LABEL, JobFacts, PodFacts};

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

/// What there is for `object`. Reads the cluster only for Jobs that failed and are not in the status yet.
///
/// # Errors
/// [`ObserveError`].
pub async fn observe(
    context: &Context,
    object: &ModelCompilation,
) -> Result<Observed, ObserveError> {
    let namespace = object.namespace().unwrap_or_default();
    let jobs = jobs(context, object);
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

fn jobs(context: &Context, object: &ModelCompilation) -> Vec<JobView> {
    let uid = object.uid().unwrap_or_default();
    let view = |job: JobFacts| JobView {
        fresh: job.runs() && !context.stores.running.is_settled(&uid, &job.view.name),
        ..job.view
    };
    context.stores.jobs.group(&uid).into_iter().map(view).collect()
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
        let complete = job.finish == Some(Finish::Complete);
        let mut ended = context.stores.pods.group(&watched::pods_of(namespace, &name));
        // The watch brings those that succeeded, nearly always before the Job that counts them. Why a Job
        // failed is told by the last of several pods, so none may be missing.
        if !complete || ended.is_empty() {
            ended = list(context, namespace, &name).await?;
        }
        outcomes.insert(name, outcome(&ended, complete));
    }
    Ok(outcomes)
}

/// The pods of a Job, from the API server.
async fn list(
    context: &Context,
    namespace: &str,
    job: &str,
) -> Result<Vec<PodFacts>, ObserveError> {
    let pods: Api<SeenPod> = Api::namespaced(context.client.clone(), namespace);
    let selector = format!("{JOB_LABEL}={job}");
    let list = pods.list(&ListParams::default().labels(&selector)).await;
    let list = list
        .map_err(|source| ObserveError::Pods { job: job.to_owned(), source: Box::new(source) })?;
    let ended = list.items.iter().filter(|pod| pod.has_ended());
    Ok(ended.map(|pod| watched::pod(pod).1).collect())
}

/// The decisive pod: the one that succeeded, else the one that ended last.
fn outcome(pods: &[PodFacts], complete: bool) -> Outcome {
    let ended = pods.iter().filter(|pod| pod.succeeded == complete);
    let Some(pod) = ended.max_by_key(|pod| pod.at.as_ref().map(|time| time.0)) else {
        return Outcome::NoPod;
    };
    let report = Termination::from_message(&pod.message).ok();
    Outcome::Ended(Box::new(Ended {
        exit_code: pod.exit_code,
        reason: pod.reason.clone(),
        other_message: if report.is_some() { String::new() } else { pod.message.clone() },
        report,
    }))
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
