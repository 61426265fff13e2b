//! What planning reads and what it answers: plain values that also have a text form, so that a case of the planner is a
//! file.

use std::collections::BTreeMap;

use hone_crds::Phase;
use hone_crds::status::Failure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kinds::Kind;
use super::resource::{CustomRun, CustomRunStatus, RunResult};
use crate::children::steps::Refusal;

/// Everything that a plan depends on, besides the [`crate::config::Config`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observed {
    /// The clock.
    pub now: Time,
    /// The run itself.
    pub object: CustomRun,
    /// The object of the attempt's name.
    #[serde(default)]
    pub child: Option<ChildView>,
    /// The spec of the object that the task names.
    #[serde(default)]
    pub template: Option<Value>,
    /// Why the API server has just refused the object.
    #[serde(default)]
    pub refusal: Option<Refusal>,
}

/// An object of the name that an attempt's has.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChildView {
    /// Whether the run controls it.
    pub owned: bool,
    /// Whether it is suspended.
    #[serde(default)]
    pub suspended: bool,
    /// Where it stands with its spec; Pending where its status speaks of an earlier one.
    #[serde(default)]
    pub phase: Phase,
    /// The reason of its `Ready`.
    #[serde(default)]
    pub reason: String,
    /// The message of its `Ready`.
    #[serde(default)]
    pub message: String,
    /// Why it failed.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// What came out, once it has succeeded.
    #[serde(default)]
    pub results: Vec<RunResult>,
}

/// What to do, in order, and what to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What to do.
    pub actions: Vec<Action>,
    /// The status to be written; `None` leaves it as it is.
    pub status: Option<CustomRunStatus>,
    /// Seconds until the next look, where time alone can change the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_seconds: Option<u64>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Make the object of an attempt.
    Create(Box<ChildPlan>),
    /// Stop the object's work; it stays, to be looked at.
    Suspend(Child),
}

/// An object by kind and name, in the run's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Child {
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: String,
}

/// An object to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChildPlan {
    /// Kind and name.
    #[serde(flatten)]
    pub child: Child,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Its spec.
    pub spec: Value,
}
