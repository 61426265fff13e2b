//! What planning reads and what it answers: plain values that also have a text form, so that a
//! case of the planner is a file.

use std::collections::BTreeMap;

use hone_artifact::request;
use hone_artifact::termination::Termination;
use hone_crds::device_pool::{DevicePoolSpec, DevicePoolStatus};
use hone_crds::{ModelCompilation, ModelCompilationStatus, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

pub use crate::broker::Request;
pub use crate::children::events::EventPlan;
pub use crate::children::jobs::{Finish, JobView, Purpose};
use crate::children::pods::Wait;

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
    /// What the pods of finished Jobs left behind, by the Job's name. A finished Job that is
    /// absent here has not been looked at.
    #[serde(default)]
    pub outcomes: BTreeMap<String, Outcome>,
    /// Why the workers of Jobs do not start, by the Job's name.
    #[serde(default)]
    pub waits: BTreeMap<String, Wait>,
    /// Jobs that the API server has just refused, by name.
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
    /// Uids of other compilations of any namespace that name an artifact of this one, by its URI; looked up only for a
    /// deletion. Those that took it from the result cache never entered themselves as its owners.
    #[serde(default)]
    pub heirs: BTreeMap<String, Vec<String>>,
}

/// An answer of the API server that refuses a Job.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusal {
    /// The status code, such as 422; 409 where another owns the name.
    pub code: u16,
    /// The API server's words.
    pub message: String,
}

/// What the decisive pod of a finished Job left behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Outcome {
    /// No pod is left to look at.
    NoPod,
    /// A worker ended.
    Ended(Box<Ended>),
}

/// How a worker ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ended {
    /// Its exit code.
    #[serde(default)]
    pub exit_code: i32,
    /// The container's or the pod's reason, such as `OOMKilled` or `Evicted`.
    #[serde(default)]
    pub reason: String,
    /// Its report.
    #[serde(default)]
    pub report: Option<Termination>,
    /// The message that is no report.
    #[serde(default)]
    pub other_message: String,
}

/// A device that a Job may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// The pool that granted it.
    pub pool: String,
    /// The slot, which is the name of its Lease.
    pub slot: String,
    /// The node that it is on.
    pub node: String,
    /// The number of the grant.
    pub fence: u64,
}

/// A DevicePool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: DevicePoolSpec,
    /// Jobs that compile or wait in it now, which its status tells later or, while they wait, not at all.
    #[serde(default)]
    pub assigned: i64,
    /// The machine, where all of the pool is one.
    #[serde(default)]
    pub machine: Option<String>,
    /// Whether another operator grants its devices.
    #[serde(default)]
    pub foreign: bool,
    /// Its status, for free devices.
    #[serde(default)]
    pub status: DevicePoolStatus,
}

/// The namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceView {
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether it is going away.
    #[serde(default)]
    pub terminating: bool,
}

/// What to do, in order, and what to say.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What to do.
    pub actions: Vec<Action>,
    /// The status to be written; `None` leaves it as it is.
    pub status: Option<ModelCompilationStatus>,
    /// The devices that the compilation wishes for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Request>,
    /// Seconds until the next look, where time alone can change the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_seconds: Option<u64>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Add our finalizer.
    AddFinalizer,
    /// Remove our finalizer.
    RemoveFinalizer,
    /// Make a Job.
    CreateJob(Box<JobPlan>),
    /// Delete a Job and its pods.
    DeleteJob(String),
    /// Change the bounds of a Job that is under way.
    AdjustJob(JobBounds),
    /// Let the pods of a Job through that wait for this device.
    PlaceJob(Placement),
    /// Delete the compilation: its time is over.
    DeleteSelf,
    /// Publish an event.
    Event(EventPlan),
}

/// A Job whose pods wait for their device, and the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The Job.
    pub name: String,
    /// The device that it was granted.
    pub grant: Grant,
}

/// A Job to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub purpose: Purpose,
    /// The target that it compiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The pool that it runs in, name and spec.
    #[serde(skip)]
    pub pool: Option<PoolView>,
    /// The device that it was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// Whether its pods wait for their device: somebody else decides when they are made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
    /// Whether it is suspended when it is made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// What the worker is asked to do.
    #[serde(skip)]
    pub request: request::Request,
    /// Bounds on time and retries.
    pub bounds: JobBounds,
}

/// The bounds of a Job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobBounds {
    /// The Job.
    pub name: String,
    /// Its deadline, in seconds.
    pub active_deadline_seconds: i64,
    /// Its retries.
    pub backoff_limit: i32,
}
