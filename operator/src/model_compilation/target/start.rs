//! From no Job to a worker that runs: the pool, the Job, and why its worker does not start.

use hone_crds::status::Retry;
use hone_crds::{Duration, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Planner;
use crate::children::pods::Wait;
use crate::children::reasons::{Ending, EventType, Reason};
use crate::model_compilation::model::{
    Action, EventPlan, Grant, JobPlan, JobView, PoolView, Purpose, Refusal, Request,
};
use crate::model_compilation::plan::Draft;
use crate::model_compilation::{pools, request};

/// The first wait before a Job is made again, in seconds; doubled for each further one.
const FIRST_RETRY: u64 = 10;
/// The longest such wait, in seconds.
const LONGEST_RETRY: u64 = 300;
/// The longest time between two looks at a Job of whose pod nothing is known, in seconds.
const LONGEST_LOOK: u64 = 60;

/// After so many seconds a worker that does not start gives its device back.
const GIVE_BACK: i64 = 5;

impl Planner<'_> {
    /// No Job yet: one is made where there is a pool for it.
    pub(super) fn start(&self, draft: &mut Draft) -> TargetStatus {
        let observed = self.context.observed;
        if observed.namespace.terminating {
            let why = "the namespace is going away: no pod is made in it";
            return self.waiting(Reason::NamespaceTerminating, why);
        }
        if let Some(waiting) = self.not_yet(draft) {
            return waiting;
        }
        let namespace = observed.object.metadata.namespace.as_deref();
        let candidates = pools::candidates(
            &observed.pools,
            self.target,
            self.base.pool.as_deref(),
            namespace.unwrap_or_default(),
            &observed.namespace,
        );
        let candidates = match candidates {
            Ok(candidates) => candidates,
            Err(none) => return self.no_pool(&none, draft),
        };
        if let Some(refusal) = observed.refusals.get(&self.job_name) {
            return self.refused(refusal, draft);
        }
        if let Some(pool) = self.queued_in(&candidates) {
            let status = self.make_job(pool, None, true, draft);
            return match self.is_labelled() {
                true => status,
                false => TargetStatus { failure: self.queued().failure, ..status },
            };
        }
        let granted = observed.grants.get(&self.job_name).and_then(|grant| {
            let pool = candidates.iter().find(|pool| pool.name == grant.pool)?;
            Some((*pool, Some(grant.clone())))
        });
        match granted.or_else(|| pools::without_lease(&candidates).map(|pool| (pool, None))) {
            Some((pool, grant)) => self.make_job(pool, grant, false, draft),
            None => self.ask(pools::leased(&candidates), &self.context.start, false, draft),
        }
    }

    fn make_job(
        &self,
        pool: &PoolView,
        grant: Option<Grant>,
        gated: bool,
        draft: &mut Draft,
    ) -> TargetStatus {
        let observed = self.context.observed;
        let mut status = self.at(Phase::Pending);
        status.pool = Some(pool.name.clone());
        status.failure = self.known_failure();
        draft.actions.push(Action::CreateJob(Box::new(JobPlan {
            name: self.job_name.clone(),
            purpose: Purpose::Compile,
            target: Some(self.target.name.clone()),
            pool: Some(pool.clone()),
            grant,
            gated,
            suspended: gated && !self.is_labelled(),
            request: request::compile(&observed.object, self.target, pool),
            bounds: self.bounds(gated),
        })));
        let note = format!(
            "target '{}' goes to pool '{}' as Job '{}'",
            self.target.name, pool.name, self.job_name
        );
        draft.event(EventPlan::of(Reason::Started, note));
        status
    }

    /// Asks for a device of one of `pools`, as since `since`. When it is granted, the Job is made, or its pods are let
    /// through where it is `gated`.
    pub(super) fn ask(
        &self,
        pools: Vec<String>,
        since: &Time,
        gated: bool,
        draft: &mut Draft,
    ) -> TargetStatus {
        let observed = self.context.observed;
        let names: Vec<String> = pools.iter().map(|pool| format!("'{pool}'")).collect();
        let which = match names.len() {
            1 => format!("pool {}", names[0]),
            _ => format!("one of the pools {}", names.join(", ")),
        };
        let empty = |pool: &&PoolView| {
            let capacity = pool.status.capacity.as_ref();
            pools.contains(&pool.name) && capacity.is_some_and(|c| c.total == Some(0))
        };
        let none = observed.pools.iter().filter(empty).count() == pools.len();
        let hint = if none { ", which has no node that takes workers" } else { "" };
        let why = format!("target '{}' waits for a device of {which}{hint}", self.target.name);
        if let Some(late) = self.past_pending_deadline(since, draft) {
            let known = self.known_failure().map_or(why, |known| known.message);
            return self.fail(Reason::PendingDeadlineExceeded, &format!("{late}: {known}"));
        }
        draft.requests.push(Request {
            job: self.job_name.clone(),
            pools,
            priority: observed.priority,
            attempts: self.attempts(),
            since: since.0,
            seconds: self.bounds(gated).active_deadline_seconds,
        });
        let waiting = self.waiting(Reason::WaitingForDevice, &why);
        TargetStatus { failure: self.known_failure().or(waiting.failure.clone()), ..waiting }
    }

    /// The status while the time to make the Job again has not come.
    fn not_yet(&self, draft: &mut Draft) -> Option<TargetStatus> {
        let prior = self.prior.filter(|prior| prior.phase == Phase::Pending)?;
        let after = self.base.retry.as_ref()?.after.as_ref()?;
        let now = self.context.observed.now.0;
        let left = u64::try_from(after.0.as_second() - now.as_second()).ok().filter(|s| *s > 0)?;
        if let Some(late) = self.past_pending_deadline(&self.context.start, draft) {
            let why = prior.failure.as_ref().map_or("", |failure| &failure.message);
            return Some(self.fail(Reason::PendingDeadlineExceeded, &format!("{late}: {why}")));
        }
        draft.again(left);
        Some(prior.clone())
    }

    /// Why the Job did not start before, while it is made again.
    pub(super) fn known_failure(&self) -> Option<hone_crds::status::Failure> {
        let prior = self.prior.filter(|prior| prior.phase == Phase::Pending);
        self.base.retry.as_ref().and(prior).and_then(|prior| prior.failure.clone())
    }

    fn no_pool(&self, none: &pools::NoPool, draft: &mut Draft) -> TargetStatus {
        if none.reason.is_hopeless() {
            return self.fail(none.reason, &none.message);
        }
        if let Some(late) = self.past_pending_deadline(&self.context.start, draft) {
            let why = format!("{late}: {}", none.message);
            return self.fail(Reason::PendingDeadlineExceeded, &why);
        }
        self.announce(none.reason, &none.message, draft);
        self.waiting(none.reason, &none.message)
    }

    /// An event where the status does not name `reason` yet.
    fn announce(&self, reason: Reason, message: &str, draft: &mut Draft) {
        let known = self.prior.and_then(|prior| prior.failure.as_ref());
        let is_known = known.is_some_and(|known| known.reason == reason.as_str());
        if !is_known && reason.event() != EventType::None {
            draft.event(EventPlan::of(reason, message));
        }
    }

    /// The API server refused the Job.
    fn refused(&self, refusal: &Refusal, draft: &mut Draft) -> TargetStatus {
        let Refusal { code, message } = refusal;
        let job = &self.job_name;
        match code {
            403 => {
                let why = format!("the API server forbids Job '{job}': {message}");
                if let Some(late) = self.past_pending_deadline(&self.context.start, draft) {
                    let why = format!("{late}: {why}");
                    return self.fail(Reason::PendingDeadlineExceeded, &why);
                }
                self.announce(Reason::JobForbidden, &why, draft);
                self.later(Reason::JobForbidden, &why, draft)
            }
            409 => self.fail(
                Reason::JobNameTaken,
                &format!("there is a Job '{job}' that this compilation does not own: delete it, then set annotation hone.dev/retry"),
            ),
            _ => self.fail(
                Reason::JobInvalid,
                &format!("the API server refuses Job '{job}': {message}: correct spec.worker"),
            ),
        }
    }

    /// The target waits, and its Job is made again after a back-off.
    fn later(&self, reason: Reason, message: &str, draft: &mut Draft) -> TargetStatus {
        let attempts = self.attempts() + 1;
        let doubled = FIRST_RETRY << (attempts - 1).clamp(0, 8);
        let random = self.context.observed.random;
        let seconds = (doubled.min(LONGEST_RETRY) as f64 * (1.0 + random / 4.0)) as u64;
        draft.again(seconds);
        let after = after(&self.context.observed.now, seconds);
        let retry = Some(Retry { attempts, after: Some(after) });
        TargetStatus { retry, ..self.waiting(reason, message) }
    }

    /// How often the Job was made in vain.
    fn attempts(&self) -> i32 {
        self.base.retry.as_ref().map_or(0, |retry| retry.attempts)
    }

    /// The Job is made again later, or has failed too often.
    pub(super) fn start_again(
        &self,
        reason: Reason,
        message: &str,
        draft: &mut Draft,
    ) -> TargetStatus {
        let attempts = self.attempts() + 1;
        match reason.ending() {
            Ending::FailsAfter(most) if attempts < most => {
                self.announce(reason, message, draft);
                self.later(reason, message, draft)
            }
            _ => {
                let advice = "correct that, then set annotation hone.dev/retry";
                let tries = match attempts {
                    1 => String::new(),
                    attempts => format!(" ({attempts} times)"),
                };
                self.fail(reason, &format!("{message}{tries}: {advice}"))
            }
        }
    }

    /// The words for a target that waited too long since `since`; else another look is asked for.
    fn past_pending_deadline(&self, since: &Time, draft: &mut Draft) -> Option<String> {
        let deadline: Duration = self.context.observed.object.spec.limits.pending_deadline;
        let limit = i64::try_from(deadline.as_secs_ceil()).unwrap_or(i64::MAX);
        let end = since.0.as_second().saturating_add(limit);
        match u64::try_from(end - self.context.observed.now.0.as_second()) {
            Ok(left) if left > 0 => {
                draft.again(left);
                None
            }
            _ => Some(format!("no device was free within limits.pendingDeadline of {deadline}")),
        }
    }

    /// A Job waits or runs.
    pub(super) fn active(&self, job: &JobView, draft: &mut Draft) -> TargetStatus {
        let bounds = self.bounds(job.gated);
        let differ = job.active_deadline_seconds != Some(bounds.active_deadline_seconds)
            || job.backoff_limit != Some(bounds.backoff_limit);
        // A Job that never ran keeps waiting; one that ran once counts as running to its end.
        let prior_runs = self.prior.is_some_and(|prior| prior.phase == Phase::Running);
        let ran = job.ready > 0 || job.failed > 0 || prior_runs;
        let waiting = match ran {
            _ if self.at_gate(job) => Some(self.place(job, draft)),
            // Nothing of it runs until it is let go again.
            _ if job.suspended && job.ready == 0 => Some(self.suspended(job, draft)),
            // It is to run again, such as after an eviction, and the node of its device takes it no more.
            true if job.ready == 0 => self.give_back(job, draft),
            true => None,
            false => Some(self.not_running(job, draft)),
        };
        if waiting.as_ref().is_some_and(|status| status.phase == Phase::Failed)
            || draft.actions.contains(&Action::DeleteJob(job.name.clone()))
        {
            return waiting.unwrap_or_else(|| self.at(Phase::Pending));
        }
        if differ {
            draft.actions.push(Action::AdjustJob(bounds));
        }
        let resync = self.context.config.resync_seconds as f64;
        draft.again((resync * (1.0 + self.context.observed.random / 2.0)) as u64);
        match waiting {
            Some(status) => status,
            None if job.fresh && !prior_runs => {
                draft.again(1);
                self.at(Phase::Pending)
            }
            None => self.at(Phase::Running),
        }
    }

    /// The status of a target whose Job has no worker yet, and what is done about it.
    fn not_running(&self, job: &JobView, draft: &mut Draft) -> TargetStatus {
        let wait = self.context.observed.waits.get(&job.name);
        if let Some(wait) = wait.filter(|wait| wait.reason.is_hopeless()) {
            // It would hold its device in vain.
            draft.actions.push(Action::DeleteJob(job.name.clone()));
            let why = format!("the worker cannot start: {}", wait.message);
            return self.start_again(wait.reason, &why, draft);
        }
        if let Some(status) = self.give_back(job, draft) {
            return status;
        }
        let since = job.started.as_ref().or(job.created.as_ref());
        let since = since.unwrap_or(&self.context.start);
        if let Some(late) = self.past_pending_deadline(since, draft) {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
            return self.fail(Reason::PendingDeadlineExceeded, &self.late(&late, wait));
        }
        match wait {
            Some(wait) => {
                if job.slot.is_some() {
                    draft.again(GIVE_BACK.unsigned_abs());
                }
                let why = self.words(wait);
                self.announce(wait.reason, &why, draft);
                let prior = self.prior.filter(|prior| prior.phase == Phase::Pending);
                let known = prior.and_then(|prior| prior.failure.as_ref()).filter(|known| {
                    known.reason == wait.reason.as_str() && same_words(&known.message, &why)
                });
                self.waiting(wait.reason, known.map_or(&why, |known| &known.message))
            }
            None => {
                // Nothing is known yet: soon again at first, then more and more rarely.
                let since = job.waiting_since.as_ref().unwrap_or(since);
                let age = self.context.observed.now.0.as_second() - since.0.as_second();
                draft.again(u64::try_from(age).unwrap_or(1).clamp(1, LONGEST_LOOK));
                TargetStatus { failure: self.known_failure(), ..self.at(Phase::Pending) }
            }
        }
    }

    /// Gives a device back whose node does not take the worker: it may do for the next, and another one for this.
    fn give_back(&self, job: &JobView, draft: &mut Draft) -> Option<TargetStatus> {
        let wait = self.context.observed.waits.get(&job.name)?;
        if !self.holds_in_vain(job, wait) {
            return None;
        }
        draft.actions.push(Action::DeleteJob(job.name.clone()));
        let why = self.words(wait);
        self.announce(wait.reason, &why, draft);
        Some(self.later(wait.reason, &why, draft))
    }

    /// Whether a worker has held its device for [`GIVE_BACK`] without a node that takes it.
    fn holds_in_vain(&self, job: &JobView, wait: &Wait) -> bool {
        let since = job.waiting_since.as_ref().or(job.started.as_ref()).or(job.created.as_ref());
        // The time at the gate counts for nobody.
        let since = since.max(job.placed.as_ref());
        let now = self.context.observed.now.0.as_second();
        let waited = since.map_or(0, |since| now - since.0.as_second());
        job.slot.is_some() && wait.reason.ending() == Ending::Waits && waited >= GIVE_BACK
    }

    /// Why a worker waits, in words.
    fn words(&self, wait: &Wait) -> String {
        let pool = self.base.pool.as_deref().unwrap_or("?");
        match wait.reason {
            Reason::Unschedulable => {
                format!("the scheduler finds no node for pool '{pool}': {}", wait.message)
            }
            _ => wait.message.clone(),
        }
    }

    fn late(&self, late: &str, wait: Option<&Wait>) -> String {
        let pool = self.base.pool.as_deref().unwrap_or("?");
        match wait {
            Some(wait) => format!("{late} in pool '{pool}': {}", self.words(wait)),
            None => format!(
                "{late} in pool '{pool}': raise limits.pendingDeadline or add devices to the pool"
            ),
        }
    }
}

/// Whether two messages differ in their numbers alone. The scheduler counts nodes anew all the time: that is not worth
/// a status for each of thousands that wait.
fn same_words(a: &str, b: &str) -> bool {
    let words = |text: &str| -> String { text.chars().filter(|c| !c.is_ascii_digit()).collect() };
    words(a) == words(b)
}

/// `seconds` after `now`, in whole seconds as the API server keeps them.
fn after(now: &Time, seconds: u64) -> Time {
    let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    let end = now.0.checked_add(seconds).unwrap_or(Timestamp::MAX);
    Time(Timestamp::from_second(end.as_second()).unwrap_or(end))
}
