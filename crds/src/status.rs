//! What came out: the status of a `ModelCompilation`. The operator writes it, and the local
//! compile prints the same. Every list is bounded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Decimal, Duration};

/// Where a compilation stands, as one word for pipelines; the conditions are the truth.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[schemars(inline)]
pub enum Phase {
    /// Nothing runs yet: waiting for a device, a quota or a pod.
    #[default]
    Pending,
    /// At least one target's worker runs.
    Running,
    /// `spec.suspend` is set.
    Suspended,
    /// Every target is done.
    Succeeded,
    /// A target failed for good.
    Failed,
}

impl Phase {
    /// The word as it stands in `status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Suspended => "Suspended",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing more happens by itself: it is done, or has failed for good.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What came out of a compilation.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCompilationStatus {
    /// The spec's generation that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for pipelines.
    #[serde(default)]
    pub phase: Phase,
    /// Finished and all targets, such as `1/2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub targets_ready: Option<String>,
    /// Scalars over all targets, for columns and pipelines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// When the first worker was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the last target finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Ready, Reconciling, Stalled, Finished, Succeeded, Tuned, Verified.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// One entry a target.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<TargetStatus>,
    /// Artifacts of earlier specs and of removed targets, newest last, which go with the object where
    /// `output.deletionPolicy` is Delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 2048)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub superseded: Vec<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// What came out over all targets, each as one text.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Median latency: `1.31ms` for one target, `amx 1.31ms, edge 4.2ms` for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub latency: Option<String>,
    /// The pools that are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub pool: Option<String>,
    /// `Hit`, `Miss`, or how many were there, such as `Hit 1/2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub cache: Option<String>,
}

impl Summary {
    /// Most bytes of a text; columns are no place for more.
    const BYTES: usize = 256;

    /// The summary of `targets`; `None` where there is nothing to say yet.
    pub fn of(targets: &[TargetStatus]) -> Option<Self> {
        let bounded = |text: String| {
            let text = crate::conditions::bounded(&text, Self::BYTES).to_owned();
            (!text.is_empty()).then_some(text)
        };
        let measured = targets.iter().filter_map(|target| Some((target, target.latency.as_ref()?)));
        let latencies: Vec<String> = measured
            .map(|(target, latency)| match targets.len() {
                1 => latency.p50.to_string(),
                _ => format!("{} {}", target.name, latency.p50),
            })
            .collect();
        let mut pools: Vec<&str> = targets.iter().filter_map(|t| t.pool.as_deref()).collect();
        pools.sort_unstable();
        pools.dedup();
        let known: Vec<Cache> = targets.iter().filter_map(|target| target.cache).collect();
        let hits = known.iter().filter(|cache| **cache == Cache::Hit).count();
        let cache = match (known.len(), hits) {
            (0, _) => String::new(),
            (_, 0) => "Miss".to_owned(),
            (all, hits) if all == hits => "Hit".to_owned(),
            (all, hits) => format!("Hit {hits}/{all}"),
        };
        let summary = Self {
            latency: bounded(latencies.join(", ")),
            pool: bounded(pools.join(", ")),
            cache: bounded(cache),
        };
        (summary != Self::default()).then_some(summary)
    }
}

/// What came out for one target.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// The target's name in the spec.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Where this target stands.
    #[serde(default)]
    pub phase: Phase,
    /// Digest of the part of the spec that this result came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub spec_digest: Option<String>,
    /// The key under which equal work finds this result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub content_key: Option<String>,
    /// That its Job could not start, and when it is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The DevicePool that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pool: Option<String>,
    /// The Job that does or did the work, or would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ref: Option<ObjectRef>,
    /// What was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The report for programs; the page for people beside it ends with `.html`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2624))]
    pub report_uri: Option<String>,
    /// SHA-256 of the model that was compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub model_digest: Option<String>,
    /// SHA-256 of the description of the hardware that was measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub fingerprint: Option<String>,
    /// How fast it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// How fast it is at each size, the largest first; empty where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub sizes: Vec<SizesStatus>,
    /// The arithmetic that was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub precision: Option<String>,
    /// Why it was not compared with the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub unverified: Option<String>,
    /// How near to the reference it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correctness: Option<CorrectnessStatus>,
    /// Whether the result was there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Whether tuning records decided schedules of it.
    #[serde(default)]
    pub tuned: bool,
    /// The run that tunes or tuned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning_run_ref: Option<ObjectRef>,
    /// Where its tuning stands, where the spec asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TargetTuning>,
    /// Time from the worker's start to its report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_time: Option<Duration>,
    /// Why this target failed, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl TargetStatus {
    /// Whether the target, or the search for faster schedules of it, has failed: whether a retry does anything.
    pub fn has_failed(&self) -> bool {
        let tuning = self.tuning.as_ref().map(|tuning| tuning.phase);
        self.phase == Phase::Failed || tuning == Some(Phase::Failed)
    }
}

/// Where the tuning of a target stands: a TuningRun searches, then the target is compiled once more with what won. The
/// artifact stays in its place until a better one is there.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetTuning {
    /// Succeeded or Failed once the run has ended and its result is compiled.
    #[serde(default)]
    pub phase: Phase,
    /// SHA-256 of what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub spec_digest: Option<String>,
    /// The most candidates that were to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_trials: Option<i64>,
    /// The longest time that was to be spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Duration>,
    /// Number of the published revision; 1 is that without tuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Of the revision compiled last: thousandths of the time without tuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled: Option<i64>,
    /// The revision that is compiled meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiling: Option<Compiling>,
    /// SHA-256 of the last segment of the run's log that the target is or was compiled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub checkpoint: Option<String>,
    /// When the search, or compiling with its result, was taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The Job that could not start, and when it is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Why it failed, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A revision that is compiled while its run goes on.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compiling {
    /// SHA-256 of the last segment then.
    #[schemars(length(max = 71))]
    pub checkpoint: String,
    /// As in `compiled`.
    pub found: i64,
    /// When it was taken up.
    pub start_time: Time,
    /// Why its Job does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub waits: Option<String>,
}

/// The stored artifact.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Where it is.
    #[schemars(length(max = 2560))]
    pub uri: String,
    /// SHA-256 of the file.
    #[schemars(length(max = 71))]
    pub digest: String,
    /// Size of the file in bytes.
    pub size_bytes: i64,
    /// When a worker last stored it or found it in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Time>,
    /// Of a `Hit`: whether a worker has entered this object as the artifact's owner yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned: Option<bool>,
}

/// One of the sizes that an artifact serves.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizesStatus {
    /// The sizes of the open dimensions, such as `batch=4, seq=128`.
    #[schemars(length(max = 64))]
    pub sizes: String,
    /// Median latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<Duration>,
}

/// Time of one run, batch as in `inputs`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Median.
    pub p50: Duration,
    /// 90th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<Duration>,
    /// Lower end of the 95 % confidence interval of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_low: Option<Duration>,
    /// Upper end of that interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_high: Option<Duration>,
    /// Median of the untuned build, measured in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untuned: Option<Duration>,
}

/// Error against the reference.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorrectnessStatus {
    /// Largest absolute error of any output element.
    pub max_abs: Decimal,
    /// Largest relative error of any output element above the absolute tolerance.
    pub max_rel: Decimal,
    /// Whether nothing was found wrong.
    pub passed: bool,
    /// Kernel calls that were checked one by one on the reference's values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<i64>,
    /// Largest error of a kernel relative to what rounding explains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_error: Option<Decimal>,
    /// Elements that kernels gave an integer step off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_off: Option<i64>,
    /// Why the passes were not checked; absent where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 96))]
    pub passes_unchecked: Option<String>,
    /// What ran the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 96))]
    pub executed_by: Option<String>,
}

/// Whether a result was there already.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
pub enum Cache {
    /// It was; nothing was compiled.
    Hit,
    /// It was not.
    Miss,
}

/// Another object in the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
}

/// Work that could not be started and is tried again.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How often it was tried in vain.
    pub attempts: i32,
    /// Not before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Time>,
}

/// Why something failed.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Why, as one CamelCase word.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What failed, on which object, and what to do.
    #[schemars(length(max = 2048))]
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, nanoseconds: u64, cache: Cache) -> TargetStatus {
        TargetStatus {
            name: name.to_owned(),
            pool: Some("cpus".to_owned()),
            latency: Some(Latency { p50: Duration::from_nanos(nanoseconds), ..Latency::default() }),
            cache: Some(cache),
            ..TargetStatus::default()
        }
    }

    #[test]
    fn a_summary_speaks_of_all_targets() {
        let (amx, edge) =
            (target("amx", 1_310_000, Cache::Hit), target("edge", 4_200_000, Cache::Miss));
        let one = Summary::of(std::slice::from_ref(&amx)).unwrap_or_default();
        assert_eq!((one.latency.as_deref(), one.cache.as_deref()), (Some("1.31ms"), Some("Hit")));
        let waiting = TargetStatus { name: "third".to_owned(), ..TargetStatus::default() };
        let three = Summary::of(&[amx, edge, waiting.clone()]).unwrap_or_default();
        assert_eq!(three.latency.as_deref(), Some("amx 1.31ms, edge 4.2ms"));
        assert_eq!(three.pool.as_deref(), Some("cpus"));
        assert_eq!(three.cache.as_deref(), Some("Hit 1/2"));
        assert_eq!(Summary::of(&[waiting]), None);
        let many: Vec<_> =
            (0..16).map(|n| target(&format!("{n}{}", "x".repeat(60)), 1, Cache::Miss)).collect();
        assert!(Summary::of(&many).and_then(|s| s.latency).is_some_and(|text| text.len() <= 256));
    }
}
