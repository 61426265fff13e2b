//! Reads what a worker left behind into a run's status.

use hone_artifact::report::{TuningReport, is_digest};
use hone_artifact::termination::Termination;
use hone_crds::status::Failure;
use hone_crds::tuning_run::{Best, Checkpoint, Trials};
use hone_crds::{Duration, TuningRunStatus};

use crate::children::bounds::bounded;
use crate::children::ended::{Ended, failure, reported, without_report};
use crate::children::jobs::JobView;
use crate::children::reasons::Reason;

/// Most bytes of the words why a search ended.
const ENDED: usize = 128;

/// Takes what a worker found into `status`: as much as it tells, whether or not it failed.
///
/// # Errors
/// Why the worker failed, or why its report cannot be believed.
pub fn take(status: &mut TuningRunStatus, ended: &Ended, job: &JobView) -> Result<(), Failure> {
    let Some(report) = &ended.report else { return Err(without_report(ended, job)) };
    if let Some(why) = improper(report) {
        let message = format!("the worker's report is refused: {why}; please report this");
        return Err(failure(Reason::InvalidReport.as_str(), &message));
    }
    status.model_digest = report.model_digest.clone().or(status.model_digest.take());
    status.fingerprint = report.fingerprint.clone().or(status.fingerprint.take());
    if let Some(tuning) = &report.tuning {
        fill(status, tuning);
    }
    match &report.failure {
        Some(why) => Err(reported(why, job)),
        None if report.tuning.is_none() => {
            let message =
                "the worker says that it succeeded but not how far the run is: please report this";
            Err(failure(Reason::NoReport.as_str(), message))
        }
        None => Ok(()),
    }
}

/// A counter as a status has it.
pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn fill(status: &mut TuningRunStatus, found: &TuningReport) {
    status.trials = Some(Trials { measured: count(found.measured), failed: count(found.failed) });
    if let (Some(segment), Some(digest)) = (found.segment, &found.digest) {
        status.checkpoint = Some(Checkpoint { segment: count(segment), digest: digest.clone() });
    }
    if let Some(best) = found.best {
        status.best = Some(Best {
            latency: Duration::from_nanos(best),
            untuned: found.untuned.map(Duration::from_nanos),
            programs: count(found.winners),
        });
    }
    status.ended = found.ended.as_ref().map(|ended| bounded(ended, ENDED).to_owned());
}

/// What is wrong with the fields of a report, which comes from a pod that a user's model ran in.
fn improper(report: &Termination) -> Option<String> {
    let segment = report.tuning.as_ref().and_then(|tuning| tuning.digest.as_ref());
    let digests = [
        ("modelDigest", report.model_digest.as_ref()),
        ("fingerprint", report.fingerprint.as_ref()),
        ("tuning.digest", segment),
    ];
    let wrong = digests.into_iter().find(|(_, value)| value.is_some_and(|own| !is_digest(own)));
    wrong.map(|(name, _)| format!("{name} is no SHA-256 digest"))
}
