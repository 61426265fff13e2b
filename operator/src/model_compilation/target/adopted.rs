//! Results of other compilations with equal work.
//!
//! A worker, which needs no device, enters the compilation as an owner beside the artifact and makes sure that this is
//! there. A result counts at once where somebody has found its artifact in its place lately, and otherwise when that worker
//! has. Where the artifact is not there, or nobody can tell, the work is done as if there were no result.

use hone_crds::status::{Artifact, Cache, TargetTuning};
use hone_crds::{Duration, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Planner;
use crate::children::reasons::Reason;
use crate::model_compilation::model::{Action, Finish, JobBounds, JobPlan, JobView, Purpose};
use crate::model_compilation::plan::Draft;
use crate::model_compilation::{digest, request};

/// Longest time that looking may take, in seconds, the start of its pod included.
const LOOKING: i64 = 120;
/// Longest time that entering an owner may take, in seconds, where nobody waits for it.
const ENTERING: i64 = 3600;
/// Time until a Job that was refused is asked for again, in seconds.
const REFUSED: u64 = 60;

impl Planner<'_> {
    /// Where the target stands by another's result; `None` where it has to do its own work.
    pub(super) fn adopted(&self, draft: &mut Draft) -> Option<TargetStatus> {
        let observed = self.context.observed;
        let found = observed.cached.get(self.base.content_key.as_ref()?)?;
        let artifact = found.artifact.as_ref()?;
        let name = digest::adoption_name(&observed.object, self.target, &artifact.uri);
        let job = observed.jobs.iter().find(|job| job.name == name);
        if job.is_some_and(|job| matches!(job.finish, Some(Finish::Failed(_)))) {
            return None;
        }
        if self.is_fresh(artifact.checked.as_ref()) {
            self.stop_job(draft);
            return self.entered(self.hit(found), draft);
        }
        let busy = self.job().is_some() || !self.may_look();
        if busy || observed.object.spec.suspend || observed.namespace.terminating {
            return None;
        }
        if observed.refusals.contains_key(&name) {
            return None;
        }
        match job.map(|job| (job, &job.finish)) {
            None => {
                self.look(name, LOOKING, found, draft);
                Some(self.checking())
            }
            Some((_, Some(Finish::Complete))) => Some(self.owning(self.hit(found))),
            Some((_, Some(Finish::Failed(_)))) => None,
            Some((job, None)) => {
                self.looking(job, draft);
                Some(self.checking())
            }
        }
    }

    /// A result from the cache, for which a worker enters the compilation as an owner meanwhile; `None` where that has
    /// failed. A namespace that goes away takes no new Job, and what the API server refuses is asked for again.
    pub(super) fn entered(&self, hit: TargetStatus, draft: &mut Draft) -> Option<TargetStatus> {
        let observed = self.context.observed;
        let Some(artifact) = hit.artifact.as_ref().filter(|own| own.owned == Some(false)) else {
            return Some(hit);
        };
        let name = digest::adoption_name(&observed.object, self.target, &artifact.uri);
        draft.wanted_jobs.push(name.clone());
        if observed.namespace.terminating {
            return Some(hit);
        }
        if observed.refusals.contains_key(&name) {
            draft.again(REFUSED);
            return Some(hit);
        }
        let job = observed.jobs.iter().find(|job| job.name == name);
        match job.map(|job| (job, &job.finish)) {
            None => self.look(name, ENTERING, &hit, draft),
            Some((_, Some(Finish::Complete))) => return Some(self.owning(hit)),
            Some((_, Some(Finish::Failed(_)))) => return None,
            Some((job, None)) => self.looking(job, draft),
        }
        Some(hit)
    }

    /// The result after a worker has found its artifact and entered the compilation.
    fn owning(&self, mut hit: TargetStatus) -> TargetStatus {
        if let Some(artifact) = &mut hit.artifact {
            artifact.checked = Some(self.context.observed.now.clone());
            artifact.owned = Some(true);
        }
        hit
    }

    /// The name of the Job that looks whether another's artifact is there, where there is such a result.
    pub(super) fn adoption(&self) -> Option<String> {
        let observed = self.context.observed;
        let found = observed.cached.get(self.base.content_key.as_ref()?)?;
        let uri = &found.artifact.as_ref()?.uri;
        Some(digest::adoption_name(&observed.object, self.target, uri))
    }

    fn is_fresh(&self, checked: Option<&Time>) -> bool {
        let now = self.context.observed.now.0.as_second();
        let trust = self.context.config.cache_trust_seconds;
        checked.is_some_and(|checked| now.saturating_sub(checked.0.as_second()) < trust)
    }

    /// Whether the target has not begun to wait for its own work: looking would make it lose its turn.
    fn may_look(&self) -> bool {
        let known = self.prior.map(|prior| (prior.phase, prior.failure.as_ref()));
        known.is_none_or(|(phase, failure)| {
            phase != Phase::Running
                && failure.is_none_or(|known| known.reason == Reason::CheckingArtifact.as_str())
        })
    }

    fn hit(&self, found: &TargetStatus) -> TargetStatus {
        let own = |artifact: &Artifact| Artifact { owned: Some(false), ..artifact.clone() };
        TargetStatus {
            artifact: found.artifact.as_ref().map(own),
            phase: Phase::Succeeded,
            cache: Some(Cache::Hit),
            name: self.base.name.clone(),
            spec_digest: self.base.spec_digest.clone(),
            job_ref: None,
            failure: None,
            tuning: self.tuning_of(found),
            ..found.clone()
        }
    }

    /// The tuning that comes with another's result: one that has ended well, and that searched for as long as is asked
    /// for, is not done again.
    fn tuning_of(&self, found: &TargetStatus) -> Option<TargetTuning> {
        let tuning = found.tuning.clone().filter(|tuning| tuning.phase == Phase::Succeeded)?;
        let wanted = self.search_ends();
        let trials = |most: Option<i64>| most.unwrap_or(i64::MAX);
        let time = |most: Option<Duration>| most.map_or(u64::MAX, Duration::as_secs_ceil);
        let is_enough = trials(tuning.max_trials) >= trials(wanted.max_trials)
            && time(tuning.max_duration) >= time(wanted.max_duration);
        let spec_digest = Some(digest::tuning_digest(&self.context.observed.object));
        is_enough.then_some(TargetTuning { spec_digest, ..tuning })
    }

    /// Makes the Job that looks.
    fn look(&self, name: String, seconds: i64, found: &TargetStatus, draft: &mut Draft) {
        let observed = self.context.observed;
        let Some(artifact) = &found.artifact else { return };
        // For its tolerations alone: any node does.
        let pool = observed.pools.iter().find(|pool| Some(&pool.name) == found.pool.as_ref());
        draft.actions.push(Action::CreateJob(Box::new(JobPlan {
            optional_secrets: Vec::new(),
            bounds: JobBounds {
                name: name.clone(),
                active_deadline_seconds: seconds,
                backoff_limit: 1,
            },
            name,
            purpose: Purpose::Adopt,
            target: Some(self.target.name.clone()),
            pool: pool.cloned(),
            grant: None,
            gated: false,
            suspended: false,
            request: request::adopt(&observed.object, artifact),
        })));
    }

    fn looking(&self, job: &JobView, draft: &mut Draft) {
        match job.deleting {
            true => draft.again(2),
            false => draft.again(LOOKING.unsigned_abs()),
        }
    }

    fn checking(&self) -> TargetStatus {
        let why = format!(
            "another compilation has the result of target '{}': a worker looks whether its artifact is still there",
            self.target.name
        );
        self.standing(self.work().waiting(Reason::CheckingArtifact, &why))
    }
}
