//! Gathers a pool's nodes, workers and results from the watched caches.

use std::collections::BTreeMap;

use hone_crds::DevicePool;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde::Deserialize;

use crate::children::jobs::{JobFacts, Purpose};
use crate::context::Context;
use crate::nodes::NodeFacts;

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
    let matches =
        |node: &NodeFacts| selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let view = |node: &NodeFacts| matches(node).then(|| node_view(node, object));
    Observed {
        now: Time(jiff::Timestamp::now()),
        nodes: context.stores.nodes.pick(view),
        workers: context.stores.jobs.pick(|job| worker_view(job, &name)),
        fingerprints: fingerprints(context, &name),
        object: object.clone(),
    }
}

/// A Job that has a worker that runs in the pool.
fn worker_view(job: &JobFacts, pool: &str) -> Option<WorkerView> {
    let runs = job.view.purpose == Purpose::Compile && job.view.ready > 0;
    (runs && job.view.pool.as_deref() == Some(pool)).then(|| WorkerView {
        namespace: job.namespace.clone(),
        job: job.view.name.clone(),
        since: job.view.started.clone(),
    })
}

fn node_view(node: &NodeFacts, pool: &DevicePool) -> NodeView {
    let resource = pool.spec.extended_resource.as_ref();
    let devices = resource.and_then(|resource| {
        let mut devices = node.devices.iter();
        devices.find(|(name, _)| *name == resource.name).map(|(_, count)| *count)
    });
    NodeView {
        name: node.name.clone(),
        usable: node.usable,
        taints: node.taints.clone(),
        devices: devices.unwrap_or(0),
    }
}

fn fingerprints(context: &Context, pool: &str) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for object in context.stores.compilations.all() {
        let targets = object.status.iter().flat_map(|status| &status.targets);
        let measured = targets.filter(|target| target.pool.as_deref() == Some(pool));
        for fingerprint in measured.filter_map(|target| target.fingerprint.as_ref()) {
            *counts.entry(fingerprint.clone()).or_insert(0) += 1;
        }
    }
    counts
}
