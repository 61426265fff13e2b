//! Decides what to do for one `ModelCompilation`, from values alone.
//!
//! No client, no clock, no randomness: they come in with [`Observed`]. Planning again over the
//! state that a plan leads to changes nothing; the runner of `tests/plans` says so for each case.

use hone_crds::model_compilation::DeletionPolicy;
use hone_crds::{ModelCompilationStatus, TargetStatus};

use super::model::{Action, Observed, Plan};
use super::{deletion, refusal, summary, target};
use crate::children::lost;
use crate::children::names::FINALIZER;
pub use crate::children::steps::Draft;
use crate::config::Config;

/// The plan for what was observed.
pub fn plan(config: &Config, observed: &Observed) -> Plan {
    let mut draft = Draft::default();
    lost::plan(&observed.jobs, &observed.now, &mut draft);
    if observed.object.metadata.deletion_timestamp.is_some() {
        let mut plan = deletion::plan(config, observed);
        plan.actions.splice(0..0, draft.actions);
        return plan;
    }
    let refusal = refusal::find(config, &observed.object.spec);
    let context = target::Context {
        config,
        observed,
        refusal: refusal.as_ref(),
        start: start_time(observed),
    };
    let targets: Vec<TargetStatus> = observed
        .object
        .spec
        .targets
        .iter()
        .map(|target| target::plan(&context, target, &mut draft))
        .collect();
    finalizer(observed, &targets, &mut draft);
    let wanted = observed
        .object
        .spec
        .targets
        .iter()
        .map(|target| super::digest::job_name(&observed.object, target));
    let wanted: Vec<String> = wanted.chain(std::mem::take(&mut draft.wanted_jobs)).collect();
    drop_stale_jobs(observed, &wanted, &mut draft);
    drop_stale_runs(observed, &mut draft);

    let status = summary::status(observed, targets, context.start.clone());
    finish(observed, &status, &mut draft);
    Plan {
        actions: draft.actions,
        requests: draft.requests,
        status: (observed.object.status.as_ref() != Some(&status)).then_some(status),
        again_seconds: draft.again_seconds,
    }
}

/// Delays deletion only where something may have to be deleted: from before the first worker is made.
fn finalizer(observed: &Observed, targets: &[TargetStatus], draft: &mut Draft) {
    let metadata = &observed.object.metadata;
    let has = metadata.finalizers.iter().flatten().any(|f| f == FINALIZER);
    let wants = observed.object.spec.output.deletion_policy == DeletionPolicy::Delete;
    match (has, wants) {
        (false, true) if may_have_stored(observed, targets, draft) => {
            draft.actions.insert(0, Action::AddFinalizer);
        }
        (true, false) => draft.actions.insert(0, Action::RemoveFinalizer),
        _ => {}
    }
}

/// Whether a worker stores something, or may have: of this spec or of an earlier one, which the status may not tell of.
fn may_have_stored(observed: &Observed, targets: &[TargetStatus], draft: &Draft) -> bool {
    let creates = draft.actions.iter().any(|action| matches!(action, Action::CreateJob(_)));
    let names = targets.iter().any(|target| target.artifact.is_some() || target.pool.is_some());
    let edited = observed.object.metadata.generation.is_some_and(|generation| generation > 1);
    creates || names || edited || !observed.jobs.is_empty()
}

/// When the work under way was taken up: kept while it is the same work.
fn start_time(observed: &Observed) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    let status = observed.object.status.as_ref();
    let same = status.is_some_and(|status| {
        status.observed_generation == observed.object.metadata.generation
            && !status.phase.has_ended()
    });
    status
        .filter(|_| same)
        .and_then(|status| status.start_time.clone())
        .unwrap_or_else(|| observed.now.clone())
}

/// Deletes Jobs of earlier specs that still run. Finished ones are left to their own time.
fn drop_stale_jobs(observed: &Observed, wanted: &[String], draft: &mut Draft) {
    for job in &observed.jobs {
        if !wanted.contains(&job.name) && job.finish.is_none() && !job.deleting {
            draft.actions.push(Action::DeleteJob(job.name.clone()));
        }
    }
}

/// Deletes tuning runs of earlier specs, which are as good as their logs.
fn drop_stale_runs(observed: &Observed, draft: &mut Draft) {
    let wanted = std::mem::take(&mut draft.wanted_runs);
    for run in observed.runs.iter().filter(|run| !run.deleting && !wanted.contains(&run.name)) {
        draft.actions.push(Action::DeleteRun(run.name.clone()));
    }
}

/// Events of the end, and the end of the object's own time.
fn finish(observed: &Observed, status: &ModelCompilationStatus, draft: &mut Draft) {
    let before = observed.object.status.as_ref().map(|status| status.phase);
    let note = || summary::success_note(status);
    draft.phase_event(before, status.phase, status.failure.as_ref(), note);
    let (Some(retention), Some(end)) = (&observed.object.spec.retention, &status.completion_time)
    else {
        return;
    };
    let ttl = i64::try_from(retention.ttl_after_finished.as_secs_ceil()).unwrap_or(i64::MAX);
    let left = end.0.as_second().saturating_add(ttl).saturating_sub(observed.now.0.as_second());
    match u64::try_from(left) {
        Ok(left) if left > 0 => draft.again(left),
        _ => draft.actions.push(Action::DeleteSelf),
    }
}
