//! Which sessions there are, as their announcements at the store say.
//!
//! A list of the announcements tells which were written again since the last look, so what one says is read only now and
//! then: with many sessions every ten seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Announcement, BEAT, SILENCE, is_name};
use crate::storage::Entry;

/// Looks without a beat before a session counts as lost, however long they take.
const LOOKS: usize = 5;
/// Sessions whose announcements are read at every beat.
const FEW: u32 = 16;
/// Longest time between two readings of an announcement that is written all the time, in beats.
const LONGEST_UNREAD: u32 = 10;

/// The sessions at a store.
#[derive(Default)]
pub(super) struct Sessions(pub(super) BTreeMap<String, Seen>);

/// A session as it was seen last.
pub(super) struct Seen {
    pub(super) announcement: Announcement,
    /// That of the announcement's object.
    version: String,
    /// When the announcement was read.
    read: Instant,
    /// Whether it was written again since it was first seen: of a session that is lost an announcement may be left.
    pub(super) beats: bool,
    /// When it was.
    pub(super) at: Instant,
    /// Looks since then.
    unchanged: usize,
    /// Since when it does the order that it does, or none.
    pub(super) doing_since: Instant,
    /// Whether it was said that it is not used.
    pub(super) noted: bool,
}

impl Seen {
    fn new(announcement: Announcement, version: String) -> Self {
        let now = Instant::now();
        Self {
            announcement,
            version,
            read: now,
            beats: false,
            at: now,
            unchanged: 0,
            doing_since: now,
            noted: false,
        }
    }

    /// Whether it is there. A search that looks rarely, because it is busy, does not take that for silence.
    pub(super) fn answers(&self) -> bool {
        self.beats && (self.at.elapsed() < SILENCE || self.unchanged < LOOKS)
    }
}

impl Sessions {
    /// Takes down a list of the announcements. Gives the names and versions of those that are to be read.
    pub(super) fn beat(&mut self, entries: Vec<Entry>) -> Vec<(String, String)> {
        let each = u32::try_from(self.0.len()).unwrap_or(u32::MAX) / FEW;
        let unread: Duration = BEAT * each.min(LONGEST_UNREAD);
        self.0.values_mut().for_each(|own| own.unchanged += 1);
        let mut due = Vec::new();
        for Entry { path, version, .. } in entries {
            let Some(name) = path.strip_suffix(".json").filter(|name| is_name(name)) else {
                continue;
            };
            if let Some(own) = self.0.get_mut(name) {
                if own.version == version {
                    continue;
                }
                (own.beats, own.at, own.unchanged) = (true, Instant::now(), 0);
                own.version.clone_from(&version);
                if own.read.elapsed() < unread {
                    continue;
                }
            }
            due.push((name.to_owned(), version));
        }
        due
    }

    /// Takes down what a session announces: whether nothing was known of it, because it is new or began anew.
    pub(super) fn announced(&mut self, announcement: Announcement, version: String) -> bool {
        let name = announcement.session.clone();
        let known = self.0.get_mut(&name);
        match known.filter(|own| own.announcement.instance == announcement.instance) {
            Some(own) => {
                own.read = Instant::now();
                if own.announcement.doing != announcement.doing {
                    own.doing_since = own.read;
                }
                own.announcement = announcement;
                false
            }
            None => {
                self.0.insert(name, Seen::new(announcement, version));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::SystemTime;

    fn entry(name: &str, version: u32) -> Entry {
        let (version, modified) = (version.to_string(), SystemTime::UNIX_EPOCH);
        Entry { path: format!("{name}.json"), version, modified }
    }

    fn announcement(name: &str, instance: &str) -> Announcement {
        let text = format!(
            r#"{{"session": "{name}", "instance": "{instance}", "machine": "", "target": "", "beat": 1}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_session_is_there_once_it_beats_again() {
        let mut sessions = Sessions::default();
        let due = sessions.beat(vec![entry("a", 1), entry(".a", 1), entry("B", 1)]);
        assert_eq!(due, [("a".to_owned(), "1".to_owned())]);
        assert!(sessions.announced(announcement("a", "i"), "1".to_owned()));
        assert!(sessions.beat(vec![entry("a", 1)]).is_empty());
        assert!(!sessions.0["a"].answers());
        // One of few is read at every beat.
        assert_eq!(sessions.beat(vec![entry("a", 2)]).len(), 1);
        assert!(sessions.0["a"].answers());
        assert!(!sessions.announced(announcement("a", "i"), "2".to_owned()));
        assert!(sessions.announced(announcement("a", "j"), "2".to_owned()));
        assert!(!sessions.0["a"].answers());
    }

    #[test]
    fn of_many_sessions_announcements_are_read_now_and_then() {
        let mut sessions = Sessions::default();
        let names: Vec<String> = (0..200).map(|own| format!("s{own}")).collect();
        let all = |version| names.iter().map(|name| entry(name, version)).collect::<Vec<_>>();
        for (name, version) in sessions.beat(all(1)) {
            sessions.announced(announcement(&name, "i"), version);
        }
        assert!(sessions.beat(all(2)).is_empty());
        assert!(sessions.0.values().all(Seen::answers));
    }
}
