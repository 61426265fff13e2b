//! The status of a run: its conditions, and how it is written.

use hone_crds::{Phase, TuningRun, TuningRunStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::CONTROLLER;
use super::model::Observed;
use super::progress;
use crate::children::apply::{Applied, ApplyError};
use crate::children::bounds::bounded;
use crate::children::conditions::stand;
use crate::children::names;
use crate::children::reasons::Reason;
use crate::context::Context;
use crate::runtime::queue::Key;

/// The whole status of a run that stands as `status` says: with its times and conditions.
pub fn finish(observed: &Observed, status: TuningRunStatus) -> TuningRunStatus {
    let generation = observed.object.metadata.generation;
    let before = observed.object.status.as_ref();
    let since =
        before.filter(|before| before.phase.has_ended() && before.job_ref == status.job_ref);
    let (start_time, completion_time) = match (status.phase.has_ended(), since) {
        (true, Some(before)) => (before.start_time.clone(), before.completion_time.clone()),
        (true, None) => (status.start_time.clone(), Some(observed.now.clone())),
        (false, _) => (status.start_time.clone(), None),
    };
    let mut status =
        TuningRunStatus { observed_generation: generation, start_time, completion_time, ..status };
    let (reason, message) = why(&status);
    let ready = status.phase == Phase::Succeeded;
    stand(
        &mut status.conditions,
        (status.phase, ready),
        (&reason, &message),
        generation,
        &observed.now,
    );
    status
}

/// Why the run is where it is: reason and message of `Ready`.
fn why(status: &TuningRunStatus) -> (String, String) {
    let (reason, message) = match (status.phase, &status.failure) {
        (Phase::Succeeded, _) => (Reason::Succeeded, success_note(status)),
        (Phase::Failed | Phase::Pending, Some(failure)) => {
            return (failure.reason.clone(), failure.message.clone());
        }
        (Phase::Suspended, _) => {
            (Reason::Suspended, "spec.suspend is set; the log is kept".to_owned())
        }
        (Phase::Running, Some(failure)) if failure.reason == Reason::WaitingForSession.as_str() => {
            return (failure.reason.clone(), failure.message.clone());
        }
        (Phase::Running, _) => (Reason::Running, progress::note(status)),
        (Phase::Pending | Phase::Failed, None) => {
            (Reason::Pending, "waiting for the worker to start".to_owned())
        }
    };
    (reason.as_str().to_owned(), message)
}

/// What came out, in words.
pub fn success_note(status: &TuningRunStatus) -> String {
    let trials = status.trials.clone().unwrap_or_default();
    let mut note = format!("{} trials", trials.measured + trials.failed);
    if trials.failed > 0 {
        note.push_str(&format!(", {} of them without a time", trials.failed));
    }
    if let Some(best) = &status.best {
        note.push_str(&format!("; {}", best.latency));
        if let Some(untuned) = best.untuned {
            note.push_str(&format!(", {untuned} without tuning"));
        }
    }
    if let Some(ended) = &status.ended {
        note.push_str(&format!("; {ended}"));
    }
    bounded(&note, 900).to_owned()
}

/// Writes the status of what was applied, if it changed, at exactly the version that was planned for.
///
/// # Errors
/// [`ApplyError`], a conflict included.
pub async fn write(
    context: &Context,
    object: &TuningRun,
    status: Option<TuningRunStatus>,
    applied: Applied,
) -> Result<(), ApplyError> {
    let Applied { resource_version, pools: _, refusals: _, gone } = applied;
    let Some(status) = status.filter(|_| !gone) else { return Ok(()) };
    if !context.fence.leads() {
        return Err(ApplyError::NotLeading);
    }
    let name = object.name_any();
    let patch = json!({
        "apiVersion": TuningRun::api_version(&()),
        "kind": TuningRun::kind(&()),
        "metadata": {"name": name, "resourceVersion": resource_version},
        "status": status,
    });
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<TuningRun> = Api::namespaced(context.client.clone(), &namespace);
    let params = PatchParams::apply(names::MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(&patch)).await {
        Ok(written) => {
            let key = Key::of(CONTROLLER, object);
            context.queue.wrote(&key, written.resource_version().as_deref());
            Ok(())
        }
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        Err(source) => Err(ApplyError::Kube {
            what: format!("write the status of TuningRun '{namespace}/{name}'"),
            source: Box::new(source),
        }),
    }
}
