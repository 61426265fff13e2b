//! The search's end: which sessions there are, which of them it believes, and what they are worth to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hone_artifact::exit_code::{ErrorClass, Reason};
use hone_artifact::progress::{MOST_SESSIONS, SessionSeen};
use hone_artifact::report::is_digest;
use hone_driver::Target;

use super::answers::Answers;
use super::artifacts::Sent;
use super::leftovers;
use super::remote::Remote;
use super::seen::{Seen, Sessions};
use super::trust::{Trust, Verdict};
use super::{Announcement, BEAT, LARGEST, POLL, RESULTS, SESSIONS, WORK, key, names};
use crate::failure::{Failure, Result};
use crate::storage::Destination;
use crate::tune::interrupt::Interrupt;
use crate::tune::protocol::{Measured, Trials};

/// Threads that read announcements.
const READERS: usize = 8;
/// Time between two lines that say that no session answers.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// What a search asks of its sessions.
#[derive(Clone, Debug)]
pub struct Search {
    /// What code is made for, as records have it.
    pub target: String,
    /// What candidates run on, as records have it. `None` where the search measures nothing itself: the kind of machine that
    /// most of the first sessions are of is taken.
    pub machine: Option<String>,
    /// Threads to measure on; 0 for all.
    pub threads: usize,
    /// Longest time of a candidate; what the measuring process allows where it is not given.
    pub timeout: Option<Duration>,
    /// Longest time without a session that answers, where the search measures nothing itself.
    pub patience: Duration,
    /// Longest time that a session may take for one order.
    pub answer: Duration,
    /// How far a session's times may move, as a share: [`super::DRIFT`] where nothing says.
    pub drift: f64,
    /// Whether the search is to end.
    pub interrupt: Interrupt,
}

impl Search {
    /// For code for `target`, on machines of the kind of `machine`, with usual bounds.
    pub fn new(target: &Target, machine: Option<String>) -> Self {
        Self {
            target: key(target),
            machine,
            threads: 1,
            timeout: None,
            patience: super::PATIENCE,
            answer: super::ANSWER,
            drift: super::DRIFT,
            interrupt: Interrupt::default(),
        }
    }
}

/// Is told which sessions there are, whenever the search looks.
pub type Tell = Box<dyn Fn(&[SessionSeen]) + Send + Sync>;

/// The sessions of one search.
pub struct Fleet {
    pub(super) store: Destination,
    /// Names this search's orders.
    pub(super) run: String,
    pub(super) next: AtomicU64,
    pub(super) search: Search,
    tell: Option<Tell>,
    machine: OnceLock<String>,
    /// Whether the search has a machine of its own.
    alone: bool,
    /// What each session announced last.
    seen: Mutex<Sessions>,
    /// When announcements were looked at last.
    looked: Mutex<Option<Instant>>,
    answers: Answers,
    /// Sessions that had orders of this search.
    used: Mutex<BTreeSet<String>>,
    trust: Mutex<Trust>,
    sent: Mutex<Sent>,
}

/// How a session was seen last.
pub(super) struct State {
    /// Tells it from others of its name.
    pub(super) instance: String,
    /// Whether it is there.
    pub(super) answers: bool,
    /// Since when it does the order that it does, or none.
    pub(super) doing_since: Instant,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// The sessions at a store; `tell` hears of them.
    pub fn new(store: Destination, search: Search, tell: Option<Tell>) -> Self {
        let machine = search.machine.clone().map_or_else(OnceLock::new, OnceLock::from);
        Self {
            store,
            run: super::unique(),
            next: AtomicU64::new(1),
            tell,
            alone: search.machine.is_none(),
            machine,
            seen: Mutex::default(),
            looked: Mutex::default(),
            answers: Answers::default(),
            used: Mutex::default(),
            trust: Mutex::new(Trust::new(search.drift)),
            sent: Mutex::default(),
            search,
        }
    }

    /// Removes what others left at the store long ago, those that were killed.
    pub(crate) fn remove_leftovers(&self) {
        let removed = leftovers::remove(&self.store, SystemTime::now());
        if removed > 0 {
            eprintln!(
                "note: {removed} objects were removed that searches before left at the store"
            );
        }
    }

    /// The kind of machine that the search measures on, as records have it; `None` until a session has answered.
    pub fn machine(&self) -> Option<&str> {
        self.machine.get().map(String::as_str)
    }

    /// Sessions that answer, are on the kind of machine that the search measures on, and are believed: times on another kind
    /// say nothing of this one.
    ///
    /// # Errors
    /// What the store refuses.
    pub fn believed(&self) -> Result<Vec<Announcement>> {
        self.look()?;
        self.choose_machine();
        let (seen, trust) = (locked(&self.seen), locked(&self.trust));
        let fits = |own: &&Seen| {
            own.answers()
                && self.misfit(&own.announcement).is_none()
                && trust.aside(&own.announcement.session).is_none()
        };
        Ok(seen.0.values().filter(fits).map(|own| own.announcement.clone()).collect())
    }

    /// The first session that is believed, as soon as there is one.
    ///
    /// # Errors
    /// `NoSession` where there is none within the time that the search waits, or until it is to end; what a
    /// user has to mend, such as credentials that the store refuses.
    pub fn first(&self) -> Result<Announcement> {
        let (begin, mut said) = (Instant::now(), None::<Instant>);
        loop {
            match self.believed().map(|sessions| sessions.into_iter().next()) {
                Ok(Some(first)) => return Ok(first),
                Err(failure) if failure.reason.class() == Some(ErrorClass::User) => {
                    return Err(failure);
                }
                // A store that fails for a while hides sessions and does no other harm.
                Ok(None) | Err(_) => {}
            }
            let waited = begin.elapsed();
            if self.gives_up(waited) {
                return Err(self.nobody(waited));
            }
            let is_due = said.map_or(waited > 3 * super::BEAT, |at| at.elapsed() >= BETWEEN_LINES);
            if is_due {
                said = Some(Instant::now());
                eprintln!("note: no session answers at '{}' so far", self.store.uri(""));
            }
            std::thread::sleep(POLL[1]);
        }
    }

    /// Whether the search ends after it has waited for a session for so long.
    pub(crate) fn gives_up(&self, waited: Duration) -> bool {
        waited >= self.search.patience || self.search.interrupt.is_asked()
    }

    /// That no session answers, with what is known of those that are not used.
    pub(crate) fn nobody(&self, waited: Duration) -> Failure {
        let others = self.report().into_iter().filter_map(|own| Some((own.name, own.aside?)));
        let others: Vec<String> = others.map(|(name, why)| format!("'{name}': {why}")).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(" (not used: {})", others.join("; ")),
        };
        let message = format!(
            "no session for {} answered at '{}' within {} s{others}: start one there with hone session; what was measured is kept",
            self.search.target,
            self.store.uri(""),
            waited.as_secs(),
        );
        Failure::new(Reason::NoSession, message)
    }

    /// Looks which sessions there are, and reads what those announce that may say something new.
    fn look(&self) -> Result<()> {
        // Whoever comes while another thread looks goes on with what was seen before.
        let Ok(mut looked) = self.looked.try_lock() else { return Ok(()) };
        if looked.is_some_and(|at| at.elapsed() < BEAT) {
            return Ok(());
        }
        let entries = self.store.entries(SESSIONS)?;
        let due = locked(&self.seen).beat(entries);
        let each = due.len().div_ceil(READERS).max(1);
        let read = std::thread::scope(|scope| {
            let start = |part| scope.spawn(move || self.read_announcements(part));
            let readers: Vec<_> = due.chunks(each).map(start).collect();
            let lost = |_| Err(Failure::internal("a thread that reads announcements ended"));
            readers.into_iter().try_for_each(|own| own.join().unwrap_or_else(lost))
        });
        read?;
        *looked = Some(Instant::now());
        self.note_misfits();
        if let Some(tell) = &self.tell {
            tell(&self.report());
        }
        Ok(())
    }

    /// Reads announcements, given by the names of their sessions and by their versions.
    fn read_announcements(&self, due: &[(String, String)]) -> Result<()> {
        for (name, version) in due {
            let bytes = self.store.read(&format!("{SESSIONS}/{name}.json"), LARGEST)?;
            // What cannot be read is of another version, or of somebody else.
            let announcement: Option<Announcement> =
                bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            let Some(announcement) = announcement.filter(|own| own.session == *name) else {
                continue;
            };
            if locked(&self.seen).announced(announcement, version.clone()) {
                locked(&self.trust).forget(name);
            }
        }
        Ok(())
    }

    /// Waits a moment for the result `name`; whether it is there. One of the threads that wait looks for all of them, also
    /// which sessions there are.
    ///
    /// # Errors
    /// A store that fails time after time.
    pub(super) fn wait(&self, name: &str) -> Result<bool> {
        self.answers.wait(name, || {
            self.look()?;
            let found = self.store.entries(RESULTS)?.into_iter();
            let ours = found.filter_map(|entry| {
                let name = entry.path.rsplit('/').next()?.strip_suffix(".json")?;
                name.starts_with(&self.run).then(|| name.to_owned())
            });
            Ok(ours.collect())
        })
    }

    /// How a session was seen last; `None` for one that is lost.
    pub(super) fn state(&self, session: &str) -> Option<State> {
        let seen = locked(&self.seen);
        let own = seen.0.get(session)?;
        let instance = own.announcement.instance.clone();
        Some(State { instance, answers: own.answers(), doing_since: own.doing_since })
    }

    fn note_misfits(&self) {
        for (name, own) in &mut locked(&self.seen).0 {
            let Some(why) = self.misfit(&own.announcement).filter(|_| own.beats && !own.noted)
            else {
                continue;
            };
            own.noted = true;
            eprintln!("note: session '{name}' {why}, and is not used");
        }
    }

    /// Takes the kind of machine that most sessions are of, where the search has none yet.
    fn choose_machine(&self) {
        if self.machine.get().is_some() {
            return;
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for own in locked(&self.seen).0.values() {
            if own.answers() && self.misfit(&own.announcement).is_none() {
                *counts.entry(own.announcement.machine.clone()).or_default() += 1;
            }
        }
        // Of equals the last by name, so that it is the same one the next time.
        if let Some((machine, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            let _ = self.machine.set(machine);
        }
    }

    /// Why a session is of no use to this search, where it is not.
    fn misfit(&self, own: &Announcement) -> Option<&'static str> {
        // Whatever such a session measured could not be recorded, and no report of the search would be taken.
        if !is_digest(&own.machine) {
            return Some("does not say by a SHA-256 digest what machine it is on");
        }
        if own.target != self.search.target {
            return Some("is on another kind of machine: it measures code for another target");
        }
        if self.machine.get().is_some_and(|machine| *machine != own.machine) {
            return Some("is on another kind of machine");
        }
        (self.alone && !own.compares).then_some("is of an older version that compares no networks")
    }

    /// Which sessions there are: those that were seen last first, up to [`MOST_SESSIONS`].
    fn report(&self) -> Vec<SessionSeen> {
        let (seen, trust) = (locked(&self.seen), locked(&self.trust));
        let of = |(name, own): (&String, &Seen)| {
            let aside = trust.aside(name).or_else(|| self.misfit(&own.announcement));
            SessionSeen {
                name: name.clone(),
                kind: own.announcement.kind.chars().take(63).collect(),
                seconds_ago: own.at.elapsed().as_secs(),
                aside: aside.map(str::to_owned),
            }
        };
        let mut report: Vec<SessionSeen> =
            seen.0.iter().filter(|(_, own)| own.beats).map(of).collect();
        report.sort_by_key(|own| own.seconds_ago);
        report.truncate(MOST_SESSIONS);
        report
    }

    /// A session as a device.
    pub fn remote(&self, announcement: &Announcement) -> Remote<'_> {
        locked(&self.used).insert(announcement.session.clone());
        Remote::new(self, announcement)
    }

    /// A session is lost: it may come again, as one that beats.
    pub(super) fn lose(&self, session: &str, instance: &str) {
        let mut seen = locked(&self.seen);
        if seen.0.get(session).is_some_and(|known| known.announcement.instance == instance) {
            seen.0.remove(session);
            let _ = self.store.remove(&format!("{SESSIONS}/{session}.json"));
        }
    }

    /// Why a session is set aside, where it is.
    pub fn aside(&self, session: &str) -> Option<String> {
        locked(&self.trust).aside(session).map(str::to_owned)
    }

    /// A session is not used any more.
    pub(super) fn set_aside(&self, session: &str, why: &str) {
        locked(&self.trust).set_aside(session, why);
    }

    pub(super) fn judge(&self, session: &str, asked: &Trials, found: &[Measured]) -> Verdict {
        locked(&self.trust).judge(session, asked, found)
    }

    /// An answer of a session, or of this machine under another name, fits what is known.
    pub(crate) fn fits(&self, session: &str, asked: &Trials, found: &[Measured]) {
        locked(&self.trust).fits(session, asked, found);
    }

    /// A doubt about a session: whether it is set aside for it.
    pub(super) fn doubt(&self, session: &str, why: &str) -> bool {
        locked(&self.trust).doubt(session, why)
    }

    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts an artifact where sessions find it; its name.
    pub(super) fn send(&self, path: &Path) -> Result<String> {
        locked(&self.sent).send(&self.store, &self.run, path)
    }

    /// Removes what this search left at the store. What cannot be removed harms nobody.
    pub fn clear(&self) {
        let used = locked(&self.used).clone();
        for session in used {
            for folder in [WORK, RESULTS] {
                let folder = format!("{folder}/{session}");
                let orders = names(&self.store, &folder).unwrap_or_default().into_iter();
                for name in orders.filter(|name| name.starts_with(&self.run)) {
                    let _ = self.store.remove(&format!("{folder}/{name}.json"));
                }
            }
        }
        locked(&self.sent).clear(&self.store);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.clear();
    }
}
