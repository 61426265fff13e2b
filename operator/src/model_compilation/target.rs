//! Decides where one target stands and what to do for it.

use hone_artifact::report;
use hone_crds::common::Log;
use hone_crds::model_compilation::Target;
use hone_crds::status::{Artifact, Failure, ObjectRef};
use hone_crds::{Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::model::{
    Action, Finish, JobBounds, JobPlan, JobView, Observed, Outcome, PoolView, Purpose,
};
use super::plan::Draft;
use super::{digest, goals, pools, request, result};
use crate::children::names::QUEUE_LABEL;
use crate::children::reasons::Reason;
use crate::children::start::{Prior, Standing, Work};
use crate::config::Config;

mod adopted;
mod revised;
mod tuned;

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
    /// When the work was taken up.
    since: Time,
    /// The log of the target's own tuning run that it is compiled with.
    log: Option<Log>,
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
    let job_ref = Some(ObjectRef { name: job_name.clone() });
    let job = context.observed.jobs.iter().find(|job| job.name == job_name);
    let base = TargetStatus {
        name: target.name.clone(),
        spec_digest: Some(spec_digest),
        content_key: digest::content_key(context.config, object, target, &context.observed.pools),
        // A Job says itself which pool it runs in: the status may have missed it.
        pool: job
            .and_then(|job| job.pool.clone())
            .or_else(|| prior.and_then(|prior| prior.pool.clone())),
        retry: prior.filter(|prior| prior.job_ref == job_ref).and_then(|prior| prior.retry.clone()),
        job_ref,
        ..TargetStatus::default()
    };
    let since = context.start.clone();
    let planner = Planner { context, target, job_name, since, log: None, prior, base };
    draft.wanted_jobs.extend(planner.adoption());
    let status = planner.plan(draft);
    let status = planner.tuned(status, draft);
    goals::judge(&object.spec.goals, status)
}

impl Planner<'_> {
    fn plan(&self, draft: &mut Draft) -> TargetStatus {
        if let Some(done) = self.prior.filter(|prior| result::is_complete(prior)) {
            let done = TargetStatus { phase: Phase::Succeeded, failure: None, ..done.clone() };
            if let Some(done) = self.entered(done, draft) {
                return done;
            }
        }
        if let Some(refusal) = self.context.refusal {
            self.stop_job(draft);
            return TargetStatus { failure: Some(refusal.clone()), ..self.at(Phase::Failed) };
        }
        if let Some(failed) = self.still_failed() {
            return failed;
        }
        if let Some(adopted) = self.adopted(draft) {
            return adopted;
        }
        self.work_on(draft)
    }

    /// Brings the Job on that compiles.
    fn work_on(&self, draft: &mut Draft) -> TargetStatus {
        let job = self.job();
        if self.context.observed.object.spec.suspend && job.is_none_or(|job| job.finish.is_none()) {
            self.stop_job(draft);
            return self.at(Phase::Suspended);
        }
        match job {
            Some(job) if job.deleting => self.standing(self.work().going(draft)),
            Some(job) => match &job.finish {
                Some(_) if self.failed_before() => {
                    // The spec changed since: the same Job must go before it can be made anew.
                    draft.actions.push(Action::DeleteJob(job.name.clone()));
                    draft.again(2);
                    self.at(Phase::Pending)
                }
                Some(finish) => self.finished(job, finish, draft),
                None => self.standing(self.work().active(job, draft)),
            },
            None => self.start(draft),
        }
    }

    /// The target's work, as far as starting its Job needs to know it.
    fn work(&self) -> Work<'_> {
        let observed = self.context.observed;
        let prior = self.prior;
        let same = prior.filter(|prior| prior.job_ref == self.base.job_ref);
        let known = same.and_then(|prior| prior.failure.as_ref());
        let labels = observed.object.metadata.labels.as_ref();
        Work {
            subject: format!("target '{}'", self.target.name),
            owner: "compilation",
            job: &self.job_name,
            bounds: self.bounds(),
            now: &observed.now,
            random: observed.random,
            resync_seconds: self.context.config.resync_seconds,
            namespace: &observed.namespace,
            pools: &observed.pools,
            wait: observed.waits.get(&self.job_name),
            refusal: observed.refusals.get(&self.job_name),
            grant: observed.grants.get(&self.job_name),
            labelled: labels.is_some_and(|labels| labels.contains_key(QUEUE_LABEL)),
            queued: known.is_some_and(|known| known.reason == Reason::Queued.as_str()),
            priority: observed.priority,
            limits: &observed.object.spec.limits,
            since: &self.since,
            prior: prior.map(|p| Prior { phase: p.phase, failure: p.failure.as_ref() }),
            retry: self.base.retry.as_ref(),
            pool: self.base.pool.as_deref(),
        }
    }

    fn start(&self, draft: &mut Draft) -> TargetStatus {
        let observed = self.context.observed;
        let namespace = observed.object.metadata.namespace.as_deref().unwrap_or_default();
        let before = self.base.pool.as_deref();
        let candidates = || {
            pools::candidates(&observed.pools, self.target, before, namespace, &observed.namespace)
        };
        let plan = |pool: &PoolView, grant| JobPlan {
            name: self.job_name.clone(),
            purpose: Purpose::Compile,
            target: Some(self.target.name.clone()),
            pool: Some(pool.clone()),
            grant,
            gated: false,
            suspended: false,
            request: request::compile(&observed.object, self.target, pool, self.log.as_ref()),
            optional_secrets: Vec::new(),
            bounds: self.bounds(),
        };
        self.standing(self.work().start(candidates, plan, draft))
    }

    /// The status of a target that stands so.
    fn standing(&self, standing: Standing) -> TargetStatus {
        let Standing { phase, failure, retry, pool } = standing;
        TargetStatus { phase, failure, retry, pool, ..self.base.clone() }
    }

    /// Where the worker of this compilation stored its report: beside the artifact, as `hone_artifact` says for both.
    fn report_uri(&self, found: &TargetStatus) -> Option<String> {
        let uid = self.context.observed.object.metadata.uid.as_deref().unwrap_or_default();
        found.artifact.as_ref().map(|artifact| report::uri_beside(&artifact.uri, uid))
    }

    /// The folder that results must lie in.
    fn output(&self) -> &str {
        &self.context.observed.object.spec.output.uri
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

    fn fail(&self, reason: Reason, message: &str) -> TargetStatus {
        self.standing(self.work().fail(reason, message))
    }

    /// As [`Self::fail`], for a word of the worker or of the Job controller.
    fn fail_with(&self, reason: &str, message: &str) -> TargetStatus {
        self.standing(self.work().fail_with(reason, message))
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

    fn bounds(&self) -> JobBounds {
        let limits = &self.context.observed.object.spec.limits;
        JobBounds {
            name: self.job_name.clone(),
            active_deadline_seconds: i64::try_from(limits.active_deadline.as_secs_ceil())
                .unwrap_or(i64::MAX),
            backoff_limit: limits.retries,
        }
    }

    fn finished(&self, job: &JobView, finish: &Finish, draft: &mut Draft) -> TargetStatus {
        let deadline = matches!(finish, Finish::Failed(reason) if reason == "DeadlineExceeded");
        if deadline {
            let limit = self.context.observed.object.spec.limits.active_deadline;
            return self.fail(
                Reason::DeadlineExceeded,
                &format!("the work took longer than limits.activeDeadline of {limit}: raise it"),
            );
        }
        let Some(outcome) = self.context.observed.outcomes.get(&job.name) else {
            draft.again(1);
            return self.at(Phase::Running);
        };
        match (finish, outcome) {
            (_, Outcome::Ended(ended)) => match result::read(ended, job, self.output()) {
                Ok(found) => TargetStatus {
                    name: self.base.name.clone(),
                    spec_digest: self.base.spec_digest.clone(),
                    content_key: self.base.content_key.clone().filter(|_| result::is_reusable(ended)),
                    pool: self.base.pool.clone(),
                    job_ref: self.base.job_ref.clone(),
                    report_uri: self.report_uri(&found),
                    artifact: found.artifact.map(|artifact| Artifact {
                        checked: Some(self.context.observed.now.clone()),
                        ..artifact
                    }),
                    ..found
                },
                Err(why) => TargetStatus {
                    correctness: why.correctness,
                    model_digest: why.model_digest,
                    ..self.fail_with(&why.failure.reason, &why.failure.message)
                },
            },
            (Finish::Complete, Outcome::NoPod) => {
                // The pod's message is gone. The worker finds its artifact in the store again.
                draft.actions.push(Action::DeleteJob(job.name.clone()));
                let why = format!("the pod of Job '{}' is gone before it was read", job.name);
                self.standing(self.work().start_again(Reason::ResultLost, &why, draft))
            }
            (Finish::Failed(reason), Outcome::NoPod) => self.fail_with(
                reason,
                &format!(
                    "Job '{}' failed ({reason}) and no pod is left to say why: look at the pool's nodes, then set annotation hone.dev/retry",
                    job.name
                ),
            ),
        }
    }
}
