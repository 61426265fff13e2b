//! `DevicePool`: where and how hardware is measured. Cluster-scoped, the administrator's.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Decimal;
use crate::common::{LocalSecretRef, Platform, SUBDOMAIN_PATTERN};

/// Which nodes and devices, who may use them, and how.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "hone.dev",
    version = "v1alpha1",
    kind = "DevicePool",
    plural = "devicepools",
    shortname = "hdp",
    category = "hone",
    status = "DevicePoolStatus",
    derive = "PartialEq",
    cel,
    doc = "Nodes and devices on which models are compiled, measured and tuned.",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Devices", type_ = "integer", json_path = ".status.capacity.total"),
    printcolumn(name = "Leased", type_ = "integer", json_path = ".status.capacity.leased"),
    printcolumn(name = "Waiting", type_ = "integer", json_path = ".status.capacity.waiting"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!(has(self.extendedResource) && has(self.resourceClaimTemplate))",
        "extendedResource and resourceClaimTemplate exclude each other: keep one"),
    validation = ("!(self.kind == 'GPU' || self.kind == 'FPGA') || has(self.extendedResource) || has(self.resourceClaimTemplate)",
        "a pool of kind GPU or FPGA needs extendedResource or resourceClaimTemplate"),
    validation = ("self.kind != 'CPU' || !has(self.extendedResource) && !has(self.resourceClaimTemplate)",
        "a pool of kind CPU has no extendedResource and no resourceClaimTemplate: remove them"),
    validation = ("self.kind == 'GPU' || !has(self.platform) || !has(self.platform.accelerator)",
        "accelerators are the devices of pools of kind GPU: set kind to GPU, or remove platform.accelerator"),
    validation = ("!has(self.platform) || !has(self.platform.accelerator) || self.platform.accelerator != 'webgpu'",
        "WebGPU's devices are in browsers: remove platform.accelerator"),
    validation = ("self.kind != 'External' || !has(self.nodeSelector)",
        "a pool of kind External has no nodes: remove nodeSelector"),
    validation = ("self.kind == 'External' ? has(self.sessions) && has(self.platform) : !has(self.sessions)",
        "External devices are met by sessions: set sessions and platform for this kind alone"),
    validation = ("!has(self.resourceClaimTemplate) || self.exclusivity == 'Device'",
        "a claim says itself what is exclusive: set exclusivity to Device with resourceClaimTemplate"),
    validation = ("!has(self.maxPerNamespace) || self.exclusivity != 'Shared' && !has(self.resourceClaimTemplate)",
        "maxPerNamespace counts leases, and this pool leases nothing: remove it, or set exclusivity to Device or Node"),
    validation = ("self.kind == oldSelf.kind", "kind is immutable: create another DevicePool"),
)]
pub struct DevicePoolSpec {
    /// What is measured.
    pub kind: DeviceKind,
    /// What the devices run; read off `nodeSelector` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Labels that the nodes carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "labels")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that the workers tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// The device plugin's resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_resource: Option<ExtendedResource>,
    /// A dynamic resource allocation template in the compilation's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_claim_template: Option<ClaimTemplateRef>,
    /// Runtime class of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub runtime_class_name: Option<String>,
    /// What a worker has to itself among this operator's; other pods are kept away by taints alone.
    #[serde(default)]
    pub exclusivity: Exclusivity,
    /// Most devices that one namespace holds at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub max_per_namespace: Option<i64>,
    /// Namespace of the operator that grants the devices, where several are installed; the first that finds the pool
    /// where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub managed_by: Option<String>,
    /// Largest relative spread of a measurement; a worker that finds more twice fails with NoisyDevice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_budget: Option<Decimal>,
    /// Who may use the pool; everybody when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,
    /// Where sessions of External devices meet searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionStore>,
    /// What one device costs an hour, in the administrator's currency: of several pools with a free device that suit a
    /// target, the cheapest is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<Decimal>,
}

/// What is measured.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum DeviceKind {
    Cpu,
    Gpu,
    Fpga,
    /// Devices without a kubelet, such as boards.
    #[serde(rename = "External")]
    External,
}

impl DeviceKind {
    /// The word as it stands in the spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Fpga => "FPGA",
            Self::External => "External",
        }
    }
}

/// What a worker has to itself.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
pub enum Exclusivity {
    /// Its device, leased for as long as its Job lasts. On a CPU pool the device is the node.
    #[default]
    Device,
    /// The whole node, leased as well.
    Node,
    /// Nothing, and nothing is leased: timings are less sure.
    Shared,
}

/// A taint that the workers tolerate; fields as in a pod.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.key) || (has(self.operator) && self.operator == 'Exists')",
    "a toleration without a key tolerates everything: set operator to Exists"))]
pub struct Toleration {
    /// The taint's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// `Equal` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 6), regex(pattern = "^(Equal|Exists)$"))]
    pub operator: Option<String>,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Every effect when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = "^(NoSchedule|PreferNoSchedule|NoExecute)$"))]
    pub effect: Option<String>,
}

/// A device plugin's resource.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtendedResource {
    /// Such as `nvidia.com/gpu`.
    #[schemars(
        length(min = 3, max = 317),
        regex(
            pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
        )
    )]
    pub name: String,
    /// How many a worker gets.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub count: i64,
}

fn one() -> i64 {
    1
}

/// A ResourceClaimTemplate by name.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplateRef {
    /// Its name; it must exist in every namespace that uses the pool.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub name: String,
}

/// A store at which sessions meet searches, in the folder `pools/NAME`.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStore {
    /// A folder of `s3://`, `gs://`, `az://` or `file://`.
    #[schemars(length(max = 2048), regex(pattern = STORE_PATTERN))]
    pub uri: String,
    /// Its credentials; the Secret must exist in every namespace that uses the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalSecretRef>,
}

/// A URI of a store, without a user or password.
const STORE_PATTERN: &str = "^(s3|gs|az|file)://[^/@]*(/.*)?$";

/// Who may use a pool: a namespace that is named, or that carries all the labels.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.names) || has(self.matchLabels)",
    "allowedNamespaces without names and matchLabels allows nobody: set one or remove it"))]
pub struct AllowedNamespaces {
    /// By name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub names: Option<Vec<String>>,
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "labels")]
    pub match_labels: Option<BTreeMap<String, String>>,
}

/// A map of labels.
fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$",
        },
    })
}

/// What the pool has and how much of it is held.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevicePoolStatus {
    /// The spec's generation that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Hardware that results were measured on, most used first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["digest".into()]))]
    pub fingerprints: Vec<Fingerprint>,
    /// Sessions of External devices as searches saw them, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sessions: Vec<ExternalSession>,
    /// Namespace of the operator that wrote this status and grants the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub managed_by: Option<String>,
    /// Ready, Reconciling, Stalled.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Devices of a pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// Nodes that match and are ready.
    pub nodes: i64,
    /// Workers that fit at once; for `Shared`, the nodes; absent where only claims know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// Devices that are leased; for pools that lease nothing, workers under way.
    pub leased: i64,
    /// Targets that wait for a device.
    #[serde(default)]
    pub waiting: i64,
}

/// Hardware that results were measured on.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fingerprint {
    /// SHA-256 of its description.
    #[schemars(length(max = 71))]
    pub digest: String,
    /// Results in the cluster that were measured on it.
    pub results: i64,
}

/// A session of an External device.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalSession {
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// The kind of machine in a word.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// When it answered last.
    pub last_seen: Time,
    /// Why it is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 480))]
    pub set_aside: Option<String>,
}
