//! From no Job to a worker that runs: the pool, the Job, and why its worker does not start.

use hone_crds::model_compilation::Limits;
use hone_crds::status::{Failure, Retry};
use hone_crds::{Duration, Phase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::ended::failure;
use super::events::EventPlan;
use super::forgotten;
use super::jobs::JobView;
use super::lost::LostPod;
use super::pods::Wait;
use super::reasons::{Ending, EventType, Reason};
use super::steps::{Action, Draft, JobBounds, JobPlan, Refusal};
use crate::broker::Request;
use crate::broker::pools::{self, Grant, NamespaceView, NoPool, PoolView};

/// The first wait before a Job is made again, in seconds; doubled for each further one.
const FIRST_RETRY: u64 = 10;
/// The longest such wait, in seconds.
const LONGEST_RETRY: u64 = 300;
/// The longest time between two looks at a Job of whose pod nothing is known, in seconds.
const LONGEST_LOOK: u64 = 60;

/// After so many seconds a worker that does not start gives its device back.
const GIVE_BACK: i64 = 5;

/// Work that wants one Job, and everything that its start depends on.
#[derive(Debug)]
pub struct Work<'a> {
    /// What messages call it, such as `target 'amx'`.
    pub subject: String,
    /// What its object is, in words.
    pub owner: &'static str,
    /// The name of its Job.
    pub job: &'a str,
    /// Bounds of that Job.
    pub bounds: JobBounds,
    /// The clock.
    pub now: &'a Time,
    /// A random number in `[0, 1)`, to spread what is done again later.
    pub random: f64,
    /// Seconds after which work under way is looked at again.
    pub resync_seconds: u64,
    /// The namespace.
    pub namespace: &'a NamespaceView,
    /// Every DevicePool.
    pub pools: &'a [PoolView],
    /// Why the Job's worker does not start.
    pub wait: Option<&'a Wait>,
    /// That the API server has just refused the Job.
    pub refusal: Option<&'a Refusal>,
    /// The device that the Job may use.
    pub grant: Option<&'a Grant>,
    /// Whether Kueue queues the Job by a label of its object, and so suspends it itself.
    pub labelled: bool,
    /// Whether the status says that this very Job waits in somebody's queue.
    pub queued: bool,
    /// The value of the workers' PriorityClass.
    pub priority: i32,
    /// Bounds on waiting.
    pub limits: &'a Limits,
    /// When the work was taken up.
    pub since: &'a Time,
    /// Where the status says that the work stands, where it speaks of this work.
    pub prior: Option<Prior<'a>>,
    /// How often the Job was made in vain.
    pub retry: Option<&'a Retry>,
    /// The pool of the Job, or that it had last.
    pub pool: Option<&'a str>,
}

/// What a status says of work.
#[derive(Clone, Copy, Debug)]
pub struct Prior<'a> {
    /// Its phase.
    pub phase: Phase,
    /// What it waits for, or why it failed.
    pub failure: Option<&'a Failure>,
}

/// Where work stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Its phase.
    pub phase: Phase,
    /// What it waits for, or why it failed.
    pub failure: Option<Failure>,
    /// That its Job could not start.
    pub retry: Option<Retry>,
    /// Its pool.
    pub pool: Option<String>,
}

impl Work<'_> {
    /// The phase alone.
    pub fn at(&self, phase: Phase) -> Standing {
        let (retry, pool) = (self.retry.cloned(), self.pool.map(str::to_owned));
        Standing { phase, failure: None, retry, pool }
    }

    /// The bounds of the Job. The time of one whose pods wait for their device runs while they do.
    fn bounds_of(&self, gated: bool) -> JobBounds {
        let waiting = i64::try_from(self.limits.pending_deadline.as_secs_ceil());
        let waiting = if gated { waiting.unwrap_or(i64::MAX) } else { 0 };
        let seconds = self.bounds.active_deadline_seconds.saturating_add(waiting);
        JobBounds { active_deadline_seconds: seconds, ..self.bounds.clone() }
    }

    /// It waits, for a reason of ours.
    pub fn waiting(&self, reason: Reason, message: &str) -> Standing {
        let failure = Some(failure(reason.as_str(), message));
        Standing { failure, ..self.at(Phase::Pending) }
    }

    /// It has failed for a reason of ours.
    pub fn fail(&self, reason: Reason, message: &str) -> Standing {
        self.fail_with(reason.as_str(), message)
    }

    /// As [`Self::fail`], for a word of the worker or of the Job controller.
    pub fn fail_with(&self, reason: &str, message: &str) -> Standing {
        let failure = Some(failure(reason, message));
        Standing { failure, retry: None, ..self.at(Phase::Failed) }
    }

    /// What the status says while it waits.
    fn waited(&self) -> Option<Prior<'_>> {
        self.prior.filter(|prior| prior.phase == Phase::Pending)
    }

    /// The Job goes: what the status says of a wait stays.
    pub fn going(&self, draft: &mut Draft) -> Standing {
        draft.again(2);
        // Why it goes is in the status already.
        let failure = self.waited().and_then(|prior| prior.failure.cloned());
        Standing { failure, ..self.at(Phase::Pending) }
    }

    /// No Job yet: one is made where there is a pool for it.
    /// `candidates` are the pools that will do, and `plan` makes the Job's plan for the one that is taken.
    pub fn start<'p>(
        &self,
        candidates: impl FnOnce() -> Result<Vec<&'p PoolView>, NoPool>,
        plan: impl FnOnce(&PoolView, Option<Grant>) -> JobPlan,
        draft: &mut Draft,
    ) -> Standing {
        if self.namespace.terminating {
            let why = "the namespace is going away: no pod is made in it";
            return self.waiting(Reason::NamespaceTerminating, why);
        }
        if let Some(waiting) = self.not_yet(draft) {
            return waiting;
        }
        let candidates = match candidates() {
            Ok(candidates) => candidates,
            Err(none) => return self.no_pool(&none, draft),
        };
        if let Some(refusal) = self.refusal {
            return self.refused(refusal, draft);
        }
        if let Some(pool) = self.queued_in(&candidates) {
            let standing = self.make_job(pool, plan(pool, None), true, draft);
            return match self.labelled {
                true => standing,
                false => Standing { failure: self.waits_in_queue().failure, ..standing },
            };
        }
        let granted = self.grant.and_then(|grant| {
            let pool = candidates.iter().find(|pool| pool.name == grant.pool)?;
            Some((*pool, Some(grant.clone())))
        });
        match granted.or_else(|| pools::without_lease(&candidates).map(|pool| (pool, None))) {
            Some((pool, grant)) => self.make_job(pool, plan(pool, grant), false, draft),
            None => self.ask(pools::leased(&candidates), self.since, false, draft),
        }
    }

    fn make_job(&self, pool: &PoolView, plan: JobPlan, gated: bool, draft: &mut Draft) -> Standing {
        let suspended = gated && !self.labelled;
        let plan = JobPlan { gated, suspended, bounds: self.bounds_of(gated), ..plan };
        let failure = self.known_failure();
        let status = Standing { failure, pool: Some(pool.name.clone()), ..self.at(Phase::Pending) };
        draft.actions.push(Action::CreateJob(Box::new(plan)));
        let note = format!("{} goes to pool '{}' as Job '{}'", self.subject, pool.name, self.job);
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
    ) -> Standing {
        let names: Vec<String> = pools.iter().map(|pool| format!("'{pool}'")).collect();
        let which = match names.len() {
            1 => format!("pool {}", names[0]),
            _ => format!("one of the pools {}", names.join(", ")),
        };
        let empty = |pool: &&PoolView| {
            let capacity = pool.status.capacity.as_ref();
            pools.contains(&pool.name) && capacity.is_some_and(|c| c.total == Some(0))
        };
        let none = self.pools.iter().filter(empty).count() == pools.len();
        let hint = if none { ", which has no node that takes workers" } else { "" };
        let why = format!("{} waits for a device of {which}{hint}", self.subject);
        if let Some(late) = self.past_pending_deadline(since, draft) {
            let known = self.known_failure().map_or(why, |known| known.message);
            return self.fail(Reason::PendingDeadlineExceeded, &format!("{late}: {known}"));
        }
        draft.requests.push(Request {
            job: self.job.to_owned(),
            pools,
            priority: self.priority,
            attempts: self.attempts(),
            since: since.0,
            seconds: self.bounds_of(gated).active_deadline_seconds,
        });
        let waiting = self.waiting(Reason::WaitingForDevice, &why);
        Standing { failure: self.known_failure().or(waiting.failure.clone()), ..waiting }
    }

    /// The status while the time to make the Job again has not come.
    fn not_yet(&self, draft: &mut Draft) -> Option<Standing> {
        let prior = self.waited()?;
        let after = self.retry?.after.as_ref()?;
        let now = self.now.0;
        let left = u64::try_from(after.0.as_second() - now.as_second()).ok().filter(|s| *s > 0)?;
        if let Some(late) = self.past_pending_deadline(self.since, draft) {
            let why = prior.failure.map_or("", |failure| &failure.message);
            return Some(self.fail(Reason::PendingDeadlineExceeded, &format!("{late}: {why}")));
        }
        draft.again(left);
        Some(Standing { failure: prior.failure.cloned(), ..self.at(Phase::Pending) })
    }

    /// Why the Job did not start before, while it is made again.
    pub(super) fn known_failure(&self) -> Option<Failure> {
        self.retry.and(self.waited()).and_then(|prior| prior.failure.cloned())
    }

    fn no_pool(&self, none: &NoPool, draft: &mut Draft) -> Standing {
        if none.reason.is_hopeless() {
            return self.fail(none.reason, &none.message);
        }
        if let Some(late) = self.past_pending_deadline(self.since, draft) {
            let why = format!("{late}: {}", none.message);
            return self.fail(Reason::PendingDeadlineExceeded, &why);
        }
        self.announce(none.reason, &none.message, draft);
        self.waiting(none.reason, &none.message)
    }

    /// An event where the status does not name `reason` yet.
    fn announce(&self, reason: Reason, message: &str, draft: &mut Draft) {
        let known = self.prior.and_then(|prior| prior.failure);
        let is_known = known.is_some_and(|known| known.reason == reason.as_str());
        if !is_known && reason.event() != EventType::None {
            draft.event(EventPlan::of(reason, message));
        }
    }

    /// The API server refused the Job.
    fn refused(&self, refusal: &Refusal, draft: &mut Draft) -> Standing {
        let Refusal { code, message } = refusal;
        let job = self.job;
        match code {
            403 => {
                let why = format!("the API server forbids Job '{job}': {message}");
                if let Some(late) = self.past_pending_deadline(self.since, draft) {
                    let why = format!("{late}: {why}");
                    return self.fail(Reason::PendingDeadlineExceeded, &why);
                }
                self.announce(Reason::JobForbidden, &why, draft);
                self.later(Reason::JobForbidden, &why, draft)
            }
            409 => self.fail(
                Reason::JobNameTaken,
                &format!("there is a Job '{job}' that this {} does not own: delete it, then set annotation hone.dev/retry", self.owner),
            ),
            _ => self.fail(
                Reason::JobInvalid,
                &format!("the API server refuses Job '{job}': {message}: correct spec.worker"),
            ),
        }
    }

    /// The target waits, and its Job is made again after a back-off.
    fn later(&self, reason: Reason, message: &str, draft: &mut Draft) -> Standing {
        let attempts = self.attempts() + 1;
        let doubled = FIRST_RETRY << (attempts - 1).clamp(0, 8);
        let random = self.random;
        let seconds = (doubled.min(LONGEST_RETRY) as f64 * (1.0 + random / 4.0)) as u64;
        draft.again(seconds);
        let after = after(self.now, seconds);
        let retry = Some(Retry { attempts, after: Some(after) });
        Standing { retry, ..self.waiting(reason, message) }
    }

    /// How often the Job was made in vain.
    fn attempts(&self) -> i32 {
        self.retry.map_or(0, |retry| retry.attempts)
    }

    /// The Job is made again later, or has failed too often.
    pub fn start_again(&self, reason: Reason, message: &str, draft: &mut Draft) -> Standing {
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
        let deadline: Duration = self.limits.pending_deadline;
        let limit = i64::try_from(deadline.as_secs_ceil()).unwrap_or(i64::MAX);
        let end = since.0.as_second().saturating_add(limit);
        match u64::try_from(end - self.now.0.as_second()) {
            Ok(left) if left > 0 => {
                draft.again(left);
                None
            }
            _ => Some(format!("no device was free within limits.pendingDeadline of {deadline}")),
        }
    }

    /// A Job waits or runs.
    pub fn active(&self, job: &JobView, draft: &mut Draft) -> Standing {
        let bounds = self.bounds_of(job.gated);
        let differ = job.active_deadline_seconds != Some(bounds.active_deadline_seconds)
            || job.backoff_limit != Some(bounds.backoff_limit);
        // A Job that never ran keeps waiting; one that ran once counts as running to its end.
        let prior_runs = self.prior.is_some_and(|prior| prior.phase == Phase::Running);
        let ran = job.ready > 0 || job.failed > 0 || prior_runs;
        let lost = job.lost.as_ref().filter(|pod| !pod.is_overdue(self.now));
        let waiting = match ran {
            _ if self.at_gate(job) => Some(self.place(job, draft)),
            // Kubernetes evicts it in time.
            _ if lost.is_some() => None,
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
        forgotten::wake(job, self.now, draft);
        let resync = self.resync_seconds as f64;
        draft.again((resync * (1.0 + self.random / 2.0)) as u64);
        match (waiting, lost) {
            (Some(status), _) => status,
            (None, Some(pod)) => self.lost(pod, ran, draft),
            (None, None) if job.fresh && !prior_runs => {
                draft.again(1);
                self.at(Phase::Pending)
            }
            (None, None) => self.at(Phase::Running),
        }
    }

    /// The status while the worker's node does not answer.
    fn lost(&self, pod: &LostPod, ran: bool, draft: &mut Draft) -> Standing {
        let why = pod.words();
        self.announce(Reason::NodeNotReady, &why, draft);
        let phase = if ran { Phase::Running } else { Phase::Pending };
        Standing { phase, ..self.waiting(Reason::NodeNotReady, &why) }
    }

    /// The status of a target whose Job has no worker yet, and what is done about it.
    fn not_running(&self, job: &JobView, draft: &mut Draft) -> Standing {
        let wait = self.wait;
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
        let since = since.unwrap_or(self.since);
        if let Some(late) = self.past_pending_deadline(since, draft) {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
            return self.fail(Reason::PendingDeadlineExceeded, &self.late(&late, wait));
        }
        match wait {
            Some(wait) => {
                let why = self.words(wait);
                self.announce(wait.reason, &why, draft);
                let known = self.waited().and_then(|prior| prior.failure).filter(|known| {
                    known.reason == wait.reason.as_str() && same_words(&known.message, &why)
                });
                self.waiting(wait.reason, known.map_or(&why, |known| &known.message))
            }
            None => {
                // Nothing is known yet: soon again at first, then more and more rarely.
                let since = job.waiting_since.as_ref().unwrap_or(since);
                let age = self.now.0.as_second() - since.0.as_second();
                draft.again(u64::try_from(age).unwrap_or(1).clamp(1, LONGEST_LOOK));
                Standing { failure: self.known_failure(), ..self.at(Phase::Pending) }
            }
        }
    }

    /// Gives a device back whose node does not take the worker: it may do for the next, and another one for this.
    fn give_back(&self, job: &JobView, draft: &mut Draft) -> Option<Standing> {
        let wait = self.wait?;
        if !self.holds_in_vain(job, wait) {
            if job.slot.is_some() {
                draft.again(GIVE_BACK.unsigned_abs());
            }
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
        let now = self.now.0.as_second();
        let waited = since.map_or(0, |since| now - since.0.as_second());
        job.slot.is_some() && wait.reason.ending() == Ending::Waits && waited >= GIVE_BACK
    }

    /// Why a worker waits, in words.
    fn words(&self, wait: &Wait) -> String {
        let pool = self.pool.unwrap_or("?");
        match wait.reason {
            Reason::Unschedulable => {
                format!("the scheduler finds no node for pool '{pool}': {}", wait.message)
            }
            _ => wait.message.clone(),
        }
    }

    fn late(&self, late: &str, wait: Option<&Wait>) -> String {
        let pool = self.pool.unwrap_or("?");
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
