//! The sessions of External devices in a pool's status: what the searches of runs told of them last.
//!
//! The operator reads no store, so it hears of sessions only while a run searches. Those of which nothing was heard for an hour
//! are dropped, and a list is bounded, so a status stays small whoever starts sessions.

use std::collections::BTreeMap;

use hone_artifact::progress::SessionSeen;
use hone_crds::device_pool::ExternalSession;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Most sessions that a status lists.
const MOST: usize = 16;
/// Seconds after which a session of which nothing was heard is dropped.
const FORGOTTEN: i64 = 3600;
/// Seconds by which a session must have been seen later for its time to be written.
const STEP: i64 = 60;

/// The list in the status before, brought up to date with what searches told and how many seconds ago. Of several searches that
/// tell of one session the latest counts, and one that sets it aside before one that does not.
pub(super) fn merged(
    before: &[ExternalSession],
    told: &[(SessionSeen, i64)],
    now: &Time,
) -> Vec<ExternalSession> {
    let mut latest: BTreeMap<&str, ExternalSession> = BTreeMap::new();
    for (session, ago) in told {
        let seconds = i64::try_from(session.seconds_ago).unwrap_or(i64::MAX).saturating_add(*ago);
        let seen = ExternalSession {
            name: session.name.clone(),
            kind: session.kind.clone(),
            last_seen: Time(earlier(now, seconds)),
            set_aside: session.aside.clone(),
        };
        let known = latest.get(session.name.as_str());
        let rank = |own: &ExternalSession| (own.set_aside.is_some(), own.last_seen.0);
        if known.is_none_or(|known| rank(known) < rank(&seen)) {
            latest.insert(&session.name, seen);
        }
    }
    let mut all: Vec<ExternalSession> = Vec::new();
    for own in before {
        all.push(match latest.remove(own.name.as_str()) {
            None => own.clone(),
            Some(seen) if is_news(own, &seen) => seen,
            Some(_) => own.clone(),
        });
    }
    all.extend(latest.into_values());
    all.retain(|own| seconds_between(&own.last_seen, now) < FORGOTTEN);
    all.sort_by(|a, b| b.last_seen.0.cmp(&a.last_seen.0).then(a.name.cmp(&b.name)));
    all.truncate(MOST);
    all
}

/// Whether what was told is worth a write of the status.
fn is_news(own: &ExternalSession, seen: &ExternalSession) -> bool {
    let same = (&own.kind, &own.set_aside) == (&seen.kind, &seen.set_aside);
    !same || seconds_between(&own.last_seen, &seen.last_seen) >= STEP
}

fn seconds_between(earlier: &Time, later: &Time) -> i64 {
    later.0.as_second() - earlier.0.as_second()
}

/// The whole second that lies so many seconds before: a status has no finer times.
fn earlier(now: &Time, seconds: i64) -> Timestamp {
    let second = now.0.as_second().saturating_sub(seconds);
    Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
}

/// What a pool says of its sessions. They are asked only while a run searches, so that none answers is no fault of the pool.
pub(super) fn note(sessions: &[ExternalSession]) -> String {
    let aside = sessions.iter().filter(|own| own.set_aside.is_some()).count();
    let known = sessions.len();
    format!(
        "{known} sessions are known, {aside} of them not used; they are asked while a TuningRun searches"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, seconds_ago: u64, aside: Option<&str>) -> (SessionSeen, i64) {
        let (name, aside) = (name.to_owned(), aside.map(str::to_owned));
        (SessionSeen { name, kind: "pi4".to_owned(), seconds_ago, aside }, 1)
    }

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap_or(Timestamp::MIN))
    }

    fn names(sessions: &[ExternalSession]) -> Vec<&str> {
        sessions.iter().map(|own| own.name.as_str()).collect()
    }

    #[test]
    fn what_searches_tell_last_counts() {
        let first = merged(&[], &[told("a", 3, None), told("b", 1, None)], &at(10_000));
        assert_eq!(names(&first), ["b", "a"]);
        assert_eq!(first[1].last_seen, at(9_996));
        // A beat is no news, a minute is, and so is a reason.
        let now = at(10_030);
        assert_eq!(merged(&first, &[told("a", 0, None), told("b", 0, None)], &now), first);
        let later = merged(&first, &[told("a", 0, None)], &at(10_100));
        assert_eq!((names(&later), &later[0].last_seen), (vec!["a", "b"], &at(10_099)));
        let both = [told("a", 0, Some("it hangs")), told("a", 0, None)];
        let aside = merged(&first, &both, &now);
        assert_eq!(aside[0].set_aside.as_deref(), Some("it hangs"));
        assert!(note(&aside).starts_with("2 sessions are known, 1 of them not used"));
        assert_eq!(merged(&aside, &[told("a", 0, None)], &now)[0].set_aside, None);
    }

    #[test]
    fn the_list_is_bounded_and_forgets() {
        let many: Vec<(SessionSeen, i64)> =
            (0..40).map(|index| told(&format!("s{index:02}"), index, None)).collect();
        let listed = merged(&[], &many, &at(10_000));
        assert_eq!((listed.len(), listed[0].name.as_str()), (MOST, "s00"));
        assert!(merged(&listed, &[], &at(10_000 + 15)) == listed);
        assert!(merged(&listed, &[], &at(14_000)).is_empty());
    }
}
