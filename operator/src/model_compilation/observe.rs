//! Gathers what a plan depends on: from the watched caches, and for finished Jobs from their pods.

use std::collections::BTreeMap;

use hone_crds::{DevicePool, ModelCompilation, Phase, TargetStatus};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::digest;
use super::model::{Ended, Finish, Grant, JobView, NamespaceView, Observed, Outcome, PoolView};
use crate::broker::DeviceLease;
use crate::broker::slots::is_leased;
use crate::children::jobs::JobFacts;
use crate::children::owner;
use crate::children::pods::{self, JOB_UID_LABEL, PodFacts, Wait};
use crate::context::Context;
use crate::nodes::NodeFacts;
use crate::runtime::cache::Object;
use crate::runtime::worker::random;
use crate::seen::SeenPod;

/// Why the state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The pods of a finished Job cannot be listed.
    #[error("cannot list the pods of Job '{job}'")]
    Pods {
        /// The Job.
        job: String,
        /// What the API server returned.
        #[source]
        source: Box<kube::Error>,
    },
}

/// What there is for `object`. Reads the cluster only for Jobs that failed and are not in the status yet, and for
/// events of those whose pod does not start.
///
/// # Errors
/// [`ObserveError`].
pub async fn observe(
    context: &Context,
    object: &ModelCompilation,
) -> Result<Observed, ObserveError> {
    let namespace = object.namespace().unwrap_or_default();
    let uid = object.uid().unwrap_or_default();
    let jobs = context.stores.jobs.group(&owner::group(&namespace, &uid));
    let now = Time(jiff::Timestamp::now());
    let outcomes = outcomes(context, object, &jobs).await?;
    let waits = waits(context, &jobs, &now).await;
    let deleting = object.metadata.deletion_timestamp.is_some();
    let heirs = if deleting { heirs(context, object) } else { BTreeMap::new() };
    let pools = pools(context);
    let cached = cached(context, object, &namespace, &pools);
    Ok(Observed {
        now,
        random: random(),
        jobs: jobs.into_iter().map(|job| view(context, job)).collect(),
        outcomes,
        waits,
        refusals: BTreeMap::new(),
        pools,
        grants: grants(context, object, &namespace),
        priority: priority(context, object),
        namespace: namespace_view(context, &namespace),
        cached,
        heirs,
        object: object.clone(),
    })
}

fn view(context: &Context, job: JobFacts) -> JobView {
    let fresh = job.runs() && !context.stores.running.is_settled(&job.uid);
    let pods = known_pods(context, &job);
    let waiting_since = pods.iter().find_map(|pod| pod.waiting.as_ref()?.since.clone());
    JobView { fresh, waiting_since, ..job.view }
}

/// The pods of a Job that the cache knows: those that wait or succeeded.
fn known_pods(context: &Context, job: &JobFacts) -> Vec<PodFacts> {
    context.stores.pods.group(&owner::group(&job.namespace, &job.uid))
}

/// A pod or its absence is looked into after so many seconds.
const PATIENCE: i64 = 1;

/// Why workers do not start: from their pods, else from what the Job controller and the kubelet say in events.
async fn waits(context: &Context, jobs: &[JobFacts], now: &Time) -> BTreeMap<String, Wait> {
    let mut waits = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.waits()) {
        let pods = known_pods(context, job);
        let pod = pods.iter().find_map(|pod| Some((pod, pod.waiting.as_ref()?)));
        let (about, since, status) = match pod {
            Some((pod, waiting)) => (&pod.uid, waiting.since.as_ref(), waiting.classify()),
            None => (&job.uid, job.view.started.as_ref().or(job.view.created.as_ref()), None),
        };
        let age = since.map_or(0, |since| now.0.as_second() - since.0.as_second());
        let wait = match status {
            Some(wait) => Some(wait),
            None if age >= PATIENCE => events(context, &job.namespace, about).await,
            None => None,
        };
        waits.extend(wait.map(|wait| (job.view.name.clone(), wait)));
    }
    waits
}

/// What the newest event about an object that explains its wait says. Where they cannot be listed there is none.
async fn events(context: &Context, namespace: &str, uid: &str) -> Option<Wait> {
    let api: Api<Event> = Api::namespaced(context.client.clone(), namespace);
    let about = format!("involvedObject.uid={uid},type=Warning");
    let list = match api.list(&ListParams::default().fields(&about).limit(50)).await {
        Ok(list) => list.items,
        Err(error) => {
            tracing::debug!(%error, uid, "events cannot be listed");
            return None;
        }
    };
    let time = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.or_else(|| event.event_time.as_ref().map(|time| time.0))
    };
    let explained = |event: &Event| {
        let wait = pods::classify_event(event.reason.as_deref()?, event.message.as_deref()?)?;
        Some((time(event), wait))
    };
    list.iter().filter_map(explained).max_by_key(|(time, _)| *time).map(|(_, wait)| wait)
}

/// What the pods of finished compile Jobs left, for those that the status does not tell of yet.
async fn outcomes(
    context: &Context,
    object: &ModelCompilation,
    jobs: &[JobFacts],
) -> Result<BTreeMap<String, Outcome>, ObserveError> {
    let mut outcomes = BTreeMap::new();
    for target in &object.spec.targets {
        let name = digest::job_name(object, target);
        let Some(job) = jobs.iter().find(|job| job.view.name == name) else {
            continue;
        };
        let reported = object.status.iter().flat_map(|s| &s.targets).any(|status| {
            status.job_ref.as_ref().is_some_and(|job| job.name == name)
                && matches!(status.phase, Phase::Succeeded | Phase::Failed)
        });
        if job.view.finish.is_none() || reported {
            continue;
        }
        let complete = job.view.finish == Some(Finish::Complete);
        let mut ended = known_pods(context, job);
        ended.retain(|pod| pod.ended);
        // The watch brings those that succeeded, nearly always before the Job that counts them. Why a Job
        // failed is told by the last of several pods, so none may be missing.
        if !complete || ended.is_empty() {
            ended = list(context, job).await?;
        }
        outcomes.insert(name, outcome(&ended, complete));
    }
    Ok(outcomes)
}

/// The pods of a Job that ended, from the API server: those that the Job controls, not those that carry its labels.
async fn list(context: &Context, job: &JobFacts) -> Result<Vec<PodFacts>, ObserveError> {
    let api: Api<SeenPod> = Api::namespaced(context.client.clone(), &job.namespace);
    let selector = format!("{JOB_UID_LABEL}={}", job.uid);
    let list = api.list(&ListParams::default().labels(&selector)).await.map_err(|source| {
        ObserveError::Pods { job: job.view.name.clone(), source: Box::new(source) }
    })?;
    let owned = list.items.iter().filter_map(pods::facts).map(|(_, pod)| pod);
    Ok(owned.filter(|pod| pod.ended && pod.job_uid == job.uid).collect())
}

/// The decisive pod: the one that succeeded, else the one that ended last.
fn outcome(pods: &[PodFacts], complete: bool) -> Outcome {
    let ended = pods.iter().filter(|pod| pod.succeeded == complete);
    let Some(pod) = ended.max_by_key(|pod| pod.at.as_ref().map(|time| time.0)) else {
        return Outcome::NoPod;
    };
    let report = pod.report();
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
        .all()
        .iter()
        .filter(|pool| pool.metadata.deletion_timestamp.is_none())
        .map(|pool| PoolView {
            name: pool.name_any(),
            assigned: assigned(context, pool),
            machine: machine(context, pool),
            foreign: is_foreign(pool, &context.config.namespace),
            spec: pool.spec.clone(),
            status: pool.status.clone().unwrap_or_default(),
        })
        .collect();
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    pools
}

/// Devices that are held or asked for; Jobs under way where nothing is leased.
fn assigned(context: &Context, pool: &DevicePool) -> i64 {
    let name = pool.name_any();
    match is_leased(&pool.spec) {
        true => context.broker.held(&name) + context.broker.unserved(&name),
        false => context.stores.load.of(&name),
    }
}

/// The machine of a pool that has only one.
fn machine(context: &Context, pool: &DevicePool) -> Option<String> {
    let selector = pool.spec.node_selector.iter().flatten();
    let selector: Vec<(&String, &String)> = selector.collect();
    let of = |node: &NodeFacts| {
        let matches = selector.iter().all(|(key, value)| node.labels.get(*key) == Some(*value));
        matches.then(|| node.machine.clone())
    };
    let machines = context.stores.nodes.pick(of);
    match &machines[..] {
        [machine] => machine.clone(),
        _ => None,
    }
}

/// Whether another operator grants the pool's devices.
fn is_foreign(pool: &DevicePool, install: &str) -> bool {
    let claimed = pool.status.as_ref().and_then(|status| status.managed_by.as_deref());
    pool.spec.managed_by.as_deref().or(claimed).is_some_and(|manager| manager != install)
}

/// The devices that the object's Jobs were granted.
fn grants(
    context: &Context,
    object: &ModelCompilation,
    namespace: &str,
) -> BTreeMap<String, Grant> {
    let jobs = object.spec.targets.iter().map(|target| digest::job_name(object, target));
    let grant = |job: String| {
        let lease = context.broker.grant(namespace, &job)?;
        let DeviceLease { name: slot, pool, node, fence, .. } = lease;
        Some((job, Grant { pool, slot, node, fence }))
    };
    jobs.filter_map(grant).collect()
}

/// The value of the priority class that the workers get.
fn priority(context: &Context, object: &ModelCompilation) -> i32 {
    let worker = object.spec.worker.as_ref();
    let classes = &context.stores.priorities;
    match worker.and_then(|worker| worker.priority_class_name.as_deref()) {
        Some(name) => classes.get("", name).map_or(0, |class| class.value),
        None => {
            let default = |class: &Object<PriorityClass>| {
                (class.0.global_default == Some(true)).then_some(class.0.value)
            };
            classes.pick(default).first().copied().unwrap_or(0)
        }
    }
}

fn namespace_view(context: &Context, name: &str) -> NamespaceView {
    let Some(namespace) = context.stores.namespaces.get("", name) else {
        return NamespaceView::default();
    };
    NamespaceView {
        labels: namespace.labels().clone(),
        terminating: namespace.metadata.deletion_timestamp.is_some(),
    }
}

/// Most equal results that are looked at, for the one whose artifact was found last.
const RESULTS: usize = 16;

/// Results in the namespace that equal what this object asks for.
fn cached(
    context: &Context,
    object: &ModelCompilation,
    namespace: &str,
    pools: &[PoolView],
) -> BTreeMap<String, TargetStatus> {
    let own = object.name_any();
    let keys = object
        .spec
        .targets
        .iter()
        .filter_map(|target| digest::content_key(&context.config, object, target, pools));
    let find = |key: String| {
        let scoped = format!("{namespace}/{key}");
        let owners = context.stores.results.get(&scoped);
        let results = owners.iter().filter(|owner| **owner != own).take(RESULTS);
        let results = results.filter_map(|owner| {
            let owner = context.stores.compilations.get(namespace, owner)?;
            // What is about to be deleted may take its artifact along.
            if owner.metadata.deletion_timestamp.is_some() {
                return None;
            }
            let status = owner.status.as_ref()?;
            let found = status.targets.iter().find(|target| {
                target.content_key.as_ref() == Some(&key) && super::result::is_complete(target)
            })?;
            Some(found.clone())
        });
        let checked = |found: &TargetStatus| found.artifact.as_ref()?.checked.as_ref().map(|t| t.0);
        let latest = results.max_by_key(checked)?;
        Some((key, latest))
    };
    keys.filter_map(find).collect()
}

/// The uids of other compilations that name an artifact in the same output folder, whatever their namespace, by the
/// artifact's URI.
fn heirs(context: &Context, object: &ModelCompilation) -> BTreeMap<String, Vec<String>> {
    let mut heirs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let folder = format!("{}/", object.spec.output.uri.trim_end_matches('/'));
    for other in context.stores.compilations.all() {
        let Some(uid) = other.uid().filter(|uid| Some(uid) != object.uid().as_ref()) else {
            continue;
        };
        // What is about to go needs nothing any more, unless its own clean-up has yet to see the owners.
        let going = other.metadata.deletion_timestamp.is_some() && other.finalizers().is_empty();
        let targets = other.status.iter().flat_map(|status| &status.targets);
        let artifacts = targets.filter_map(|target| target.artifact.as_ref());
        for artifact in artifacts.filter(|a| !going && a.uri.starts_with(&folder)) {
            let uids = heirs.entry(artifact.uri.clone()).or_default();
            if !uids.contains(&uid) && uids.len() < HEIRS {
                uids.push(uid.clone());
            }
        }
    }
    heirs
}

/// Most heirs of one artifact: one is enough to keep it.
const HEIRS: usize = 8;
