//! Decides what to do for one run, from values alone: no client, no clock.
//!
//! An attempt has one object. A failed attempt is laid down in `status.retriesStatus` and the next one begins, as Tekton's
//! own controllers do it; what another attempt would not mend, such as a wrong spec, ends the run at once.

use hone_crds::conditions::{State, set};
use hone_crds::{Duration, Phase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::model::{Action, Child, ChildView, Observed, Plan};
use super::reason::Reason;
use super::resource::{CustomRunStatus, ExtraFields, Made, SUCCEEDED};
use super::{asked, kinds};
use crate::config::Config;

/// Longest time of an attempt where a run says nothing, as Tekton's own type has it.
const DEFAULT_TIMEOUT: u64 = 3600;

/// The plan for what was observed.
pub fn plan(config: &Config, observed: &Observed) -> Plan {
    let run = &observed.object;
    if !run.is_ours() || run.is_done() || run.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let start = run.status.start_time.clone().unwrap_or_else(|| observed.now.clone());
    let mut planner = Planner { config, observed, start, actions: Vec::new(), again: None };
    let status = planner.status();
    Plan {
        actions: planner.actions,
        status: (status != run.status).then_some(status),
        again_seconds: planner.again,
    }
}

/// A run while it is planned.
struct Planner<'a> {
    config: &'a Config,
    observed: &'a Observed,
    /// When the attempt began.
    start: Time,
    actions: Vec<Action>,
    again: Option<u64>,
}

impl Planner<'_> {
    fn status(&mut self) -> CustomRunStatus {
        let run = &self.observed.object;
        let child = match asked::child(run) {
            Ok(child) => child,
            Err(fault) => return self.refused(fault),
        };
        let view = self.observed.child.as_ref().filter(|view| view.owned);
        if run.is_cancelled() {
            self.stop(&child, view);
            let asked = run.spec.status_message.as_str();
            let why = if asked.is_empty() { "spec.status asks for it" } else { asked };
            return self.ended(State::False, Reason::CustomRunCancelled.as_str(), why);
        }
        if !run.spec.workspaces.is_empty() {
            let why = "the workers have volumes of their own: remove the workspaces of this task";
            return self.refused((Reason::CustomRunWorkspaceNotSupported, why.to_owned()));
        }
        let left = match self.left() {
            Ok(left) => left,
            Err(why) => return self.refused((Reason::InvalidSpec, why)),
        };
        match (&self.observed.child, view) {
            (Some(_), None) => {
                let why = format!("{} is another's: rename the task's run", said(&child));
                self.refused((Reason::NameTaken, why))
            }
            (_, Some(view)) => self.follow(&child, view, left),
            (None, None) if self.was_made(&child) => {
                let why = format!("{} was deleted before it had ended", said(&child));
                self.failed(Reason::Deleted.as_str(), &why)
            }
            (None, None) => self.begin(&child, left),
        }
    }

    /// Says where the attempt's object stands.
    fn follow(&mut self, child: &Child, view: &ChildView, left: Option<u64>) -> CustomRunStatus {
        let what = said(child);
        match (view.phase, &view.failure) {
            (Phase::Succeeded, _) => {
                let why = sentence(&what, &view.message);
                let results = Some(view.results.clone()).filter(|results| !results.is_empty());
                let status = self.ended(State::True, Reason::Succeeded.as_str(), &why);
                CustomRunStatus { results, ..self.with_object(child, status) }
            }
            (Phase::Failed, failure) => {
                let (reason, why) = match failure {
                    Some(failure) => (failure.reason.as_str(), failure.message.as_str()),
                    None => (view.reason.as_str(), view.message.as_str()),
                };
                let status = self.failed(reason, &sentence(&what, why));
                self.with_object(child, status)
            }
            _ if left == Some(0) => self.timed_out(child, Some(view)),
            _ => {
                self.again = left;
                let status = match view.reason.as_str() {
                    // Nothing is said of it yet.
                    "" => self.started(child),
                    reason => self.going_on(reason, &sentence(&what, &view.message)),
                };
                self.with_object(child, status)
            }
        }
    }

    /// Makes the attempt's object.
    fn begin(&mut self, child: &Child, left: Option<u64>) -> CustomRunStatus {
        if let Some(refusal) = &self.observed.refusal {
            let reason = if refusal.code == 409 { Reason::NameTaken } else { Reason::Refused };
            let why = format!("the API server refuses {}: {}", said(child), refusal.message);
            return self.refused((reason, why));
        }
        if left == Some(0) {
            return self.timed_out(child, None);
        }
        match asked::plan(self.config, self.observed) {
            Err(fault) => self.refused(fault),
            Ok(plan) => {
                self.actions.push(Action::Create(Box::new(plan)));
                self.again = left;
                let status = self.started(child);
                self.with_object(child, status)
            }
        }
    }

    fn timed_out(&mut self, child: &Child, view: Option<&ChildView>) -> CustomRunStatus {
        self.stop(child, view);
        let timeout = self.observed.object.spec.timeout.as_deref().unwrap_or("1h");
        let why = format!("{} took longer than {timeout}", said(child));
        let status = self.failed(Reason::CustomRunTimedOut.as_str(), &why);
        match view {
            Some(_) => self.with_object(child, status),
            None => status,
        }
    }

    /// Stops the attempt's object where it has not ended.
    fn stop(&mut self, child: &Child, view: Option<&ChildView>) {
        if view.is_some_and(|view| !view.suspended && !view.phase.has_ended()) {
            self.actions.push(Action::Suspend(child.clone()));
        }
    }

    /// Seconds that the attempt has left; `None` where there is no end.
    fn left(&self) -> Result<Option<u64>, String> {
        let timeout = match &self.observed.object.spec.timeout {
            Some(text) => text.parse::<Duration>().map_err(|why| format!("spec.timeout: {why}"))?,
            None => Duration::from_secs(DEFAULT_TIMEOUT),
        };
        // As Go does, no time is no end.
        if timeout.as_nanos() == 0 {
            return Ok(None);
        }
        let passed = self.observed.now.0.as_second().saturating_sub(self.start.0.as_second());
        // The clock of the replica that began it may be ahead.
        let passed = u64::try_from(passed).unwrap_or(0);
        Ok(Some(timeout.as_secs_ceil().saturating_sub(passed)))
    }

    /// Whether the status says that the object was made.
    fn was_made(&self, child: &Child) -> bool {
        let made = self.observed.object.status.extra_fields.as_ref();
        made.is_some_and(|made| made.object.name == child.name)
    }

    /// The attempt has failed: the next one begins, or the run has failed.
    fn failed(&self, reason: &str, why: &str) -> CustomRunStatus {
        let run = &self.observed.object;
        let number = run.status.attempts() + 1;
        if number > run.spec.retries {
            return self.ended(State::False, reason, why);
        }
        let of_attempt = self.ended(State::False, reason, why);
        let mut earlier = run.status.retries_status.clone().unwrap_or_default();
        earlier.push(laid_down(&of_attempt));
        let why = format!("attempt {number} of {}: {why}", run.spec.retries + 1);
        let next = self.going_on(Reason::Retrying.as_str(), &why);
        CustomRunStatus {
            start_time: Some(self.observed.now.clone()),
            retries_status: Some(earlier),
            extra_fields: None,
            ..next
        }
    }

    /// The run has failed, and another attempt would not mend it.
    fn refused(&self, (reason, why): asked::Fault) -> CustomRunStatus {
        self.ended(State::False, reason.as_str(), &why)
    }

    fn ended(&self, state: State, reason: &str, why: &str) -> CustomRunStatus {
        let status = self.with_condition(state, reason, why);
        CustomRunStatus { completion_time: Some(self.observed.now.clone()), ..status }
    }

    fn started(&self, child: &Child) -> CustomRunStatus {
        self.going_on(Reason::Started.as_str(), &format!("{} is made", said(child)))
    }

    fn going_on(&self, reason: &str, why: &str) -> CustomRunStatus {
        self.with_condition(State::Unknown, reason, why)
    }

    fn with_condition(&self, state: State, reason: &str, why: &str) -> CustomRunStatus {
        let run = &self.observed.object;
        let mut conditions = run.status.conditions.clone();
        set(&mut conditions, SUCCEEDED, state, reason, why, None, &self.observed.now);
        CustomRunStatus {
            observed_generation: run.metadata.generation,
            conditions,
            start_time: Some(self.start.clone()),
            completion_time: None,
            ..run.status.clone()
        }
    }

    fn with_object(&self, child: &Child, status: CustomRunStatus) -> CustomRunStatus {
        // A new attempt has none yet.
        if status.attempts() != self.observed.object.status.attempts() {
            return status;
        }
        let object = Made {
            api_version: kinds::api_version(),
            kind: child.kind.as_str().to_owned(),
            name: child.name.clone(),
        };
        CustomRunStatus { extra_fields: Some(ExtraFields { object }), ..status }
    }
}

/// What is kept of an attempt: its status without those of the attempts before it.
fn laid_down(status: &CustomRunStatus) -> serde_json::Value {
    let mut kept = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = kept.as_object_mut() {
        fields.remove("retriesStatus");
        fields.retain(|_, value| !value.is_null());
    }
    kept
}

/// An object in words.
fn said(child: &Child) -> String {
    format!("{} '{}'", child.kind.as_str(), child.name)
}

/// What an object says, in one line.
fn sentence(what: &str, message: &str) -> String {
    match message {
        "" => what.to_owned(),
        message => format!("{what}: {message}"),
    }
}
