//! How workers ended: what they left behind, and the failures in it.

use hone_artifact::exit_code::{ErrorClass, Reason};
use hone_artifact::report::FailureReport;
use hone_artifact::termination::Termination;
use hone_crds::status::Failure;
use serde::{Deserialize, Serialize};

use super::bounds::{FAILURE_MESSAGE, FAILURE_REASON, bounded};
use super::jobs::JobView;
use super::reasons;

/// What the decisive pod of a finished Job left behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Outcome {
    /// No pod is left to look at.
    NoPod,
    /// A worker ended.
    Ended(Box<Ended>),
}

/// How a worker ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ended {
    /// Its exit code.
    #[serde(default)]
    pub exit_code: i32,
    /// The container's or the pod's reason, such as `OOMKilled` or `Evicted`.
    #[serde(default)]
    pub reason: String,
    /// Its report.
    #[serde(default)]
    pub report: Option<Termination>,
    /// The message that is no report.
    #[serde(default)]
    pub other_message: String,
}

/// A failure whose texts fit the schema.
pub fn failure(reason: &str, message: &str) -> Failure {
    Failure {
        reason: bounded(reason, FAILURE_REASON).to_owned(),
        message: bounded(message, FAILURE_MESSAGE).to_owned(),
    }
}

/// The failure that a worker reports.
pub fn reported(why: &FailureReport, job: &JobView) -> Failure {
    let retried = match why.class {
        ErrorClass::Transient => format!(" (after {} tries)", job.failed.max(1)),
        ErrorClass::User | ErrorClass::Bug => String::new(),
    };
    let reproducer = match &why.reproducer {
        Some(uri) => format!("; reproducer: {uri}"),
        None => String::new(),
    };
    failure(why.reason.as_str(), &format!("{}{retried}{reproducer}", why.message))
}

/// Why a worker that left no report ended.
pub fn without_report(ended: &Ended, job: &JobView) -> Failure {
    let tail = match ended.other_message.trim() {
        "" => "it left no message: look at its log".to_owned(),
        text => format!("the end of its log: {}", bounded(text, 1000)),
    };
    if ended.reason == "OOMKilled" {
        let message = format!(
            "the worker of Job '{}' was killed for memory {} times: raise worker.resources.limits.memory",
            job.name,
            job.failed.max(1)
        );
        return failure(Reason::OutOfMemory.as_str(), &message);
    }
    if ended.exit_code == 0 && ended.reason != "Evicted" {
        let message = format!("the worker ended without a report; {tail}");
        return failure(reasons::Reason::NoReport.as_str(), &message);
    }
    let reason =
        u8::try_from(ended.exit_code).ok().filter(|code| *code != 0).and_then(Reason::from_code);
    let word = reason.map_or(reasons::Reason::WorkerFailed.as_str(), Reason::as_str);
    let cause =
        if ended.reason.is_empty() { String::new() } else { format!(" ({})", ended.reason) };
    failure(
        word,
        &format!(
            "the worker of Job '{}' ended with exit code {}{cause}; {tail}",
            job.name, ended.exit_code
        ),
    )
}
