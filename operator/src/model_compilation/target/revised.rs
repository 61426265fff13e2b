//! Revisions of a target's artifact: what its tuning run has found so far, compiled and published while the run goes on,
//! and once more at its end.
//!
//! The log of the run is what both work with: a revision is a compilation with the records that lie there, so nothing is
//! lost with a pod, and any of them may be left out. One is compiled only where the run measured, beside the network
//! without tuning, that it takes at least 2 % less than the one before; the run's pod measures that rarely
//! (`compiler-worker/src/tune/revisions.rs`). It needs a device as any compilation does, and waits while the pool has none;
//! when the run ends first, it is left out for what the whole search has found. Nothing that becomes of it fails the
//! tuning.

use hone_crds::status::{Compiling, Failure, ObjectRef, Retry, TargetTuning};
use hone_crds::tuning_run::Best;
use hone_crds::{Duration, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Planner;
use crate::children::ended::failure;
use crate::children::events::EventPlan;
use crate::children::reasons::Reason;
use crate::model_compilation::digest;
use crate::model_compilation::model::{Action, RunView};
use crate::model_compilation::plan::Draft;

/// A revision is compiled where a run of the network takes at most this share of what it takes with the one before, in
/// percent.
const SHARE: i64 = 98;

/// Where compiling a revision stands.
#[derive(Default)]
struct Known {
    phase: Phase,
    failure: Option<Failure>,
    retry: Option<Retry>,
}

impl Planner<'_> {
    /// Keeps the Job that compiles a revision while the run goes on.
    pub(super) fn keep_compiling(&self, tuning: &TargetTuning, draft: &mut Draft) {
        let object = &self.context.observed.object;
        let name = |own: &Compiling| digest::revision_name(object, self.target, &own.checkpoint);
        draft.wanted_jobs.extend(tuning.compiling.as_ref().map(name));
    }

    /// Brings on the revision that is compiled while `run` goes on, or takes one up that is worth it.
    pub(super) fn improve(
        &self,
        run: &RunView,
        status: TargetStatus,
        tuning: TargetTuning,
        draft: &mut Draft,
    ) -> (TargetStatus, TargetTuning) {
        let Some(own) = tuning.compiling.clone().or_else(|| self.worth_compiling(run, &tuning))
        else {
            return (status, tuning);
        };
        // A status says in a word why its Job waits, which is enough to tell each reason once.
        let word = |reason: &String| failure(reason, "");
        let known = tuning.compiling.as_ref().map(|own| Known {
            phase: if own.waits.is_some() { Phase::Pending } else { Phase::Running },
            failure: own.waits.as_ref().map(word),
            retry: tuning.retry.clone(),
        });
        let job = (run, own.checkpoint.as_str());
        let found = self.compile_found(job, &own.start_time, known, &status, draft);
        let over = |revision: i64, checkpoint: Option<&String>| TargetTuning {
            revision: Some(revision),
            compiled: Some(own.found),
            compiling: None,
            retry: None,
            checkpoint: checkpoint.cloned(),
            ..tuning.clone()
        };
        let compiled = Some(&own.checkpoint);
        let number = tuning.revision.unwrap_or(1);
        match found.phase {
            Phase::Succeeded if takes_place(&found, &status) => {
                let status = self.in_place(found, status);
                draft.actions.push(Action::Event(published(&status, number + 1, run)));
                (status, over(number + 1, compiled))
            }
            Phase::Succeeded => (status, over(number, compiled)),
            Phase::Failed => {
                let name = &self.target.name;
                draft.actions.extend(found.failure.map(|why| {
                    let note = format!(
                        "target '{name}' stays as it is, and the search goes on: {}",
                        why.message
                    );
                    Action::Event(EventPlan::failure(&failure(&why.reason, &note)))
                }));
                // The end of the run tries again.
                (status, over(number, None))
            }
            phase => {
                let word = found.failure.map_or(Reason::Pending.as_str().to_owned(), |f| f.reason);
                let own = Compiling { waits: (phase != Phase::Running).then_some(word), ..own };
                let retry = found.retry;
                (status, TargetTuning { compiling: Some(own), retry, ..tuning })
            }
        }
    }

    /// What `run` has found, where that is worth a compilation.
    fn worth_compiling(&self, run: &RunView, tuning: &TargetTuning) -> Option<Compiling> {
        let found = run.best.as_ref().filter(|_| found_something(run))?;
        let found = of_untuned(found)?;
        let before = tuning.compiled.unwrap_or(1000);
        if found * 100 > SHARE * before {
            return None;
        }
        let (checkpoint, start_time) = (run.checkpoint.clone()?, self.context.observed.now.clone());
        Some(Compiling { checkpoint, found, start_time, waits: None })
    }

    /// Compiles the target once more with what `run` found in all.
    pub(super) fn revise(
        &self,
        run: &RunView,
        status: TargetStatus,
        (before, known): (Option<&TargetTuning>, TargetTuning),
        draft: &mut Draft,
    ) -> (TargetStatus, TargetTuning) {
        let observed = self.context.observed;
        // What is known of compiling with an earlier checkpoint says nothing of this one.
        let before = before.filter(|own| own.checkpoint == run.checkpoint);
        let since = before.and_then(|own| own.start_time.clone());
        let since = since.unwrap_or_else(|| observed.now.clone());
        let at = |phase, failure, retry| TargetTuning {
            phase,
            failure,
            retry,
            compiling: None,
            checkpoint: run.checkpoint.clone(),
            start_time: Some(since.clone()),
            ..known.clone()
        };
        let Some(checkpoint) = run.checkpoint.as_ref().filter(|_| found_something(run)) else {
            return (status, at(Phase::Succeeded, None, None));
        };
        let best = run.best.as_ref().and_then(of_untuned);
        // A revision that could not be compiled has no checkpoint, and the end of the run has its own.
        let earlier = known.checkpoint.as_ref().is_some_and(|own| own != checkpoint);
        if earlier && best.is_some() && best == known.compiled {
            // Nothing was found since.
            return (status, at(Phase::Succeeded, None, None));
        }
        let progress = before.map(|own| Known {
            phase: own.phase,
            failure: own.failure.clone(),
            retry: own.retry.clone(),
        });
        let found = self.compile_found((run, checkpoint), &since, progress, &status, draft);
        let over = |revision| TargetTuning {
            revision: Some(revision),
            compiled: best,
            ..at(Phase::Succeeded, None, None)
        };
        let number = known.revision.unwrap_or(1);
        match found.phase {
            Phase::Succeeded if takes_place(&found, &status) => {
                (self.in_place(found, status), over(number + 1))
            }
            Phase::Succeeded => (status, over(number)),
            phase => (status, at(phase, found.failure, found.retry)),
        }
    }

    /// Brings on the Job that compiles with what lies in the log of `run` up to a checkpoint, taken up at `since`.
    fn compile_found(
        &self,
        (run, checkpoint): (&RunView, &str),
        since: &Time,
        known: Option<Known>,
        status: &TargetStatus,
        draft: &mut Draft,
    ) -> TargetStatus {
        let job_name =
            digest::revision_name(&self.context.observed.object, self.target, checkpoint);
        let job_ref = Some(ObjectRef { name: job_name.clone() });
        let retry = known.as_ref().and_then(|known| known.retry.clone());
        let prior = known.map(|known| TargetStatus {
            phase: known.phase,
            failure: known.failure,
            retry: known.retry,
            job_ref: job_ref.clone(),
            ..self.base.clone()
        });
        draft.wanted_jobs.push(job_name.clone());
        let revision = Planner {
            context: self.context,
            target: self.target,
            since: since.clone(),
            log: Some(run.spec.log.clone()),
            base: TargetStatus { pool: status.pool.clone(), retry, job_ref, ..self.base.clone() },
            prior: prior.as_ref(),
            job_name,
        };
        revision.work_on(draft)
    }

    /// The target with a revision in place of the one before.
    fn in_place(&self, found: TargetStatus, before: TargetStatus) -> TargetStatus {
        TargetStatus {
            job_ref: self.base.job_ref.clone(),
            tuning_run_ref: before.tuning_run_ref,
            ..found
        }
    }
}

/// Whether a revision takes the place of what is published: another artifact, and no slower than one that was tuned before.
/// Medians of other moments do not compare well, so against the artifact without tuning the run's own word counts.
fn takes_place(found: &TargetStatus, published: &TargetStatus) -> bool {
    let digest = |own: &TargetStatus| own.artifact.as_ref().map(|artifact| artifact.digest.clone());
    let slower = published.tuned && p50(found) > p50(published);
    !slower && digest(found) != digest(published)
}

/// The median time of a run, where it was measured.
fn p50(status: &TargetStatus) -> Option<Duration> {
    status.latency.as_ref().map(|latency| latency.p50)
}

/// Time of a run of the network in thousandths of that without tuning, which were measured in turn.
fn of_untuned(best: &Best) -> Option<i64> {
    let untuned = best.untuned?.to_std().as_nanos();
    let share = best.latency.to_std().as_nanos().saturating_mul(1000).checked_div(untuned)?;
    // So that products with percents fit.
    Some(i64::try_from(share).unwrap_or(i64::MAX).min(1_000_000))
}

/// Whether a run's schedules beat those without tuning.
fn found_something(run: &RunView) -> bool {
    run.best.as_ref().is_some_and(|best| best.programs > 0)
}

/// The event for a revision that is published while its run goes on.
fn published(status: &TargetStatus, number: i64, run: &RunView) -> EventPlan {
    let measured = p50(status).map_or_else(|| "not measured".to_owned(), |own| own.to_string());
    let note = format!(
        "target '{}': revision {number} is published, {measured}; TuningRun '{}' goes on",
        status.name, run.name
    );
    EventPlan::of(Reason::Revised, note)
}
