//! The conditions of everything that does its work in Jobs, as kstatus and pipelines read them.

use hone_crds::Phase;
use hone_crds::conditions::{FINISHED, READY, RECONCILING, STALLED, SUCCEEDED, State, set};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Sets the conditions of an object in `phase`, whose result may be `ready` before all work is done; `why` is the reason
/// and the message of `Ready`.
pub fn stand(
    conditions: &mut Vec<Condition>,
    (phase, ready): (Phase, bool),
    why: (&str, &str),
    generation: Option<i64>,
    now: &Time,
) {
    let (reason, message) = why;
    let (succeeded, failed) = (phase == Phase::Succeeded, phase == Phase::Failed);
    let finished = succeeded || failed;
    let suspended = phase == Phase::Suspended;
    let decided = if finished { State::from(succeeded) } else { State::Unknown };
    for (kind, state) in [
        (READY, State::from(ready)),
        (RECONCILING, State::from(!finished && !suspended)),
        (STALLED, State::from(failed)),
        (FINISHED, State::from(finished)),
        (SUCCEEDED, decided),
    ] {
        // A long message is said once where people look, and where kstatus does.
        let said = kind == READY || state == State::True;
        set(conditions, kind, state, reason, if said { message } else { "" }, generation, now);
    }
}
