//! Decides where one target stands and what to do for it.

use hone_crds::model_compilation::Target;
use hone_crds::status::{Cache, Failure, ObjectRef};
use hone_crds::{Duration, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::model::{
    Action, EventPlan, Finish, JobBounds, JobPlan, JobView, Observed, Outcome, Purpose,
};
use super::plan::Draft;
use super::{digest, goals, pools, request, result};
use crate::config::Config;

/// What is the same for all targets of an object.
pub struct Context<'a> {
    /// Settings.
    pub config: &'a Config,
    /// What was seen.
    pub observed: &'a Observed,
    /// Why no target can be worked on.
    pub refusal: Option<&'a Failure>,
    /// When the work under way was taken up.
    pub start: Time,
}

/// One target while it is planned.
struct Planner<'a> {
    context: &'a Context<'a>,
    target: &'a Target,
    job_name: String,
    /// What the status says, where it speaks of this spec.
    prior: Option<&'a TargetStatus>,
    /// What is known in any case.
    base: TargetStatus,
}

/// The target's new status; what there is to do is added to `draft`.
pub fn plan(context: &Context<'_>, target: &Target, draft: &mut Draft) -> TargetStatus {
    let object = &context.observed.object;
    let spec_digest = digest::spec_digest(object, target);
    let job_name = digest::job_name(object, target);
    let prior = object.status.iter().flat_map(|status| &status.targets).find(|prior| {
        prior.name == target.name && prior.spec_digest.as_ref() == Some(&spec_digest)
    });
    let base = TargetStatus {
        name: target.name.clone(),
        spec_digest: Some(spec_digest),
        content_key: digest::content_key(context.config, object, target),
        pool: prior.and_then(|prior| prior.pool.clone()),
        job_ref: Some(ObjectRef { name: job_name.clone() }),
        ..TargetStatus::default()
    };
    let planner = Planner { context, target, job_name, prior, base };
    let status = planner.plan(draft);
    goals::judge(&object.spec.goals, status)
}

impl Planner<'_> {
    fn plan(&self, draft: &mut Draft) -> TargetStatus {
        if let Some(done) = self.prior.filter(|prior| result::is_complete(prior)) {
            return TargetStatus { phase: Phase::Succeeded, failure: None, ..done.clone() };
        }
        if let Some(refusal) = self.context.refusal {
            self.stop_job(draft);
            return self.fail(&refusal.reason, &refusal.message);
        }
        if let Some(failed) = self.still_failed() {
            return failed;
        }
        if let Some(hit) = self.cached() {
            self.stop_job(draft);
            return hit;
        }
        let job = self.job();
        if self.context.observed.object.spec.suspend && job.is_none_or(|job| job.finish.is_none()) {
            self.stop_job(draft);
            return self.at(Phase::Suspended);
        }
        match job {
            Some(job) if job.deleting => {
                draft.again(2);
                // Why it goes is in the status already.
                let waiting = self.prior.filter(|prior| prior.phase == Phase::Pending);
                waiting.cloned().unwrap_or_else(|| self.at(Phase::Pending))
            }
            Some(job) => match &job.finish {
                Some(_) if self.failed_before() => {
                    // The spec changed since: the same Job must go before it can be made anew.
                    draft.actions.push(Action::DeleteJob(job.name.clone()));
                    draft.again(2);
                    self.at(Phase::Pending)
                }
                Some(finish) => self.finished(job, finish, draft),
                None => self.active(job, draft),
            },
            None => self.start(draft),
        }
    }

    fn job(&self) -> Option<&JobView> {
        let jobs = &self.context.observed.jobs;
        jobs.iter().find(|job| job.name == self.job_name)
    }

    fn stop_job(&self, draft: &mut Draft) {
        if let Some(job) = self.job()
            && !job.deleting
            && job.finish.is_none()
        {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
        }
    }

    fn at(&self, phase: Phase) -> TargetStatus {
        TargetStatus { phase, ..self.base.clone() }
    }

    fn waiting(&self, reason: &str, message: &str) -> TargetStatus {
        TargetStatus { failure: Some(failure(reason, message)), ..self.at(Phase::Pending) }
    }

    fn fail(&self, reason: &str, message: &str) -> TargetStatus {
        TargetStatus { failure: Some(failure(reason, message)), ..self.at(Phase::Failed) }
    }

    /// Whether the status says that this very work failed.
    fn failed_before(&self) -> bool {
        self.prior
            .is_some_and(|prior| prior.phase == Phase::Failed && prior.job_ref == self.base.job_ref)
    }

    /// A failure stays until the spec or the retry mark changes.
    fn still_failed(&self) -> Option<TargetStatus> {
        let object = &self.context.observed.object;
        let seen = object.status.as_ref()?.observed_generation;
        let same = seen == object.metadata.generation && self.failed_before();
        self.prior.filter(|_| same).cloned()
    }

    /// The result of another compilation with equal work.
    fn cached(&self) -> Option<TargetStatus> {
        let key = self.base.content_key.as_ref()?;
        let found = self.context.observed.cached.get(key)?;
        Some(TargetStatus {
            phase: Phase::Succeeded,
            cache: Some(Cache::Hit),
            spec_digest: self.base.spec_digest.clone(),
            job_ref: None,
            failure: None,
            ..found.clone()
        })
    }

    fn bounds(&self) -> JobBounds {
        let limits = &self.context.observed.object.spec.limits;
        JobBounds {
            name: self.job_name.clone(),
            active_deadline_seconds: i64::try_from(limits.active_deadline.as_secs_ceil())
                .unwrap_or(i64::MAX),
            backoff_limit: limits.retries,
        }
    }

    /// No Job yet: one is made where there is a pool for it.
    fn start(&self, draft: &mut Draft) -> TargetStatus {
        let observed = self.context.observed;
        if observed.namespace.terminating {
            return self.waiting(
                "NamespaceTerminating",
                "the namespace is going away: no pod is made in it",
            );
        }
        let namespace = observed.object.metadata.namespace.as_deref();
        let chosen = pools::choose(
            &observed.pools,
            self.target,
            self.base.pool.as_deref(),
            namespace.unwrap_or_default(),
            &observed.namespace,
        );
        let pool = match chosen {
            Ok(pool) => pool,
            Err(none) => return self.no_pool(&none, draft),
        };
        let mut status = self.at(Phase::Pending);
        status.pool = Some(pool.name.clone());
        draft.actions.push(Action::CreateJob(Box::new(JobPlan {
            name: self.job_name.clone(),
            purpose: Purpose::Compile,
            target: Some(self.target.name.clone()),
            pool: Some(pool.clone()),
            request: request::compile(&observed.object, self.target, pool),
            bounds: self.bounds(),
        })));
        draft.actions.push(EventPlan::normal(
            "Started",
            format!(
                "target '{}' goes to pool '{}' as Job '{}'",
                self.target.name, pool.name, self.job_name
            ),
        ));
        status
    }

    fn no_pool(&self, none: &pools::NoPool, draft: &mut Draft) -> TargetStatus {
        if let Some(late) = self.past_pending_deadline(&self.context.start, draft) {
            return self.fail("PendingDeadlineExceeded", &format!("{late}: {}", none.message));
        }
        let known = self.prior.and_then(|prior| prior.failure.as_ref());
        if known.is_none_or(|known| known.reason != none.reason) {
            draft.actions.push(EventPlan::warning(none.reason, none.message.clone()));
        }
        self.waiting(none.reason, &none.message)
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
    fn active(&self, job: &JobView, draft: &mut Draft) -> TargetStatus {
        let bounds = self.bounds();
        let differ = job.active_deadline_seconds != Some(bounds.active_deadline_seconds)
            || job.backoff_limit != Some(bounds.backoff_limit);
        // A Job that never ran keeps waiting; one that ran once counts as running to its end.
        let prior_runs = self.prior.is_some_and(|prior| prior.phase == Phase::Running);
        let ran = job.ready > 0 || job.failed > 0 || prior_runs;
        if !ran {
            let since = job.created.as_ref().unwrap_or(&self.context.start);
            if let Some(late) = self.past_pending_deadline(since, draft) {
                draft.actions.push(Action::DeleteJob(job.name.clone()));
                let pool = self.base.pool.as_deref().unwrap_or("?");
                let advice = "raise limits.pendingDeadline or add devices to the pool";
                return self.fail(
                    "PendingDeadlineExceeded",
                    &format!("{late} in pool '{pool}': {advice}"),
                );
            }
        }
        if differ {
            draft.actions.push(Action::AdjustJob(bounds));
        }
        let resync = self.context.config.resync_seconds as f64;
        draft.again((resync * (1.0 + self.context.observed.random / 2.0)) as u64);
        let told = ran && (!job.fresh || prior_runs);
        self.at(if told { Phase::Running } else { Phase::Pending })
    }

    fn finished(&self, job: &JobView, finish: &Finish, draft: &mut Draft) -> TargetStatus {
        let deadline = matches!(finish, Finish::Failed(reason) if reason == "DeadlineExceeded");
        if deadline {
            let limit = self.context.observed.object.spec.limits.active_deadline;
            return self.fail(
                "DeadlineExceeded",
                &format!("the work took longer than limits.activeDeadline of {limit}: raise it"),
            );
        }
        let Some(outcome) = self.context.observed.outcomes.get(&job.name) else {
            draft.again(1);
            return self.at(Phase::Running);
        };
        match (finish, outcome) {
            (_, Outcome::Ended(ended)) => match result::read(ended, job) {
                Ok(found) => TargetStatus {
                    name: self.base.name.clone(),
                    spec_digest: self.base.spec_digest.clone(),
                    content_key: self.base.content_key.clone(),
                    pool: self.base.pool.clone(),
                    job_ref: self.base.job_ref.clone(),
                    ..found
                },
                Err(why) => TargetStatus {
                    correctness: why.correctness,
                    model_digest: why.model_digest,
                    ..self.fail(&why.failure.reason, &why.failure.message)
                },
            },
            (Finish::Complete, Outcome::NoPod) => {
                // The pod's message is gone. The worker finds its artifact in the store again.
                draft.actions.push(Action::DeleteJob(job.name.clone()));
                draft.actions.push(EventPlan::warning(
                    "ResultLost",
                    format!("the pod of Job '{}' is gone before it was read: running again", job.name),
                ));
                draft.again(2);
                self.waiting("ResultLost", "the pod's report is lost: running again")
            }
            (Finish::Failed(reason), Outcome::NoPod) => self.fail(
                reason,
                &format!(
                    "Job '{}' failed ({reason}) and no pod is left to say why: look at the pool's nodes, then set annotation hone.dev/retry",
                    job.name
                ),
            ),
        }
    }
}

/// A failure whose texts fit the schema.
pub fn failure(reason: &str, message: &str) -> Failure {
    Failure {
        reason: hone_crds::conditions::bounded(reason, 64).to_owned(),
        message: hone_crds::conditions::bounded(message, 2000).to_owned(),
    }
}
