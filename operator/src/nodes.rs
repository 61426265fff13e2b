//! What is kept of each node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;

use crate::runtime::cache::Cached;
use crate::seen::{NodeIdentity, SeenNode};

/// A node. Its group is its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The machine that it is as the kubelet knows it, else the Node's uid: another one of the same name is told apart.
    pub machine: Option<String>,
    /// Whether it answers and is well.
    pub ready: bool,
    /// Whether it is ready and takes pods.
    pub usable: bool,
    /// What keeps pods away.
    pub taints: Vec<Taint>,
    /// How many it has of each resource that is counted in whole pieces and is not every node's.
    pub devices: Vec<(String, i64)>,
}

impl Cached for NodeFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

fn machine(info: &NodeIdentity) -> Option<String> {
    let NodeIdentity { machine_id, system_uuid } = info;
    let is_known = !machine_id.is_empty() || !system_uuid.is_empty();
    is_known.then(|| format!("{machine_id}/{system_uuid}"))
}

/// Group and facts of a node.
pub fn facts(node: &SeenNode) -> Option<(String, NodeFacts)> {
    let ready = node.status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let extended = node.status.allocatable.iter().filter(|(name, _)| name.contains('/'));
    let devices = extended.filter_map(|(name, count)| Some((name.clone(), count.0.parse().ok()?)));
    let facts = NodeFacts {
        name: node.name_any(),
        labels: node.labels().clone(),
        // A kubelet that knows neither identity still has a Node of its own.
        machine: node.status.node_info.as_ref().and_then(machine).or_else(|| node.uid()),
        ready,
        usable: ready && !node.spec.unschedulable,
        taints: node.spec.taints.clone(),
        devices: devices.collect(),
    };
    Some((facts.name.clone(), facts))
}
