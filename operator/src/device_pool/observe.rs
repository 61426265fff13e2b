//! Gathers a pool's nodes, workers and results from the watched caches.

use std::collections::BTreeMap;

use hone_crds::DevicePool;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde::Deserialize;

use crate::context::Context;
use crate::model_compilation::names::{POOL_LABEL, PURPOSE_COMPILE, PURPOSE_LABEL};

/// What a pool's status depends on.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observed {
    /// The clock.
    pub now: Time,
    /// The pool.
    pub object: DevicePool,
    /// Nodes that carry all its labels.
    #[serde(default)]
    pub nodes: Vec<NodeView>,
    /// Its workers that run.
    #[serde(default)]
    pub workers: Vec<WorkerView>,
    /// Results by the fingerprint of what they were measured on.
    #[serde(default)]
    pub fingerprints: BTreeMap<String, i64>,
}

/// A node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Whether it is ready and takes pods.
    #[serde(default)]
    pub usable: bool,
    /// Taints that keep pods away.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// How many of the pool's extended resource it has.
    #[serde(default)]
    pub devices: i64,
}

/// A worker that runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerView {
    /// Its namespace.
    pub namespace: String,
    /// Its Job.
    pub job: String,
    /// Since when.
    #[serde(default)]
    pub since: Option<Time>,
}

/// What there is for `object`.
pub fn observe(context: &Context, object: &DevicePool) -> Observed {
    let name = object.name_any();
    let selector = object.spec.node_selector.clone().unwrap_or_default();
    let nodes = context.stores.nodes.state();
    let matching = nodes
        .iter()
        .filter(|node| selector.iter().all(|(key, value)| node.labels().get(key) == Some(value)));
    let jobs = context.stores.jobs.state();
    let workers = jobs.iter().filter(|job| runs_in(job, &name));
    Observed {
        now: Time(jiff::Timestamp::now()),
        nodes: matching.map(|node| node_view(node, object)).collect(),
        workers: workers.map(|job| worker_view(job)).collect(),
        fingerprints: fingerprints(context, &name),
        object: object.clone(),
    }
}

/// Whether a Job has a worker that runs in the pool.
fn runs_in(job: &Job, pool: &str) -> bool {
    let labels = job.labels();
    let is = |key: &str, value: &str| labels.get(key).map(String::as_str) == Some(value);
    let ready = job.status.as_ref().and_then(|status| status.ready);
    is(POOL_LABEL, pool) && is(PURPOSE_LABEL, PURPOSE_COMPILE) && ready.unwrap_or(0) > 0
}

fn worker_view(job: &Job) -> WorkerView {
    WorkerView {
        namespace: job.namespace().unwrap_or_default(),
        job: job.name_any(),
        since: job.status.as_ref().and_then(|s| s.start_time.clone()),
    }
}

fn node_view(node: &Node, pool: &DevicePool) -> NodeView {
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let ready = status
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let resource = pool.spec.extended_resource.as_ref();
    let devices = resource
        .and_then(|resource| status?.allocatable.as_ref()?.get(&resource.name))
        .and_then(|quantity| quantity.0.parse().ok());
    NodeView {
        name: node.name_any(),
        usable: ready && !cordoned,
        taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
        devices: devices.unwrap_or(0),
    }
}

fn fingerprints(context: &Context, pool: &str) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for object in context.stores.compilations.state() {
        let targets = object.status.iter().flat_map(|status| &status.targets);
        let measured = targets.filter(|target| target.pool.as_deref() == Some(pool));
        for fingerprint in measured.filter_map(|target| target.fingerprint.as_ref()) {
            *counts.entry(fingerprint.clone()).or_insert(0) += 1;
        }
    }
    counts
}
