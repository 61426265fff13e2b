//! What planning reads and what it answers: plain values that also have a text form, so that a case of the planner is a
//! file.

use std::collections::BTreeMap;

use hone_artifact::progress::Progress;
use hone_crds::common::Log;
use hone_crds::{TuningRun, TuningRunStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use crate::broker::pools::{Grant, NamespaceView, PoolView};
use crate::children::ended::Outcome;
use crate::children::jobs::JobView;
use crate::children::pods::Wait;
use crate::children::steps::{self, Refusal};

/// Everything that a plan depends on, besides the [`crate::config::Config`]. What is known of Jobs is by their names.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observed {
    /// The clock.
    pub now: Time,
    /// A random number in `[0, 1)`, to spread what is done again later.
    #[serde(default)]
    pub random: f64,
    /// The object itself.
    pub object: TuningRun,
    /// Its child Jobs.
    #[serde(default)]
    pub jobs: Vec<JobView>,
    /// What the pods of the finished Job left behind.
    #[serde(default)]
    pub outcomes: BTreeMap<String, Outcome>,
    /// What the pod that searches posted last.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Why workers do not start.
    #[serde(default)]
    pub waits: BTreeMap<String, Wait>,
    /// Jobs that the API server has just refused.
    #[serde(default)]
    pub refusals: BTreeMap<String, Refusal>,
    /// Every DevicePool.
    #[serde(default)]
    pub pools: Vec<PoolView>,
    /// The namespace.
    #[serde(default)]
    pub namespace: NamespaceView,
    /// The device that the Job may use.
    #[serde(default)]
    pub grants: BTreeMap<String, Grant>,
    /// Logs of other runs that it starts from.
    #[serde(default)]
    pub earlier_logs: Vec<Log>,
    /// The value of the run's PriorityClass.
    #[serde(default)]
    pub priority: i32,
}

/// What to do about a run, and its status.
pub type Plan = steps::Plan<TuningRunStatus>;
