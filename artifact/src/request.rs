//! What the operator asks a worker pod to do: `hone worker` reads it from the environment
//! variable [`REQUEST_VARIABLE`] or from a file.
//!
//! Versioned: a worker refuses a request of a newer [`REQUEST_VERSION`] and accepts older ones.
//! Within a version fields are only added, with a default that keeps the old meaning.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Extent;

/// The newest version that this code reads and writes: it has searches that measure nothing themselves.
pub const REQUEST_VERSION: u32 = 5;

/// The version that has a choice of the cost model.
pub const COST_MODEL_VERSION: u32 = 4;

/// The version that has sessions.
pub const SESSION_VERSION: u32 = 3;

/// The version that has targets with an accelerator.
pub const ACCELERATOR_VERSION: u32 = 2;

/// The version of requests that use nothing of a newer one, so that older workers take them.
pub const OLDEST_REQUEST_VERSION: u32 = 1;
/// The environment variable that carries the request's JSON into the worker.
pub const REQUEST_VARIABLE: &str = "HONE_REQUEST";

/// One piece of work for one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Version of this structure.
    pub version: u32,
    /// For whom: goes into the report and into logs.
    pub subject: Subject,
    /// What to do.
    pub work: Work,
}

/// The object that the work is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Its namespace; empty outside of a cluster.
    #[serde(default)]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its unique identifier; empty outside of a cluster.
    #[serde(default)]
    pub uid: String,
}

/// What a worker can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Work {
    /// Compile, verify, measure and store one target.
    Compile(Box<Compile>),
    /// Search for faster schedules of one model and keep every trial in a log.
    Tune(Box<Tune>),
    /// Measure candidates of a tuning run beside the worker that searches.
    Session(Session),
    /// Delete what was stored.
    Delete(Delete),
    /// Own what another compilation stored, where it is still there.
    Adopt(Adopt),
}

/// Own what another compilation stored, where it is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Adopt {
    /// The artifact, whose name holds its digest.
    pub uri: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The credentials of its store, as in [`Source`].
    #[serde(default)]
    pub credentials: Option<String>,
}

/// Compile, verify, measure and store one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compile {
    /// The model.
    pub model: Source,
    /// Sizes of the inputs' dimensions.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// What to compile for.
    pub target: TargetRequest,
    /// Arithmetic that may be used, as in the spec; `["f32"]` when nothing else is allowed.
    pub precision: Vec<String>,
    /// Largest relative error that arithmetic below f32 may bring.
    #[serde(default)]
    pub max_relative_error: Option<f64>,
    /// Calibration inputs for integer arithmetic.
    #[serde(default)]
    pub calibration: Option<Source>,
    /// The search for faster schedules.
    pub tuning: TuningRequest,
    /// Tolerances.
    pub correctness: CorrectnessRequest,
    /// Where artifact and report go.
    pub output: Destination,
}

impl Compile {
    /// The first version that has everything that this uses.
    pub fn version_needed(&self) -> u32 {
        match self.target.accelerator {
            Some(_) => ACCELERATOR_VERSION,
            None => OLDEST_REQUEST_VERSION,
        }
    }
}

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// `s3://`, `gs://`, `az://`, `https://` or `file://`.
    pub uri: String,
    /// `sha256:` and 64 hexadecimal digits, checked before anything is parsed.
    #[serde(default)]
    pub digest: Option<String>,
    /// A folder with one file per option of the store, named as the option is, such as
    /// `AWS_ACCESS_KEY_ID`.
    #[serde(default)]
    pub credentials: Option<String>,
}

/// Sizes of one input, or of one open dimension in all inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// The name of the input, or of the dimension, in the model.
    pub name: String,
    /// Sizes in elements, in the model's axis order. Under the name of an open dimension: its sizes.
    pub shape: Vec<Extent>,
    /// Must equal the model's where given.
    #[serde(default)]
    pub dtype: Option<String>,
}

/// What to compile for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRequest {
    /// The target's name in the spec.
    pub name: String,
    /// Operating system, `linux` or `none`.
    pub os: String,
    /// Architecture as Kubernetes names it, such as `amd64`; empty for that of the worker's machine.
    pub arch: String,
    /// Processor as LLVM names it; `None` for what every machine of the architecture has.
    #[serde(default)]
    pub cpu: Option<String>,
    /// `+feature` and `-feature`.
    #[serde(default)]
    pub features: Vec<String>,
    /// What runs the model in place of the processor, such as `opencl` or `sm_80`; `cuda` is the architecture of the
    /// device at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// The pool that the worker runs on, for the report.
    #[serde(default)]
    pub pool: Option<String>,
    /// Largest relative spread of a measurement that is believed.
    #[serde(default)]
    pub noise_budget: Option<f64>,
}

/// Longest search where neither trials nor time are bounded.
pub const LONGEST_SEARCH: Duration = Duration::from_secs(600);

/// The search for faster schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TuningRequest {
    /// `Never`, `IfNotCached` or `Always`.
    pub policy: String,
    /// Most candidates measured.
    #[serde(default)]
    pub max_trials: Option<u64>,
    /// Longest time spent, in seconds.
    #[serde(default)]
    pub max_seconds: Option<u64>,
    /// Name of the cost model, such as `neural`; the usual one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_model: Option<String>,
    /// The folder of a tuning run's log, whose winners are compiled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Destination>,
}

/// Search for faster schedules of one model on the worker's machine. The log is the run's memory: a worker takes up
/// what it holds and adds to it, so that limits count over all workers of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tune {
    /// The model.
    pub model: Source,
    /// Sizes of the inputs' dimensions.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// What to compile for: the worker's own machine, or those of `external`.
    pub target: TargetRequest,
    /// The folder of the log.
    pub log: Destination,
    /// The sessions outside of the cluster that alone measure; the worker itself does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Name of the strategy, such as `learned`.
    pub strategy: String,
    /// Name of the cost model, such as `neural`; the usual one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_model: Option<String>,
    /// Where random numbers start.
    pub seed: u64,
    /// How candidates are timed.
    pub measure: MeasureRequest,
    /// When to end.
    pub stop: StopRequest,
    /// Whether sessions measure, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions: bool,
    /// Logs of other runs, whose records are learned from. Those that cannot be read are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_start: Vec<Destination>,
}

impl Tune {
    /// The first version that has everything that this uses.
    pub fn version_needed(&self) -> u32 {
        match (&self.external, &self.cost_model) {
            (Some(_), _) => REQUEST_VERSION,
            (None, Some(_)) => COST_MODEL_VERSION,
            (None, None) => OLDEST_REQUEST_VERSION,
        }
    }
}

/// Where a search meets the sessions of a pool whose devices are outside of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// The store of the sessions of pools.
    pub store: Destination,
    /// The pool.
    pub pool: String,
    /// Longest seconds without a session that answers.
    pub wait_seconds: u64,
}

/// Measure candidates of a tuning run beside the worker that searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its name among the sessions of the run: up to 63 lower-case letters, digits and hyphens.
    pub name: String,
    /// What code is made for: the worker's own machine.
    pub target: TargetRequest,
    /// The folder of the run's log.
    pub log: Destination,
    /// Seconds without work after which it ends.
    pub idle_seconds: u64,
}

/// How candidates are timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasureRequest {
    /// Seconds for which each candidate runs.
    pub seconds: f64,
    /// Longest seconds of one candidate, from when it starts to run.
    pub timeout_seconds: f64,
    /// Widest confidence interval, as a share, of candidates that are not measured once more.
    #[serde(default)]
    pub max_noise: Option<f64>,
}

/// When a search ends: at whichever comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    /// Most candidates tried, those in the log included.
    #[serde(default)]
    pub max_trials: Option<u64>,
    /// Longest time of searching, that of earlier workers included, in seconds.
    #[serde(default)]
    pub max_seconds: Option<u64>,
    /// Candidates in a row that may bring nothing.
    #[serde(default)]
    pub no_improvement_trials: Option<u64>,
    /// Nanoseconds of a run that are good enough.
    #[serde(default)]
    pub goal_nanoseconds: Option<u64>,
}

/// How near to the reference the answers must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorrectnessRequest {
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance; a thousandth of an output's largest magnitude when absent.
    #[serde(default)]
    pub atol: Option<f64>,
    /// Inputs to compare on; seeded random ones when absent.
    #[serde(default)]
    pub samples: Option<Source>,
}

/// Where results go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    /// A folder of `s3://`, `gs://`, `az://` or `file://`.
    pub uri: String,
    /// As for [`Source::credentials`].
    #[serde(default)]
    pub credentials: Option<String>,
}

/// Give up what was stored: what nobody else owns is deleted. A file that is gone already counts as deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delete {
    /// Artifacts by URI; the reports beside them go too.
    pub uris: Vec<String>,
    /// As for [`Source::credentials`].
    #[serde(default)]
    pub credentials: Option<String>,
    /// The folder in which everything is looked for that the subject owns, besides `uris`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Uids of other objects that name an artifact and may not have entered themselves as its owners, by its URI: those
    /// that have not gone meanwhile own it from now on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heirs: BTreeMap<String, Vec<String>>,
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is no JSON of this structure.
    #[error("the request is not valid: pass the JSON that the operator writes")]
    Malformed(#[source] serde_json::Error),
    /// It is newer than this program.
    #[error(
        "the request has version {found}, this program reads up to {REQUEST_VERSION}: use a worker image as new as the operator"
    )]
    Version {
        /// The version in the request.
        found: u32,
    },
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// [`RequestError`] when it is malformed or newer than this code.
    pub fn from_json(text: &str) -> Result<Self, RequestError> {
        /// Only the version, which is looked at before anything else.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(RequestError::Malformed)?;
        if head.version > REQUEST_VERSION {
            return Err(RequestError::Version { found: head.version });
        }
        serde_json::from_str(text).map_err(RequestError::Malformed)
    }

    /// The request as JSON on one line.
    ///
    /// # Errors
    /// Never for requests of finite numbers; the serializer's error otherwise.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn delete() -> Request {
        Request {
            version: REQUEST_VERSION,
            subject: Subject {
                namespace: "team-a".into(),
                name: "resnet50".into(),
                uid: "1".into(),
            },
            work: Work::Delete(Delete {
                uris: vec!["s3://a/b.hone".into()],
                credentials: None,
                folder: None,
                heirs: BTreeMap::new(),
            }),
        }
    }

    #[test]
    fn reads_what_it_writes() {
        let text = delete().to_json().unwrap();
        assert_eq!(Request::from_json(&text).unwrap(), delete());
    }

    #[test]
    fn a_newer_version_is_refused_before_its_fields_are() {
        let error = Request::from_json(r#"{"version": 6, "novelty": 1}"#).unwrap_err();
        assert!(error.to_string().contains("has version 6"), "{error}");
    }
}
