//! Work whose Job somebody else lets go, such as Kueue when there is quota.
//!
//! A device that is granted before that would be held for nothing. So the Job is made first, and its pods have a gate:
//! when one is there, it is asked for a device, and the gate is taken from it together with the order to the node. A Job
//! that is suspended again gives its device back with its last pod, and the next pod asks anew.

use hone_crds::Phase;

use super::jobs::JobView;
use super::reasons::Reason;
use super::start::{Standing, Work};
use super::steps::{Action, Draft, Placement};
use crate::broker::pools::{self, PoolView};
use crate::broker::slots::is_leased;

impl Work<'_> {
    /// The pool in which the Job waits for whoever queues it, before it has a device; none where nobody does, or where a
    /// pool will do that leases nothing.
    pub(super) fn queued_in<'p>(&self, candidates: &[&'p PoolView]) -> Option<&'p PoolView> {
        // Without a label, but suspended when it was made.
        if !(self.labelled || self.queued) || pools::without_lease(candidates).is_some() {
            return None;
        }
        candidates.iter().find(|pool| is_leased(&pool.spec)).copied()
    }

    /// Whether a pod of the Job waits for its device.
    pub(super) fn at_gate(&self, job: &JobView) -> bool {
        job.gated && self.wait.is_some_and(|wait| wait.reason == Reason::WaitingForDevice)
    }

    /// A pod waits for its device: it is asked for, or given.
    pub(super) fn place(&self, job: &JobView, draft: &mut Draft) -> Standing {
        if let Some(grant) = self.grant.filter(|grant| Some(&grant.pool) == job.pool.as_ref()) {
            let placement = Placement { name: job.name.clone(), grant: grant.clone() };
            draft.actions.push(Action::PlaceJob(placement));
            return Standing { failure: self.known_failure(), ..self.at(Phase::Pending) };
        }
        let since = job.started.as_ref().or(job.created.as_ref());
        let since = since.unwrap_or(self.since);
        let status = self.ask(job.pool.iter().cloned().collect(), since, true, draft);
        if status.phase == Phase::Failed && !job.deleting {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
        }
        status
    }

    /// The Job is suspended. One that was given a device before it was gives it back at once: it is made again,
    /// suspended as it was, and waits without one.
    pub(super) fn suspended(&self, job: &JobView, draft: &mut Draft) -> Standing {
        if job.slot.is_some() && !job.gated && job.at_rest {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
        }
        self.waits_in_queue()
    }

    /// Where work stands whose Job is suspended.
    pub(super) fn waits_in_queue(&self) -> Standing {
        let why = format!(
            "Job '{}' is suspended, such as by Kueue until there is quota; this does not count against limits.pendingDeadline",
            self.job
        );
        self.waiting(Reason::Queued, &why)
    }
}
