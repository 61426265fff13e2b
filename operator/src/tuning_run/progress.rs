//! What the pod that searches posted, in a run's status.

use hone_artifact::progress::Progress;
use hone_crds::tuning_run::{Best, Checkpoint, SearchProgress, Trials};
use hone_crds::{Duration, Phase, TuningRunStatus};

use super::result::count;
use crate::children::ended::is_digest;

/// Takes what a pod posted into a status: counters, how far it is, and what its log holds for compilations. A status that speaks of no search under way says
/// nothing of that; one of a search whose pod has not posted to this replica yet keeps what it said.
pub fn fill(status: &mut TuningRunStatus, posted: Option<&Progress>) {
    if status.phase != Phase::Running {
        status.progress = None;
        return;
    }
    let Some(posted) = posted else { return };
    status.trials = Some(Trials { measured: count(posted.measured), failed: count(posted.failed) });
    if let Some(found) = posted.revision.as_ref().filter(|found| is_digest(&found.digest)) {
        let (segment, digest) = (count(found.segment), found.digest.clone());
        status.checkpoint = Some(Checkpoint { segment, digest });
        status.best = Some(Best {
            latency: Duration::from_nanos(found.best),
            untuned: Some(Duration::from_nanos(found.untuned)),
            programs: count(found.winners),
        });
    }
    status.progress = Some(SearchProgress {
        // A share, so it fits.
        used_percent: (posted.used * 100.0).floor().clamp(0.0, 100.0) as i32,
        expected: Duration::from_nanos(posted.expected),
        untuned: Duration::from_nanos(posted.untuned),
    });
}

/// What a run that is at work says of itself.
pub fn note(status: &TuningRunStatus) -> String {
    let Some(progress) = &status.progress else { return "a worker is at work".to_owned() };
    let trials = status.trials.clone().unwrap_or_default();
    format!(
        "{} trials, {} % of spec.stop; {} expected, {} without tuning",
        trials.measured + trials.failed,
        progress.used_percent,
        progress.expected,
        progress.untuned
    )
}
