//! Watched objects with only those fields that anybody here reads, so that what the API server sends
//! besides is skipped and never takes memory. Above all `managedFields`, which are as large as the rest.

use std::collections::BTreeMap;

use hone_crds::model_compilation::ModelCompilationSpec;
use hone_crds::{ModelCompilation, ModelCompilationStatus};
use k8s_openapi::api::batch::v1::JobStatus;
use k8s_openapi::api::core::v1::{
    ContainerStatus, NodeCondition, ObjectReference, PodCondition, PodSchedulingGate, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// A compilation: everything but the managed fields.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "ModelCompilation")]
pub struct SeenCompilation {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    spec: ModelCompilationSpec,
    #[serde(default)]
    status: Option<ModelCompilationStatus>,
}

impl From<SeenCompilation> for ModelCompilation {
    fn from(seen: SeenCompilation) -> Self {
        let SeenCompilation { metadata, spec, status } = seen;
        Self { metadata, spec, status }
    }
}

/// A Job.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::batch::v1::Job")]
pub struct SeenJob {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    /// Its bounds.
    #[serde(default)]
    pub spec: JobBounds,
    /// Where it stands.
    #[serde(default)]
    pub status: JobStatus,
}

/// An event of the core API.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Event")]
#[serde(rename_all = "camelCase")]
pub struct SeenEvent {
    #[serde(deserialize_with = "metadata")]
    pub(crate) metadata: ObjectMeta,
    /// What it is about.
    pub involved_object: ObjectReference,
    /// A word.
    #[serde(default)]
    pub reason: Option<String>,
    /// Words.
    #[serde(default)]
    pub message: Option<String>,
    /// When it was last so, where its source counts.
    #[serde(default)]
    pub last_timestamp: Option<Time>,
    /// When it was so, where it does not.
    #[serde(default)]
    pub event_time: Option<MicroTime>,
}

/// The bounds of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobBounds {
    /// Its deadline, in seconds.
    #[serde(default)]
    pub active_deadline_seconds: Option<i64>,
    /// Its retries.
    #[serde(default)]
    pub backoff_limit: Option<i32>,
    /// Whether no pod is made for it.
    #[serde(default)]
    pub suspend: bool,
}

/// A pod.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
pub struct SeenPod {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    /// Where it runs, or what keeps the scheduler from it.
    #[serde(default)]
    pub spec: PodPlacement,
    /// Where it stands.
    #[serde(default)]
    pub status: PodEnd,
}

/// Where a pod runs, or what keeps the scheduler from it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPlacement {
    /// Its node.
    #[serde(default)]
    pub node_name: Option<String>,
    /// Its scheduling gates.
    #[serde(default)]
    pub scheduling_gates: Vec<PodSchedulingGate>,
}

/// What the status of a pod says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodEnd {
    /// One word, such as `Succeeded` or `Failed`.
    #[serde(default)]
    pub phase: String,
    /// Why, such as `Evicted`.
    #[serde(default)]
    pub reason: Option<String>,
    /// Where it stands, such as whether it has a node.
    #[serde(default)]
    pub conditions: Vec<PodCondition>,
    /// Its containers.
    #[serde(default)]
    pub container_statuses: Vec<ContainerStatus>,
}

/// A node.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
pub struct SeenNode {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    /// What keeps pods away.
    #[serde(default)]
    pub spec: NodeBars,
    /// What it has.
    #[serde(default)]
    pub status: NodeState,
}

/// What keeps pods away from a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeBars {
    /// Its taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    #[serde(default)]
    pub unschedulable: bool,
}

/// What a node has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// What pods may ask for.
    #[serde(default)]
    pub allocatable: BTreeMap<String, Quantity>,
    /// How it is.
    #[serde(default)]
    pub conditions: Vec<NodeCondition>,
    /// Which machine it is.
    #[serde(default)]
    pub node_info: Option<NodeIdentity>,
}

/// Which machine a node is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIdentity {
    /// Of its operating system.
    #[serde(default, rename = "machineID")]
    pub machine_id: String,
    /// Of its hardware.
    #[serde(default, rename = "systemUUID")]
    pub system_uuid: String,
}

/// Those parts of `metadata` that are read here.
pub(crate) fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Read {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        finalizers: Option<Vec<String>>,
        owner_references: Option<Vec<OwnerReference>>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
    }
    let read = Read::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        generation: read.generation,
        labels: read.labels,
        annotations: read.annotations,
        finalizers: read.finalizers,
        owner_references: read.owner_references,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nulls_and_absent_parts_are_read() {
        let job: SeenJob = serde_json::from_str(
            r#"{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": null,
            "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": {}}}]}, "spec": {"backoffLimit": 3}}"#,
        )
        .unwrap();
        assert_eq!(job.metadata.name.as_deref(), Some("a"));
        assert!(job.metadata.managed_fields.is_none());
        assert_eq!(job.spec.backoff_limit, Some(3));
    }
}
