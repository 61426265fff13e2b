//! The further devices of a run: one Job for each, whose pod measures what the run's tuner asks for.
//!
//! Sessions help and nothing more: none is made before the tuner runs, they get a device after everybody who has none,
//! and what becomes of one never fails the run. They go with the tuner's Job.

use hone_crds::device_pool::DeviceKind;
use hone_crds::model_compilation::Limits;
use hone_crds::status::Retry;
use hone_crds::{Duration, Phase};

use super::plan::Planner;
use super::{digest, request};
use crate::broker::pools::PoolView;
use crate::children::jobs::{JobView, Purpose};
use crate::children::start::{Standing, Work};
use crate::children::steps::{Draft, JobPlan};

/// Seconds without work after which a session ends and gives its device back: longer than it takes to start the
/// tuner's next pod.
pub const IDLE_SECONDS: u64 = 600;
/// A session asks for a device for as long as the run goes on: ten years.
const PENDING: u64 = 10 * 365 * 24 * 3600;

impl Planner<'_> {
    /// The names of the Jobs of the run's sessions.
    pub(super) fn sessions(&self) -> Vec<String> {
        digest::session_names(&self.observed.object)
    }

    /// Brings sessions a step on, where the tuner stands at `tuner`.
    pub(super) fn bring_sessions_on(&self, tuner: Phase, draft: &mut Draft) {
        // Sessions outside of the cluster are started there.
        let external = |pool: &&PoolView| pool.spec.kind == DeviceKind::External;
        let is_elsewhere = self.candidates().is_ok_and(|pools| pools.iter().any(external));
        if self.observed.object.spec.suspend || is_elsewhere {
            return;
        }
        for (index, name) in self.sessions().iter().enumerate() {
            let job = self.observed.jobs.iter().find(|job| job.name == *name);
            let limits = self.session_limits();
            let retry = Retry { attempts: 1, after: None };
            let work = Work {
                subject: format!("session {} of the run", index + 1),
                job: name,
                limits: &limits,
                wait: self.observed.waits.get(name),
                refusal: self.observed.refusals.get(name),
                grant: self.observed.grants.get(name),
                prior: None,
                queued: false,
                // Who never had a device is served first.
                retry: Some(&retry),
                ..self.work()
            };
            match job {
                Some(job) => self.session_active(&work, job, draft),
                None if tuner == Phase::Running => {
                    self.start_session(&work, draft);
                }
                None => {}
            }
        }
    }

    /// Those of the run's sessions that have a pod at work.
    pub(super) fn sessions_at_work(&self) -> Vec<&JobView> {
        let names = self.sessions();
        let at_work = |job: &&JobView| job.ready > 0 && job.finish.is_none() && !job.deleting;
        self.observed.jobs.iter().filter(at_work).filter(|job| names.contains(&job.name)).collect()
    }

    fn session_limits(&self) -> Limits {
        let limits = self.observed.object.spec.limits.clone();
        Limits { pending_deadline: Duration::from_secs(PENDING), ..limits }
    }

    fn session_active(&self, work: &Work<'_>, job: &JobView, draft: &mut Draft) {
        // One that has ended is not made again, and one that cannot start would fare no better for it.
        let hopeless = work.wait.is_some_and(|wait| wait.reason.is_hopeless());
        if job.finish.is_some() || hopeless {
            return;
        }
        match job.deleting {
            true => draft.again(2),
            false => drop(work.active(job, draft)),
        }
    }

    fn start_session(&self, work: &Work<'_>, draft: &mut Draft) -> Standing {
        let plan = |pool: &PoolView, grant| JobPlan {
            name: work.job.to_owned(),
            purpose: Purpose::Measure,
            target: None,
            pool: Some(pool.clone()),
            grant,
            gated: false,
            suspended: false,
            request: request::session(&self.observed.object, pool, work.job, IDLE_SECONDS),
            optional_secrets: Vec::new(),
            bounds: work.bounds.clone(),
        };
        work.start(|| self.candidates(), plan, draft)
    }
}
