//! `TuningRun`: a search for fast schedules on the devices of a pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::InputBinding;
use crate::common::{Log, ModelSource, Platform, SUBDOMAIN_PATTERN};
use crate::model_compilation::{Limits, Worker};
use crate::status::{Failure, ObjectRef, Retry};
use crate::{Decimal, Duration, Phase};

/// What to tune, where, and when to stop. Immutable but for `suspend`, `stop.maxTrials`, `stop.maxDuration`,
/// `parallelDevices`, `limits` and `worker`. A change of what a pod is told ends the pod, and another one goes on from the log.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "hone.dev",
    version = "v1alpha1",
    kind = "TuningRun",
    plural = "tuningruns",
    shortname = "htr",
    category = "hone",
    namespaced,
    status = "TuningRunStatus",
    derive = "PartialEq",
    cel,
    doc = "Searches for fast schedules of one model for one target on the devices of a pool.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Measured", type_ = "integer", json_path = ".status.trials.measured"),
    printcolumn(name = "Used%", type_ = "integer", json_path = ".status.progress.usedPercent"),
    printcolumn(name = "Expected", type_ = "string", json_path = ".status.progress.expected"),
    printcolumn(name = "Best", type_ = "string", json_path = ".status.best.latency"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self.model == oldSelf.model", "model is immutable: create another TuningRun"),
    validation = ("self.target == oldSelf.target", "target is immutable: create another TuningRun"),
    validation = ("self.pool == oldSelf.pool", "pool is immutable: create another TuningRun"),
    validation = ("self.search == oldSelf.search", "search is immutable: create another TuningRun"),
    validation = ("self.measure == oldSelf.measure", "measure is immutable: create another TuningRun"),
    validation = ("self.log == oldSelf.log", "log is immutable: create another TuningRun"),
    validation = ("has(self.inputs) == has(oldSelf.inputs) && (!has(self.inputs) || self.inputs == oldSelf.inputs)",
        "inputs is immutable: create another TuningRun"),
    validation = ("!has(self.stop.maxDuration) || duration(self.stop.maxDuration) < duration(self.limits.activeDeadline)",
        "stop.maxDuration must be shorter than limits.activeDeadline, which also holds for fetching and for the last comparison: raise limits.activeDeadline"),
)]
pub struct TuningRunSpec {
    /// Ends the pod and frees the device; taken back, the search goes on from its log.
    #[serde(default)]
    pub suspend: bool,
    /// The model.
    pub model: ModelSource,
    /// Binds the model's dynamic dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub inputs: Option<Vec<InputBinding>>,
    /// What runs the result: the pool's own machines, since candidates are measured on them.
    pub target: Platform,
    /// The DevicePool to measure on.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub pool: String,
    /// Most devices used at once: one by the pod that searches, the others by sessions that measure for it as soon as
    /// the pool has devices that nobody else waits for. Their machines must be of one kind.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub parallel_devices: i32,
    /// How candidates are found.
    #[serde(default)]
    pub search: Search,
    /// How candidates are timed.
    #[serde(default)]
    pub measure: Measure,
    /// When to stop.
    pub stop: Stop,
    /// Where every trial is recorded.
    pub log: Log,
    /// Bounds on waiting and retries.
    #[serde(default)]
    pub limits: Limits,
    /// The pod that searches and measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
}

fn one() -> i32 {
    1
}

/// How candidates are found.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
pub enum Strategy {
    /// Evolution guided by a learned cost model.
    #[default]
    Evolutionary,
    /// Independent random candidates.
    Random,
    /// Every candidate in order.
    Exhaustive,
}

/// What judges candidates before they are measured.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
pub enum CostModel {
    /// Gradient-boosted trees over features of the scheduled program.
    #[default]
    Trees,
    /// A small neural network over the loop nest of the scheduled program.
    Neural,
}

impl CostModel {
    /// Whether it is the one that is taken without a choice. That one is not written down, so that what was named after a
    /// spec before there was a choice keeps its name.
    #[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Its name as `hone tune --cost-model` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trees => "trees",
            Self::Neural => "neural",
        }
    }
}

/// Whose records a search may start from, besides those in its log.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
pub enum WarmStart {
    /// Nobody's.
    #[default]
    None,
    /// Those in the logs of the namespace's other runs for the same platform, the sixteen latest.
    Namespace,
    /// Those in the logs of runs for the same platform of the namespace and of all namespaces that the administrator has
    /// labelled `hone.dev/share-records: "true"`, the sixteen latest.
    Fleet,
}

/// How candidates are found.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Search {
    /// The strategy.
    #[serde(default)]
    pub strategy: Strategy,
    /// What judges candidates before they are measured; Trees when absent.
    #[serde(default, skip_serializing_if = "CostModel::is_default")]
    pub cost_model: CostModel,
    /// Seed of every random choice.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub seed: i64,
    /// Whose records to start from, besides those in the log.
    #[serde(default)]
    pub warm_start: WarmStart,
}

/// How candidates are timed.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("duration(self.timeout) > duration(self.minRepeat)",
    "timeout must be longer than minRepeat"))]
pub struct Measure {
    /// Measurements of each candidate, taken in turn with the other candidates of its batch and with the schedule without
    /// tuning.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeat: i32,
    /// Least time of one measurement; the candidate runs as often as that takes.
    #[serde(default = "min_repeat")]
    pub min_repeat: Duration,
    /// Longest time of one candidate once it runs. Candidates of one batch share theirs.
    #[serde(default = "timeout")]
    pub timeout: Duration,
    /// Largest width of the candidates' confidence intervals, at the median of a batch and relative to their times. A
    /// noisier batch is measured once more, for three times as long. 0.15 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_noise: Option<Decimal>,
}

fn three() -> i32 {
    3
}

fn min_repeat() -> Duration {
    Duration::from_nanos(10_000_000)
}

fn timeout() -> Duration {
    Duration::from_secs(10)
}

impl Default for Measure {
    fn default() -> Self {
        Self { repeat: three(), min_repeat: min_repeat(), timeout: timeout(), max_noise: None }
    }
}

/// When to stop: at whichever comes first.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.maxTrials) || has(self.maxDuration)",
        "a search needs an end: set maxTrials or maxDuration"),
    validation = ("has(self.noImprovementTrials) == has(oldSelf.noImprovementTrials) && (!has(self.noImprovementTrials) || self.noImprovementTrials == oldSelf.noImprovementTrials)",
        "noImprovementTrials is immutable: create another TuningRun"),
    validation = ("has(self.goal) == has(oldSelf.goal) && (!has(self.goal) || self.goal == oldSelf.goal)",
        "goal is immutable: create another TuningRun"),
)]
pub struct Stop {
    /// Most candidates tried, those in the log included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_trials: Option<i64>,
    /// Longest time spent searching, over all pods, without waiting, fetching and the last comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Duration>,
    /// Candidates in a row that may bring nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub no_improvement_trials: Option<i64>,
    /// A run of the network that is expected to take no longer is good enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Duration>,
}

/// How far the search is, the best, and where to resume.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TuningRunStatus {
    /// The spec's generation that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for pipelines.
    #[serde(default)]
    pub phase: Phase,
    /// Ready, Reconciling, Stalled, Finished, Succeeded.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// When the work was taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The Job that does or did the work, or would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ref: Option<ObjectRef>,
    /// That its Job could not start, and when it is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// SHA-256 of the model that is tuned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub model_digest: Option<String>,
    /// SHA-256 of the description of the hardware that measured last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub fingerprint: Option<String>,
    /// Counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials: Option<Trials>,
    /// How far the search is, as its pod tells meanwhile; absent where none searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<SearchProgress>,
    /// The network with the schedules that won, once it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Where the log stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// Who measures now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub workers: Vec<TuningWorker>,
    /// Why the search ended, such as that all trials are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub ended: Option<String>,
    /// Why it failed, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// Counters of candidates, over all pods of the run.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trials {
    /// Timed.
    pub measured: i64,
    /// Did not build, ran too long or gave a wrong answer.
    pub failed: i64,
}

/// How far a search is that is under way.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchProgress {
    /// Percent of spec.stop that is used, by trials or time, whichever is further.
    pub used_percent: i32,
    /// Time of one run with each program's best candidate, as measured alone.
    pub expected: Duration,
    /// The same without tuning.
    pub untuned: Duration,
}

/// What the search is worth.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Best {
    /// End-to-end time of one run with the schedules that won.
    pub latency: Duration,
    /// The same without tuning, measured in turn with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untuned: Option<Duration>,
    /// Programs of the network whose schedule was tuned.
    #[serde(default)]
    pub programs: i64,
}

/// Where the log stands.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Number of the last segment.
    pub segment: i64,
    /// SHA-256 of it.
    #[schemars(length(max = 71))]
    pub digest: String,
}

/// One Job whose pod measures.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TuningWorker {
    /// The Job.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The device it holds, by the name of its Lease; absent where none is leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub device: Option<String>,
}
