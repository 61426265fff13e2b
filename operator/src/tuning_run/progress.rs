//! What the pod that searches posted, in a run's status.

use hone_artifact::progress::{Progress, SessionSeen};
use hone_artifact::report::is_digest;
use hone_crds::status::Failure;
use hone_crds::tuning_run::{Best, Checkpoint, SearchProgress, Trials};
use hone_crds::{Duration, Phase, TuningRunStatus};

use super::result::count;
use crate::children::bounds::bounded;
use crate::children::ended::failure;
use crate::children::reasons::Reason;

/// Takes what a pod posted into a status: counters, how far it is, and what its log holds for compilations. A status that speaks of no search under way says
/// nothing of that; one of a search whose pod has not posted to this replica yet keeps what it said.
pub fn fill(status: &mut TuningRunStatus, pool: &str, posted: Option<&Progress>) {
    if status.phase != Phase::Running {
        status.progress = None;
        return;
    }
    let Some(posted) = posted else { return };
    if let (None, Some(sessions)) = (&status.failure, &posted.sessions) {
        status.failure = unanswered(pool, sessions);
    }
    // Nothing is expected before the search begins.
    if posted.expected == 0 {
        return;
    }
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

/// What a run waits for whose pool has no session that answers.
fn unanswered(pool: &str, sessions: &[SessionSeen]) -> Option<Failure> {
    if sessions.iter().any(SessionSeen::answers) {
        return None;
    }
    let aside = sessions.iter().filter_map(|own| {
        let why = own.aside.as_deref()?;
        Some(format!("; '{}' is not used: {why}", own.name))
    });
    let message = format!(
        "no session of pool '{pool}' answers: start one with hone session --store URI --pool {pool}{}",
        aside.collect::<String>()
    );
    Some(failure(Reason::WaitingForSession.as_str(), bounded(&message, LONGEST)))
}

/// Most bytes of what a run says that it waits for.
const LONGEST: usize = 900;

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
