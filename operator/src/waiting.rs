//! Since when each object waits for its reconcile.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// First event of each object since its last reconcile, failures in a row, and what was written
/// and has not come back from the watch.
#[derive(Debug, Default)]
pub struct Waiting {
    since: Mutex<HashMap<String, Instant>>,
    failures: Mutex<HashMap<String, u32>>,
    written: Mutex<HashMap<String, u64>>,
}

/// The map behind a lock, even where a thread that held it panicked: it holds only hints.
fn open<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    /// An event for `key` came in.
    pub fn event(&self, key: String) {
        open(&self.since).entry(key).or_insert_with(Instant::now);
    }

    /// How many objects wait.
    pub fn depth(&self) -> usize {
        open(&self.since).len()
    }

    /// The reconcile of `key` starts: how long it waited, and how many others wait; nothing for
    /// objects whose events are not told.
    pub fn start(&self, key: &str) -> (Option<Duration>, Option<usize>) {
        let mut since = open(&self.since);
        let waited = since.remove(key).map(|at| at.elapsed());
        (waited, waited.map(|_| since.len()))
    }

    /// The object is gone.
    pub fn gone(&self, key: &str) {
        self.start(key);
        self.succeeded(key);
    }

    /// The reconcile of `key` went well.
    pub fn succeeded(&self, key: &str) {
        open(&self.failures).remove(key);
    }

    /// The reconcile of `key` failed: how long to wait, doubled for each failure in a row up to
    /// a minute and spread by `random` in `[0, 1)`.
    pub fn failed(&self, key: &str, random: f64) -> Duration {
        let mut failures = open(&self.failures);
        let count = failures.entry(key.to_owned()).or_insert(0);
        let base = 0.25 * f64::from(1 << (*count).min(8));
        *count += 1;
        Duration::from_secs_f64(base.min(60.0) * (0.5 + random))
    }
}

impl Waiting {
    /// The object `uid` was written and has this resource version now.
    pub fn wrote(&self, uid: &str, resource_version: Option<&str>) {
        if let Some(version) = resource_version.and_then(|version| version.parse().ok()) {
            open(&self.written).insert(uid.to_owned(), version);
        }
    }

    /// Whether `resource_version` is older than what was written last: planning from it would
    /// only end in a conflict. The watch brings the newer one and wakes the object again.
    pub fn is_stale(&self, uid: &str, resource_version: Option<&str>) -> bool {
        let mut written = open(&self.written);
        let seen: Option<u64> = resource_version.and_then(|version| version.parse().ok());
        match (written.get(uid), seen) {
            (Some(written), Some(seen)) if seen < *written => true,
            (Some(_), _) => {
                written.remove(uid);
                false
            }
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_grows_and_resets() {
        let waiting = Waiting::default();
        let first = waiting.failed("a", 0.5);
        let second = waiting.failed("a", 0.5);
        assert!(second > first);
        for _ in 0..20 {
            assert!(waiting.failed("a", 0.99) <= Duration::from_secs(96));
        }
        waiting.succeeded("a");
        assert_eq!(waiting.failed("a", 0.5), first);
    }

    #[test]
    fn what_was_written_is_waited_for() {
        let waiting = Waiting::default();
        assert!(!waiting.is_stale("a", Some("7")));
        waiting.wrote("a", Some("9"));
        assert!(waiting.is_stale("a", Some("7")));
        assert!(!waiting.is_stale("a", Some("9")));
        assert!(open(&waiting.written).is_empty());
    }

    #[test]
    fn waits_from_the_first_event() {
        let waiting = Waiting::default();
        waiting.event("a".into());
        waiting.event("a".into());
        assert!(waiting.start("a").0.is_some());
        assert!(waiting.start("a").0.is_none());
    }
}
