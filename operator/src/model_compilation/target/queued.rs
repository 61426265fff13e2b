//! Targets whose Job somebody else lets go, such as Kueue when there is quota.
//!
//! A device that is granted before that would be held for nothing. So the Job is made first, and its pods have a gate:
//! when one is there, it is asked for a device, and the gate is taken from it together with the order to the node. A Job
//! that is suspended again gives its device back with its last pod, and the next pod asks anew.

use hone_crds::TargetStatus;

use super::Planner;
use crate::broker::slots::is_leased;
use crate::children::names::QUEUE_LABEL;
use crate::children::reasons::Reason;
use crate::model_compilation::model::{Action, JobView, Placement, PoolView};
use crate::model_compilation::plan::Draft;
use crate::model_compilation::pools;

impl Planner<'_> {
    /// The pool in which the Job waits for whoever queues it, before it has a device; none where nobody does, or where a
    /// pool will do that leases nothing.
    pub(super) fn queued_in<'a>(&self, candidates: &[&'a PoolView]) -> Option<&'a PoolView> {
        // Without a label, but suspended when it was made.
        let same = self.prior.filter(|prior| prior.job_ref == self.base.job_ref);
        let known = same.and_then(|prior| prior.failure.as_ref());
        let queued = known.is_some_and(|known| known.reason == Reason::Queued.as_str());
        if !(self.is_labelled() || queued) || pools::without_lease(candidates).is_some() {
            return None;
        }
        candidates.iter().find(|pool| is_leased(&pool.spec)).copied()
    }

    /// Whether Kueue queues the Job by its label, and so suspends it itself.
    pub(super) fn is_labelled(&self) -> bool {
        let labels = self.context.observed.object.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(QUEUE_LABEL))
    }

    /// Whether a pod of the Job waits for its device.
    pub(super) fn at_gate(&self, job: &JobView) -> bool {
        let wait = self.context.observed.waits.get(&job.name);
        job.gated && wait.is_some_and(|wait| wait.reason == Reason::WaitingForDevice)
    }

    /// A pod waits for its device: it is asked for, or given.
    pub(super) fn place(&self, job: &JobView, draft: &mut Draft) -> TargetStatus {
        let granted = self.context.observed.grants.get(&job.name);
        if let Some(grant) = granted.filter(|grant| Some(&grant.pool) == job.pool.as_ref()) {
            let placement = Placement { name: job.name.clone(), grant: grant.clone() };
            draft.actions.push(Action::PlaceJob(placement));
            return TargetStatus {
                failure: self.known_failure(),
                ..self.at(hone_crds::Phase::Pending)
            };
        }
        let since = job.started.as_ref().or(job.created.as_ref());
        let since = since.unwrap_or(&self.context.start);
        let status = self.ask(job.pool.iter().cloned().collect(), since, true, draft);
        if status.phase == hone_crds::Phase::Failed {
            self.stop_job(draft);
        }
        status
    }

    /// The Job is suspended. One that was given a device before it was gives it back at once: it is made again,
    /// suspended as it was, and waits without one.
    pub(super) fn suspended(&self, job: &JobView, draft: &mut Draft) -> TargetStatus {
        if job.slot.is_some() && !job.gated && job.at_rest {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
        }
        self.queued()
    }

    /// The status of a target whose Job is suspended.
    pub(super) fn queued(&self) -> TargetStatus {
        let why = format!(
            "Job '{}' is suspended, such as by Kueue until there is quota; this does not count against limits.pendingDeadline",
            self.job_name
        );
        self.waiting(Reason::Queued, &why)
    }
}
