//! What planning reads and what it answers: plain values that also have a text form, so that a
//! case of the planner is a file.

use std::collections::BTreeMap;

use hone_crds::{ModelCompilation, ModelCompilationStatus, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

pub use crate::broker::pools::{Grant, NamespaceView, PoolView};
pub use crate::children::ended::{Ended, Outcome};
pub use crate::children::events::EventPlan;
pub use crate::children::jobs::{Finish, JobView, Purpose};
use crate::children::pods::Wait;
pub use crate::children::runs::{RunPlan, RunView};
use crate::children::steps;
pub use crate::children::steps::{Action, JobBounds, JobPlan, Placement, Refusal};

/// Everything that a plan depends on, besides the [`crate::config::Config`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observed {
    /// The clock.
    pub now: Time,
    /// A random number in `[0, 1)`, to spread what is done again later.
    #[serde(default)]
    pub random: f64,
    /// The object itself.
    pub object: ModelCompilation,
    /// Its child Jobs.
    #[serde(default)]
    pub jobs: Vec<JobView>,
    /// Its child tuning runs.
    #[serde(default)]
    pub runs: Vec<RunView>,
    /// What the pods of finished Jobs left behind, by the Job's name. A finished Job that is
    /// absent here has not been looked at.
    #[serde(default)]
    pub outcomes: BTreeMap<String, Outcome>,
    /// Why the workers of Jobs do not start, by the Job's name.
    #[serde(default)]
    pub waits: BTreeMap<String, Wait>,
    /// Jobs and tuning runs that the API server has just refused, by name.
    #[serde(default)]
    pub refusals: BTreeMap<String, Refusal>,
    /// Every DevicePool.
    #[serde(default)]
    pub pools: Vec<PoolView>,
    /// The namespace.
    #[serde(default)]
    pub namespace: NamespaceView,
    /// Devices that Jobs may use, by the Job's name.
    #[serde(default)]
    pub grants: BTreeMap<String, Grant>,
    /// The value of the compilation's PriorityClass.
    #[serde(default)]
    pub priority: i32,
    /// Results of other compilations that may be used, by content key.
    #[serde(default)]
    pub cached: BTreeMap<String, TargetStatus>,
    /// Uids of other compilations of any namespace that name an artifact in the output folder, by its URI; looked up only
    /// for a deletion. Those that took it from the result cache may not have entered themselves as its owners yet.
    #[serde(default)]
    pub heirs: BTreeMap<String, Vec<String>>,
}

/// What to do about a compilation, and its status.
pub type Plan = steps::Plan<ModelCompilationStatus>;
