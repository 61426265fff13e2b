//! From the targets' statuses to the object's: phase and conditions.

use hone_crds::conditions::{State, TUNED, VERIFIED, set};
use hone_crds::model_compilation::{DeletionPolicy, Goal};
use hone_crds::status::{Failure, Summary};
use hone_crds::{ModelCompilationStatus, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::goals;
use super::model::Observed;
use crate::children::conditions::stand;
use crate::children::ended::failure;
use crate::children::reasons::Reason;

/// The whole status.
pub fn status(
    observed: &Observed,
    targets: Vec<TargetStatus>,
    start: Time,
) -> ModelCompilationStatus {
    let before = observed.object.status.clone().unwrap_or_default();
    let generation = observed.object.metadata.generation;
    let phase = phase(&targets);
    let finished = phase.has_ended();
    let was_finished = before.phase.has_ended();
    let goals = &observed.object.spec.goals;
    let ready = targets.iter().filter(|target| is_published(goals, target)).count();
    let all_ready = ready == targets.len();
    let mut status = ModelCompilationStatus {
        observed_generation: generation,
        phase,
        targets_ready: Some(format!("{ready}/{}", targets.len())),
        start_time: if finished && was_finished { before.start_time } else { Some(start) },
        completion_time: match (finished, was_finished) {
            (true, true) => before.completion_time,
            (true, false) => Some(observed.now.clone()),
            (false, _) => None,
        },
        superseded: superseded(observed, &targets),
        conditions: before.conditions,
        failure: first_failure(&targets),
        summary: Summary::of(&targets),
        targets,
    };
    conditions(&mut status, all_ready, generation, &observed.now);
    status
}

/// Whether a target has a result that may be used, though a search for a better one goes on.
fn is_published(goals: &[Goal], target: &TargetStatus) -> bool {
    match target.phase {
        Phase::Succeeded => true,
        Phase::Running | Phase::Suspended => {
            target.tuning.is_some() && goals::missed(goals, target).is_empty()
        }
        Phase::Pending | Phase::Failed => false,
    }
}

/// Most artifacts of earlier specs that a status lists.
const SUPERSEDED: usize = 32;

/// Artifacts that the status named and that no target names any more. Only where they are to be deleted with the
/// object, as nobody else needs the list.
fn superseded(observed: &Observed, targets: &[TargetStatus]) -> Vec<String> {
    let object = &observed.object;
    let Some(before) = &object.status else { return Vec::new() };
    if object.spec.output.deletion_policy != DeletionPolicy::Delete {
        return Vec::new();
    }
    let uri = |target: &TargetStatus| target.artifact.as_ref().map(|artifact| artifact.uri.clone());
    let current: Vec<String> = targets.iter().filter_map(uri).collect();
    let mut list: Vec<String> = Vec::new();
    for uri in before.superseded.iter().cloned().chain(before.targets.iter().filter_map(uri)) {
        if !current.contains(&uri) && !list.contains(&uri) {
            list.push(uri);
        }
    }
    list.split_off(list.len().saturating_sub(SUPERSEDED))
}

/// One word for all targets.
fn phase(targets: &[TargetStatus]) -> Phase {
    let any = |phase: Phase| targets.iter().any(|target| target.phase == phase);
    if any(Phase::Running) {
        Phase::Running
    } else if any(Phase::Suspended) {
        Phase::Suspended
    } else if any(Phase::Pending) {
        Phase::Pending
    } else if any(Phase::Failed) {
        Phase::Failed
    } else {
        Phase::Succeeded
    }
}

/// The failure of the first target that failed for good.
fn first_failure(targets: &[TargetStatus]) -> Option<Failure> {
    let failed = targets.iter().find(|target| target.phase == Phase::Failed)?;
    let why = failed.failure.as_ref()?;
    Some(failure(&why.reason, &format!("target '{}': {}", failed.name, why.message)))
}

/// Why the object is where it is: reason and message of `Ready`.
fn why(status: &ModelCompilationStatus) -> (String, String) {
    if status.phase == Phase::Succeeded {
        return (Reason::Succeeded.as_str().to_owned(), success_note(status));
    }
    if status.phase == Phase::Failed
        && let Some(failure) = &status.failure
    {
        return (failure.reason.clone(), failure.message.clone());
    }
    // One that runs says why nothing is heard of it.
    let waiting = status
        .targets
        .iter()
        .filter(|target| matches!(target.phase, Phase::Pending | Phase::Running))
        .find_map(|target| target.failure.as_ref());
    if status.phase == Phase::Running
        && let Some(tuning) = tuning_note(&status.targets)
        && status.targets.iter().all(|t| t.phase == Phase::Succeeded || t.tuning.is_some())
    {
        return (Reason::Tuning.as_str().to_owned(), format!("{}; {tuning}", success_note(status)));
    }
    let (reason, message) = match (waiting, status.phase) {
        (Some(waiting), _) => return (waiting.reason.clone(), waiting.message.clone()),
        (None, Phase::Suspended) => (Reason::Suspended, "spec.suspend is set"),
        (None, Phase::Running) => (Reason::Running, "a worker is at work"),
        (None, _) => (Reason::Pending, "waiting for the worker to start"),
    };
    (reason.as_str().to_owned(), message.to_owned())
}

/// What came out, in words.
pub fn success_note(status: &ModelCompilationStatus) -> String {
    let parts: Vec<String> = status
        .targets
        .iter()
        .map(|target| match &target.latency {
            Some(latency) => format!("{}: {}", target.name, latency.p50),
            None => format!("{}: not measured", target.name),
        })
        .collect();
    hone_crds::conditions::bounded(&parts.join(", "), 900).to_owned()
}

/// What becomes of the first target whose tuning is under way, in words.
fn tuning_note(targets: &[TargetStatus]) -> Option<String> {
    let tunings = targets.iter().filter_map(|target| Some((target, target.tuning.as_ref()?)));
    let (target, tuning) = tunings.into_iter().find(|(_, tuning)| !tuning.phase.has_ended())?;
    let run = target.tuning_run_ref.as_ref().map_or("", |run| &run.name);
    let what = match (tuning.phase, &tuning.failure) {
        (Phase::Suspended, _) => "is suspended".to_owned(),
        (_, Some(why)) => format!("waits: {}", why.message),
        (Phase::Running, None) => match tuning.revision {
            Some(revision) => format!("is at work, and revision {revision} is published"),
            None => "is at work".to_owned(),
        },
        (_, None) => "waits for its worker to start".to_owned(),
    };
    let note = format!("target '{}': its tuning by TuningRun '{run}' {what}", target.name);
    Some(hone_crds::conditions::bounded(&note, 900).to_owned())
}

fn conditions(
    status: &mut ModelCompilationStatus,
    ready: bool,
    generation: Option<i64>,
    now: &Time,
) {
    let (reason, message) = why(status);
    let finished = status.phase.has_ended();
    stand(&mut status.conditions, (status.phase, ready), (&reason, &message), generation, now);
    let verified = verified(&status.targets);
    let tuned = tuned(&status.targets, finished);
    let found = [&verified, &tuned];
    let found = found.map(|(kind, state, reason, message)| (*kind, *state, &**reason, &**message));
    for (kind, state, reason, message) in found {
        set(&mut status.conditions, kind, state, reason, message, generation, now);
    }
}

/// A condition: its type, status, reason and message.
type Row = (&'static str, State, String, String);

fn row(kind: &'static str, state: State, reason: &str, message: &str) -> Row {
    (kind, state, reason.to_owned(), message.to_owned())
}

fn verified(targets: &[TargetStatus]) -> Row {
    let checked = |passed: bool| {
        move |target: &TargetStatus| target.correctness.as_ref().map(|c| c.passed) == Some(passed)
    };
    if targets.iter().any(checked(false)) {
        row(VERIFIED, State::False, "CorrectnessBreach", "a target's answers are out of tolerance")
    } else if targets.iter().all(checked(true)) {
        row(VERIFIED, State::True, "Passed", &how_verified(targets))
    } else {
        let why = targets.iter().find_map(|target| {
            Some(format!(
                "target '{}' was not checked: {}",
                target.name,
                target.unverified.as_ref()?
            ))
        });
        let message = why.as_deref().unwrap_or("not every target has been checked");
        row(VERIFIED, State::Unknown, "NotChecked", message)
    }
}

/// How the targets were verified, all of which passed.
fn how_verified(targets: &[TargetStatus]) -> String {
    let correctness = || targets.iter().filter_map(|target| target.correctness.as_ref());
    let kernels: i64 = correctness().filter_map(|found| found.kernels).sum();
    let off: i64 = correctness().filter_map(|found| found.steps_off).sum();
    let mut message = "every target's answers are within tolerance".to_owned();
    if kernels > 0 {
        message.push_str(&format!("; {kernels} kernels agree with the reference one by one"));
    }
    if off > 0 {
        message
            .push_str(&format!(", {off} elements a step off where the reference lies between two"));
    }
    if kernels > 0 && correctness().any(|found| found.kernels.is_none()) {
        message.push_str("; some targets were compared end to end only");
    }
    let unchecked = |target: &&TargetStatus| {
        target.correctness.as_ref().is_some_and(|found| found.passes_unchecked.is_some())
    };
    if let Some(target) = targets.iter().find(unchecked) {
        message.push_str(&format!("; the passes were not checked for target '{}'", target.name));
    }
    message
}

fn tuned(targets: &[TargetStatus], finished: bool) -> Row {
    let searched = |target: &TargetStatus, phase| {
        target.tuning.as_ref().is_some_and(|tuning| tuning.phase == phase)
    };
    let mut failed = targets.iter().filter(|target| searched(target, Phase::Failed));
    let failed =
        failed.find_map(|target| Some((target, target.tuning.as_ref()?.failure.as_ref()?)));
    if let Some(note) = tuning_note(targets) {
        row(TUNED, State::Unknown, Reason::Tuning.as_str(), &note)
    } else if let Some((target, why)) = failed {
        let message = format!("target '{}' stays as it is: {}", target.name, why.message);
        row(TUNED, State::False, &why.reason, &message)
    } else if targets.iter().all(|target| target.tuned || searched(target, Phase::Succeeded)) {
        let message = match targets.iter().all(|target| target.tuned) {
            true => "every target was tuned",
            false => "every target was tuned; of some, no schedule was faster",
        };
        row(TUNED, State::True, Reason::Tuned.as_str(), message)
    } else if finished {
        row(TUNED, State::False, "NotTuned", "not every target was tuned")
    } else {
        row(TUNED, State::Unknown, "NotFinished", "the work is not finished")
    }
}
