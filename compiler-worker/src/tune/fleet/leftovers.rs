//! What searches and sessions that were killed left at the store: artifacts, orders, answers and announcements. Nobody asks
//! for them any more, and artifacts are as large as networks are, so a search that begins there removes what is old.

use std::time::{Duration, SystemTime};

use super::artifacts::ARTIFACTS;
use super::{RESULTS, SESSIONS, WORK};
use crate::storage::Destination;

/// Time after which nobody asks for an object any more: an order has been answered or given up long before
/// ([`super::ANSWER`], or as long as somebody says a session may take), and a session announces itself every second.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes what is old at `now`; how many objects that were. What cannot be listed or removed stays, and harms nobody.
pub(super) fn remove(store: &Destination, now: SystemTime) -> usize {
    let mut removed = 0;
    for folder in [ARTIFACTS, WORK, RESULTS, SESSIONS] {
        for entry in store.entries(folder).unwrap_or_default() {
            // Times are the store's: one that lies ahead is of something new.
            let age = now.duration_since(entry.modified).unwrap_or_default();
            if age >= OLD && store.remove(&format!("{folder}/{}", entry.path)).is_ok() {
                removed += 1;
            }
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_older_than_a_day_goes_and_all_else_stays() {
        let place = tempfile::tempdir().unwrap();
        let store = Destination::Folder(place.path().to_path_buf());
        let names = [
            "artifacts/a-1.hone",
            "work/one/a-1.json",
            "results/one/a-1.json",
            "sessions/one.json",
        ];
        for name in names {
            store.write_once(name, b"{}").unwrap();
        }
        store.write_once("segments/1.jsonl", b"{}").unwrap();
        let after = |hours: u64| SystemTime::now() + Duration::from_secs(hours * 60 * 60);
        assert_eq!(remove(&store, after(23)), 0);
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(remove(&store, SystemTime::UNIX_EPOCH), 0);
        assert_eq!(remove(&store, after(25)), names.len());
        assert!(names.iter().all(|name| store.read(name, 10).unwrap().is_none()));
        assert!(store.read("segments/1.jsonl", 10).unwrap().is_some());
    }
}
