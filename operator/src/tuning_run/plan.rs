//! Decides what to do for one `TuningRun`, from values alone: no client, no clock, no randomness.
//!
//! A run has one Job at a time that searches, named after everything that its pod is told, and [`super::sessions`] beside
//! it. Suspending deletes the Jobs, and so does a change of what the pod is told; the next one is made when the last pod is gone, since a log has one writer, and goes
//! on from the log. Nothing is to be cleaned up: Jobs go with their owner, and the log stays.

use hone_crds::not_yet::not_yet_in_runs;
use hone_crds::status::{Failure, ObjectRef};
use hone_crds::tuning_run::TuningWorker;
use hone_crds::{Phase, TuningRunStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::model::{Observed, Plan};
use super::{digest, progress, request, result, status, warm_start};
use crate::broker::pools::{self, NoPool, PoolView, Use};
use crate::children::ended::{Outcome, failure};
use crate::children::jobs::{Finish, JobView, Purpose};
use crate::children::names::QUEUE_LABEL;
use crate::children::reasons::Reason;
use crate::children::start::{Prior, Standing, Work};
use crate::children::steps::{Action, Draft, JobBounds, JobPlan};
use crate::children::{lost, refusal};
use crate::config::Config;

/// The plan for what was observed.
pub fn plan(config: &Config, observed: &Observed) -> Plan {
    let mut draft = Draft::default();
    lost::plan(&observed.jobs, &observed.now, &mut draft);
    let before = observed.object.status.as_ref();
    let status = match observed.object.metadata.deletion_timestamp {
        Some(_) => before.cloned(),
        None => {
            let job = digest::job_name(&observed.object);
            let start = start_time(observed);
            let planner = Planner { config, observed, job, start };
            let status = planner.plan(&mut draft);
            let status = status::finish(observed, status);
            let note = || status::success_note(&status);
            let was = before.map(|before| before.phase);
            draft.phase_event(was, status.phase, status.failure.as_ref(), note);
            Some(status)
        }
    };
    Plan {
        actions: draft.actions,
        requests: draft.requests,
        status: status.filter(|status| before != Some(status)),
        again_seconds: draft.again_seconds,
    }
}

/// When the work under way was taken up: kept while it is the same work.
fn start_time(observed: &Observed) -> Time {
    let generation = observed.object.metadata.generation;
    let same = |status: &&TuningRunStatus| {
        status.observed_generation == generation && !status.phase.has_ended()
    };
    let status = observed.object.status.as_ref().filter(same);
    status.and_then(|status| status.start_time.clone()).unwrap_or_else(|| observed.now.clone())
}

/// A run while it is planned.
pub(super) struct Planner<'a> {
    config: &'a Config,
    pub(super) observed: &'a Observed,
    /// The name of the Job that does the work.
    job: String,
    start: Time,
}

impl Planner<'_> {
    fn plan(&self, draft: &mut Draft) -> TuningRunStatus {
        if let Some(done) = self.prior().filter(|prior| prior.phase == Phase::Succeeded) {
            return done.clone();
        }
        if let Some(refusal) = self.refusal() {
            self.stop_others(&[], draft);
            let failed = Standing { failure: Some(refusal), ..Standing::default() };
            return self.standing(Standing { phase: Phase::Failed, ..failed });
        }
        if let Some(failed) = self.still_failed() {
            return failed.clone();
        }
        let job = self.observed.jobs.iter().find(|job| job.name == self.job);
        let ended = job.is_some_and(|job| job.finish.is_some());
        if self.observed.object.spec.suspend && !ended {
            self.stop_others(&[], draft);
            return self.standing(self.work().at(Phase::Suspended));
        }
        let mut stay = if ended { Vec::new() } else { self.sessions() };
        stay.push(self.job.clone());
        self.stop_others(&stay, draft);
        let status = self.tuner(job, draft);
        match status.phase {
            _ if ended => {}
            Phase::Failed => self.stop_others(std::slice::from_ref(&self.job), draft),
            phase => self.bring_sessions_on(phase, draft),
        }
        status
    }

    /// Brings the Job that searches a step on.
    fn tuner(&self, job: Option<&JobView>, draft: &mut Draft) -> TuningRunStatus {
        match job {
            Some(job) if job.deleting => self.standing(self.work().going(draft)),
            Some(job) => match &job.finish {
                Some(_) if self.failed_before() => {
                    // The spec changed since: the same Job must go before it can be made anew.
                    draft.actions.push(Action::DeleteJob(job.name.clone()));
                    draft.again(2);
                    self.standing(Standing::default())
                }
                Some(finish) => self.finished(job, finish, draft),
                None => self.active(job, draft),
            },
            // Its log has one writer.
            None if self.others_search() => self.standing(self.work().going(draft)),
            None => self.start(draft),
        }
    }

    /// What the status says, where it speaks of this very work.
    fn prior(&self) -> Option<&TuningRunStatus> {
        let status = self.observed.object.status.as_ref()?;
        let same = status.job_ref.as_ref().is_some_and(|job| job.name == self.job);
        same.then_some(status)
    }

    fn failed_before(&self) -> bool {
        self.prior().is_some_and(|prior| prior.phase == Phase::Failed)
    }

    /// A failure stays until the spec or the retry mark changes.
    fn still_failed(&self) -> Option<&TuningRunStatus> {
        let generation = self.observed.object.metadata.generation;
        let same = |prior: &&TuningRunStatus| prior.observed_generation == generation;
        self.prior().filter(|_| self.failed_before()).filter(same)
    }

    fn refusal(&self) -> Option<Failure> {
        let spec = &self.observed.object.spec;
        let uris = [
            ("spec.model.uri", Some(spec.model.uri.as_str())),
            ("spec.log.uri", Some(spec.log.uri.as_str())),
        ];
        refusal::find(self.config, not_yet_in_runs(spec), &uris, spec.worker.as_ref())
    }

    /// Whether another Job of the run may still write its log.
    fn others_search(&self) -> bool {
        let searches = |job: &&JobView| job.purpose != Purpose::Measure;
        let mut jobs = self.observed.jobs.iter().filter(searches);
        jobs.any(|job| job.deleting || job.finish.is_none())
    }

    /// Deletes Jobs under way, but for those that are to stay.
    fn stop_others(&self, stay: &[String], draft: &mut Draft) {
        let mut others = self.observed.jobs.iter().filter(|job| !stay.contains(&job.name));
        for job in others.by_ref().filter(|job| job.finish.is_none() && !job.deleting) {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
        }
    }

    /// The status as it is, but for where the work stands. What the log is known to hold stays known.
    fn base(&self) -> TuningRunStatus {
        TuningRunStatus {
            job_ref: Some(ObjectRef { name: self.job.clone() }),
            start_time: Some(self.start.clone()),
            ..self.observed.object.status.clone().unwrap_or_default()
        }
    }

    fn standing(&self, standing: Standing) -> TuningRunStatus {
        let Standing { phase, failure, retry, pool: _ } = standing;
        let job = self.observed.jobs.iter().find(|job| job.name == self.job);
        let jobs =
            job.into_iter().chain(self.sessions_at_work()).filter(|_| phase == Phase::Running);
        let worker =
            |job: &JobView| TuningWorker { name: job.name.clone(), device: job.slot.clone() };
        let workers = jobs.map(worker).collect();
        let mut status =
            TuningRunStatus { phase, failure, retry, workers, ended: None, ..self.base() };
        progress::fill(
            &mut status,
            &self.observed.object.spec.pool,
            self.observed.progress.as_ref(),
        );
        status
    }

    fn bounds(&self) -> JobBounds {
        let limits = &self.observed.object.spec.limits;
        JobBounds {
            name: self.job.clone(),
            active_deadline_seconds: i64::try_from(limits.active_deadline.as_secs_ceil())
                .unwrap_or(i64::MAX),
            backoff_limit: limits.retries,
        }
    }

    pub(super) fn work(&self) -> Work<'_> {
        let observed = self.observed;
        let prior = self.prior();
        let known = prior.and_then(|prior| prior.failure.as_ref());
        let labels = observed.object.metadata.labels.as_ref();
        Work {
            subject: "the run".to_owned(),
            owner: "tuning run",
            job: &self.job,
            bounds: self.bounds(),
            now: &observed.now,
            random: observed.random,
            resync_seconds: self.config.resync_seconds,
            namespace: &observed.namespace,
            pools: &observed.pools,
            wait: observed.waits.get(&self.job),
            refusal: observed.refusals.get(&self.job),
            grant: observed.grants.get(&self.job),
            labelled: labels.is_some_and(|labels| labels.contains_key(QUEUE_LABEL)),
            queued: known.is_some_and(|known| known.reason == Reason::Queued.as_str()),
            priority: observed.priority,
            limits: &observed.object.spec.limits,
            since: &self.start,
            prior: prior.map(|p| Prior { phase: p.phase, failure: p.failure.as_ref() }),
            retry: prior.and_then(|prior| prior.retry.as_ref()),
            pool: Some(&observed.object.spec.pool),
        }
    }

    fn active(&self, job: &JobView, draft: &mut Draft) -> TuningRunStatus {
        self.standing(self.work().active(job, draft))
    }

    /// The run's pool, as those that will do.
    pub(super) fn candidates(&self) -> Result<Vec<&PoolView>, NoPool> {
        let Observed { object, pools, namespace, .. } = self.observed;
        let name = object.metadata.namespace.as_deref().unwrap_or_default();
        let (pool, target) = ((object.spec.pool.as_str(), Use::Tune), Some(&object.spec.target));
        pools::named(pools, pool, target, name, namespace).map(|pool| vec![pool])
    }

    fn start(&self, draft: &mut Draft) -> TuningRunStatus {
        let Observed { object, earlier_logs: logs, .. } = self.observed;
        let plan = |pool: &PoolView, grant| JobPlan {
            name: self.job.clone(),
            purpose: Purpose::Tune,
            target: None,
            pool: Some(pool.clone()),
            grant,
            gated: false,
            suspended: false,
            request: request::tune(object, pool, logs),
            optional_secrets: warm_start::secrets(logs),
            bounds: self.bounds(),
        };
        self.standing(self.work().start(|| self.candidates(), plan, draft))
    }

    /// The Job has ended.
    fn finished(&self, job: &JobView, finish: &Finish, draft: &mut Draft) -> TuningRunStatus {
        let Some(outcome) = self.observed.outcomes.get(&job.name) else {
            draft.again(1);
            return self.standing(self.work().at(Phase::Running));
        };
        let mut status = self.standing(Standing::default());
        let taken = match outcome {
            Outcome::Ended(ended) => result::take(&mut status, ended, job),
            Outcome::NoPod if *finish == Finish::Complete => {
                // The pod's message is gone. The next pod finds what it measured in the log.
                draft.actions.push(Action::DeleteJob(job.name.clone()));
                let why = format!("the pod of Job '{}' is gone before it was read", job.name);
                return self.standing(self.work().start_again(Reason::ResultLost, &why, draft));
            }
            Outcome::NoPod => Err(self.without_pod(job, finish)),
        };
        let failure = match finish {
            Finish::Failed(reason) if reason == "DeadlineExceeded" => Some(self.too_late()),
            _ => taken.err(),
        };
        let phase = if failure.is_some() { Phase::Failed } else { Phase::Succeeded };
        TuningRunStatus { phase, failure, retry: None, ..status }
    }

    fn too_late(&self) -> Failure {
        let limit = self.observed.object.spec.limits.active_deadline;
        let why = format!(
            "the work took longer than limits.activeDeadline of {limit}: raise it, and the run goes on from its log"
        );
        failure(Reason::DeadlineExceeded.as_str(), &why)
    }

    fn without_pod(&self, job: &JobView, finish: &Finish) -> Failure {
        let reason = match finish {
            Finish::Failed(reason) => reason.as_str(),
            Finish::Complete => Reason::ResultLost.as_str(),
        };
        let why = format!(
            "Job '{}' failed ({reason}) and no pod is left to say why: look at the pool's nodes, then set annotation hone.dev/retry",
            job.name
        );
        failure(reason, &why)
    }
}
