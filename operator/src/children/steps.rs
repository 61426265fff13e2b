//! What a plan does about children: plain values, which [`super::apply`] carries out.

use hone_artifact::request;
use hone_crds::Phase;
use hone_crds::status::Failure;
use serde::{Deserialize, Serialize};

use super::events::EventPlan;
use super::jobs::Purpose;
use super::lost::LostPod;
use super::reasons::Reason;
use super::runs::RunPlan;
use crate::broker::Request;
use crate::broker::pools::{Grant, PoolView};

/// An answer of the API server that refuses a Job or a tuning run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusal {
    /// The status code, such as 422; 409 where another owns the name.
    pub code: u16,
    /// The API server's words.
    pub message: String,
}

/// What to do, in order, and what to say in a status of type `S`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan<S> {
    /// What to do.
    pub actions: Vec<Action>,
    /// The status to be written; `None` leaves it as it is.
    pub status: Option<S>,
    /// The devices that the object wishes for.
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
    /// Change a Job that has had no pod for long, so that the Job controller looks at it.
    WakeJob(String),
    /// Let the pods of a Job through that wait for this device.
    PlaceJob(Placement),
    /// Remove an evicted pod whose node does not answer.
    RemovePod(LostPod),
    /// Make a tuning run, or change it.
    ApplyRun(Box<RunPlan>),
    /// Delete a tuning run and its Jobs.
    DeleteRun(String),
    /// Delete the object itself: its time is over.
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
    /// Secrets that the worker does without where they are missing: the folder's name and the Secret's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub optional_secrets: Vec<(String, String)>,
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

/// A plan while it is made.
#[derive(Debug, Default)]
pub struct Draft {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// Jobs that are wanted beside those of targets, whether they are there or not.
    pub wanted_jobs: Vec<String>,
    /// Tuning runs that are wanted, whether they are there or not.
    pub wanted_runs: Vec<String>,
    /// The devices that it wishes for.
    pub requests: Vec<Request>,
    /// Seconds until the next look, where time alone can change the plan.
    pub again_seconds: Option<u64>,
}

impl Draft {
    /// Publishes an event.
    pub fn event(&mut self, event: EventPlan) {
        self.actions.push(Action::Event(event));
    }

    /// Publishes the event of a phase that was not there before.
    pub fn phase_event(
        &mut self,
        before: Option<Phase>,
        phase: Phase,
        failure: Option<&Failure>,
        success: impl FnOnce() -> String,
    ) {
        if before == Some(phase) {
            return;
        }
        match (phase, failure) {
            (Phase::Succeeded, _) => self.event(EventPlan::of(Reason::Succeeded, success())),
            (Phase::Failed, Some(failure)) => self.event(EventPlan::failure(failure)),
            (Phase::Suspended, _) => {
                self.event(EventPlan::of(Reason::Suspended, "work stopped by spec.suspend"));
            }
            (Phase::Failed | Phase::Pending | Phase::Running, _) => {}
        }
    }

    /// Asks for another look after `seconds` at the latest.
    pub fn again(&mut self, seconds: u64) {
        let soonest = self.again_seconds.map_or(seconds, |other| other.min(seconds));
        self.again_seconds = Some(soonest.max(1));
    }
}
