//! `ModelCompilation`: one model, compiled and measured for each of its targets.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::InputBinding;
use crate::common::{
    LABEL_PATTERN, LocalSecretRef, Log, ModelSource, Platform, PrecisionType, SUBDOMAIN_PATTERN,
    SampleSource, URI_PATTERN,
};
use crate::tuning_run::CostModel;
use crate::{Decimal, Duration, ModelCompilationStatus};

/// What to compile, for what, and where the result goes.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "hone.dev",
    version = "v1alpha1",
    kind = "ModelCompilation",
    plural = "modelcompilations",
    shortname = "hmc",
    category = "hone",
    namespaced,
    status = "ModelCompilationStatus",
    derive = "PartialEq",
    cel,
    doc = "Compiles a model into native code for each target, checked against a reference, measured and stored.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Targets", type_ = "string", json_path = ".status.targetsReady"),
    printcolumn(name = "Latency", type_ = "string", json_path = ".status.summary.latency"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".status.summary.pool"),
    printcolumn(
        name = "Verified",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Verified')].status"
    ),
    printcolumn(name = "Cache", type_ = "string", json_path = ".status.summary.cache"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.failure.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Artifact",
        type_ = "string",
        json_path = ".status.targets[0].artifact.uri",
        priority = 1
    ),
    printcolumn(
        name = "Report",
        type_ = "string",
        json_path = ".status.targets[0].reportUri",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self.output.uri == oldSelf.output.uri",
        "output.uri is immutable: create another ModelCompilation for another place"),
    validation = ("!has(self.tuning) || !has(self.tuning.maxDuration) || duration(self.tuning.maxDuration) < duration(self.limits.activeDeadline)",
        "tuning.maxDuration must be shorter than limits.activeDeadline, which also holds for fetching and for the last comparison: raise limits.activeDeadline"),
)]
pub struct ModelCompilationSpec {
    /// Stops the work and frees its devices; finished targets keep their results.
    #[serde(default)]
    pub suspend: bool,
    /// The model.
    pub model: ModelSource,
    /// Binds the model's open dimensions, each to one size or to several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub inputs: Vec<InputBinding>,
    /// What to compile for: one artifact each.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<Target>,
    /// Arithmetic that may be used; f32 only when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Search for faster schedules; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// How near to the reference the answers must be.
    #[serde(default)]
    pub correctness: Correctness,
    /// What the result must reach; missing a goal is a failure that keeps the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["metric".into()]))]
    pub goals: Vec<Goal>,
    /// Where artifacts and reports go.
    pub output: Output,
    /// Bounds on time and retries.
    #[serde(default)]
    pub limits: Limits,
    /// How long the finished object is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// The pod that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
}

/// One platform to compile for.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.platform) || has(self.pool)",
    "a target needs a platform, a pool, or both"))]
pub struct Target {
    /// Unique in the list; part of the artifact's name.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_PATTERN))]
    pub name: String,
    /// What runs the result; the pool's platform when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// The DevicePool to measure on; one that matches the platform when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub pool: Option<String>,
}

/// Arithmetic below f32, kept where a measurement shows that it is faster and near enough; for an accelerator that is not at
/// hand, where an estimate does.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!self.allow.exists(p, p == 'int8') || has(self.calibration)",
        "int8 needs calibration data: set calibration.uri"),
    validation = ("self.allow.all(p, p == 'f32') || has(self.maxRelativeError)",
        "arithmetic below f32 needs a bound on its error: set maxRelativeError, such as \"1e-2\""),
)]
pub struct Precision {
    /// What may be used beside f32, where it is near enough and faster.
    #[schemars(length(min = 1, max = 4))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub allow: Vec<PrecisionType>,
    /// Inputs to calibrate with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<SampleSource>,
    /// Largest error of any output element against the f32 reference, as a share of the largest
    /// magnitude in its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_relative_error: Option<Decimal>,
}

/// When to search for faster schedules.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
pub enum TuningPolicy {
    /// Use what records there are, measure nothing new.
    Never,
    /// Go on from what was measured before: in a cluster from the log of an earlier compilation of this name, and learn
    /// from the namespace's other runs; nothing is searched where the namespace has an equal compilation that was tuned.
    /// `hone compile` goes on from the records beside its cache.
    #[default]
    IfNotCached,
    /// Search anew in any case.
    Always,
}

/// Search for faster schedules. The target is published without it first. Then a TuningRun of the compilation searches
/// on the target's pool, and what it finds is published revision by revision.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self.policy != 'Never' || !(has(self.maxTrials) || has(self.maxDuration) || has(self.costModel))",
        "maxTrials, maxDuration and costModel mean nothing with policy Never: remove them or choose IfNotCached"),
)]
pub struct Tuning {
    /// When to search.
    #[serde(default)]
    pub policy: TuningPolicy,
    /// Most candidates measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_trials: Option<i64>,
    /// Longest time spent; 10m where `maxTrials` is absent, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Duration>,
    /// What judges candidates before they are measured; Trees when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_model: Option<CostModel>,
    /// The log of a TuningRun: the schedules that won there are compiled with, and a search goes on in it. It has no
    /// digest, so no result comes from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Log>,
}

/// How near to the reference every output element must be: `|got - want| <= atol + rtol * |want|`, and a
/// thousandth of the output's largest magnitude in place of `atol` where that is absent. Every kernel
/// is checked on the reference's values besides. Of a model that rounds to integers, that and the passes decide;
/// the error of its outputs is information, unless `precision.maxRelativeError` bounds it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Correctness {
    /// Relative tolerance.
    #[serde(default = "default_rtol")]
    pub rtol: Decimal,
    /// Absolute tolerance; a thousandth of an output's largest magnitude when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atol: Option<Decimal>,
    /// Inputs to compare on; seeded ones from what the model takes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<SampleSource>,
}

#[allow(clippy::expect_used)] // Constants that a test reads.
fn default_rtol() -> Decimal {
    "1e-3".parse().expect("a constant decimal")
}

impl Default for Correctness {
    fn default() -> Self {
        Self { rtol: default_rtol(), atol: None, samples: None }
    }
}

/// What a goal is about.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Metric {
    /// Median time of one run.
    LatencyP50,
    /// 90th percentile of the time of one run.
    LatencyP90,
}

/// What a result must reach.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("duration(self.max) > duration('0s')", "max must be longer than 0s"))]
pub struct Goal {
    /// What is measured.
    pub metric: Metric,
    /// The largest value that passes.
    pub max: Duration,
}

/// What happens to stored artifacts when the object is deleted.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
pub enum DeletionPolicy {
    /// They stay.
    #[default]
    Retain,
    /// They are deleted by a pod with the same credentials, unless another compilation of the
    /// namespace names them.
    Delete,
}

/// Where artifacts and reports go.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!self.uri.startsWith('https://')",
        "output cannot be https: use s3, gs, az or file"),
    validation = ("!self.uri.matches('^[a-z0-9]+://[^/]*@')",
        "a URI must not carry a user or password: use credentialsSecretRef"),
    validation = ("!self.uri.matches('(?i)[?&](x-amz-signature|x-goog-signature|x-amz-security-token|signature|sig|token)=')",
        "a URI must not carry a signature: use credentialsSecretRef"),
)]
pub struct Output {
    /// A folder of `s3://`, `gs://`, `az://` or `file://`.
    #[schemars(length(max = 2048), regex(pattern = URI_PATTERN))]
    pub uri: String,
    /// Credentials for the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalSecretRef>,
    /// What deletion does to what is stored there.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Bounds on time and retries.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("duration(self.activeDeadline) >= duration('1s')", "activeDeadline must be at least 1s"),
    validation = ("duration(self.pendingDeadline) >= duration('1s')", "pendingDeadline must be at least 1s"),
)]
pub struct Limits {
    /// Longest time a target's work may take, waiting and retries included.
    #[serde(default = "default_active_deadline")]
    pub active_deadline: Duration,
    /// Longest time a target may wait for a device.
    #[serde(default = "default_pending_deadline")]
    pub pending_deadline: Duration,
    /// How often a passing fault is tried again.
    #[serde(default = "default_retries")]
    #[schemars(range(min = 0, max = 10))]
    pub retries: i32,
}

fn default_active_deadline() -> Duration {
    Duration::from_secs(4 * 3600)
}

fn default_pending_deadline() -> Duration {
    Duration::from_secs(3600)
}

fn default_retries() -> i32 {
    3
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            active_deadline: default_active_deadline(),
            pending_deadline: default_pending_deadline(),
            retries: default_retries(),
        }
    }
}

/// How long the finished object is kept.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// The object is deleted this long after it finished; what becomes of its artifacts is for
    /// `output.deletionPolicy` to say.
    pub ttl_after_finished: Duration,
}

/// The pod that does the work. No pod template: only these.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// Processor, memory and storage asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// For workload identity; its token is never mounted by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub service_account_name: Option<String>,
    /// Priority among other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub priority_class_name: Option<String>,
}

/// Requests and limits, as in any pod.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What the pod may not exceed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// What a Kubernetes quantity looks like.
pub const QUANTITY_PATTERN: &str = r"^[0-9]+(\.[0-9]+)?([eE][0-9]+|[numkMGTPE]|[KMGTPE]i)?$";

/// A map from resource to Kubernetes quantity.
fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": true,
        },
    })
}
