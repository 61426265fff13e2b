//! The tuner's end: which sessions there are, and each of them as a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;
use hone_driver::Target;

use super::{
    Announcement, Answered, BEAT, Backoff, FAULTS, LARGEST, Order, RESULTS, SESSIONS, SILENCE,
    WORK, json, key, names,
};
use crate::failure::{Failure, Result};
use crate::storage::Destination;
use crate::tune::board::Board;
use crate::tune::devices::Measurer;
use crate::tune::protocol::{Measured, Trials};
use crate::tune::store;

/// The sessions of one search.
#[derive(Debug)]
pub struct Fleet {
    store: Destination,
    /// Names this search's orders.
    run: String,
    next: AtomicU64,
    target: String,
    machine: String,
    threads: usize,
    timeout: Option<Duration>,
    /// What each session announced last, and whether it was decided on.
    seen: Mutex<BTreeMap<String, (Announcement, bool)>>,
    /// Sessions that had orders of this search.
    used: Mutex<BTreeSet<String>>,
}

impl Fleet {
    /// The sessions at a store, for code for `target` on so many threads of this machine or the board.
    pub fn new(
        store: Destination,
        (target, board): (&Target, Option<&Board>),
        threads: usize,
        timeout: Option<Duration>,
    ) -> Self {
        Self {
            store,
            run: super::unique(),
            next: AtomicU64::new(1),
            target: key(target),
            machine: store::measured_on(board),
            threads,
            timeout,
            seen: Mutex::default(),
            used: Mutex::default(),
        }
    }

    /// Sessions on machines as this one that have said that they are there since the last call, and were not given
    /// before: times on another kind of machine say nothing of this one, and a session of which only an old
    /// announcement is left is lost already.
    ///
    /// # Errors
    /// What the store refuses.
    pub fn newcomers(&self) -> Result<Vec<Announcement>> {
        let mut found = Vec::new();
        for name in names(&self.store, SESSIONS)? {
            let Some(announcement) = self.announcement(&name)? else { continue };
            if announcement.session != name {
                continue;
            }
            let fits = announcement.target == self.target && announcement.machine == self.machine;
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            match seen.get_mut(&name) {
                None => {
                    seen.insert(name, (announcement, false));
                }
                Some((before, taken)) if before.instance != announcement.instance => {
                    (*before, *taken) = (announcement, false);
                }
                Some((before, taken)) if before.beat != announcement.beat && !*taken => {
                    *taken = true;
                    if fits {
                        found.push(announcement);
                    } else {
                        eprintln!(
                            "note: session '{name}' is on another kind of machine, and is not used"
                        );
                    }
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    fn announcement(&self, session: &str) -> Result<Option<Announcement>> {
        let bytes = self.store.read(&format!("{SESSIONS}/{session}.json"), LARGEST)?;
        // What cannot be read is of another version, or of somebody else.
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// A session as a device.
    pub fn remote(&self, announcement: &Announcement) -> Remote<'_> {
        self.used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(announcement.session.clone());
        let (session, instance) = (announcement.session.clone(), announcement.instance.clone());
        Remote { fleet: self, session, instance }
    }

    /// A session is lost: it may come again, as one that beats.
    fn lose(&self, session: &str, instance: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(session).is_some_and(|(known, _)| known.instance == instance) {
            seen.remove(session);
            let _ = self.store.remove(&format!("{SESSIONS}/{session}.json"));
        }
    }

    /// Removes what this search left at the store. What cannot be removed harms nobody.
    pub fn clear(&self) {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for session in used {
            for folder in [WORK, RESULTS] {
                let folder = format!("{folder}/{session}");
                let orders = names(&self.store, &folder).unwrap_or_default().into_iter();
                for name in orders.filter(|name| name.starts_with(&self.run)) {
                    let _ = self.store.remove(&format!("{folder}/{name}.json"));
                }
            }
        }
    }
}

/// A session of the fleet. Several of one session may be used at once: the session does their rounds one by one, and so
/// need not wait for the next.
#[derive(Debug)]
pub struct Remote<'a> {
    fleet: &'a Fleet,
    session: String,
    instance: String,
}

impl Remote<'_> {
    /// Waits for an answer, for as long as the session beats.
    fn wait(&self, name: &str) -> Result<Answered> {
        let result = format!("{RESULTS}/{}/{name}.json", self.session);
        let (mut backoff, mut faults) = (Backoff::new(), 0);
        let (mut beat, mut beaten, mut looked) = (None, Instant::now(), Instant::now());
        loop {
            match self.fleet.store.read(&result, LARGEST) {
                Ok(Some(bytes)) => {
                    let _ = self.fleet.store.remove(&result);
                    return serde_json::from_slice(&bytes).map_err(|_| {
                        self.lost("its answer is not understood: it is of another version")
                    });
                }
                Ok(None) => faults = 0,
                Err(failure) => {
                    faults += 1;
                    if faults >= FAULTS {
                        return Err(failure);
                    }
                }
            }
            if looked.elapsed() >= BEAT {
                looked = Instant::now();
                let now = self.fleet.announcement(&self.session).ok().flatten();
                match now {
                    Some(now) if now.instance != self.instance => {
                        return Err(self.lost("another one of its name took over"));
                    }
                    Some(now) if beat != Some(now.beat) => {
                        (beat, beaten) = (Some(now.beat), Instant::now());
                    }
                    _ => {}
                }
            }
            if beaten.elapsed() >= SILENCE {
                return Err(self.lost("it has fallen silent"));
            }
            backoff.wait();
        }
    }

    fn lost(&self, why: &str) -> Failure {
        Failure::new(Reason::DeviceLost, format!("session '{}' is lost: {why}", self.session))
    }
}

impl Measurer for Remote<'_> {
    fn trials(&mut self, trials: Trials) -> Result<Vec<Measured>> {
        let count = trials.candidates.len();
        let number = self.fleet.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number:08}", self.fleet.run);
        let order = Order {
            target: self.fleet.target.clone(),
            threads: self.fleet.threads,
            timeout_milliseconds: self
                .fleet
                .timeout
                .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1)),
            trials,
        };
        let work = format!("{WORK}/{}/{name}.json", self.session);
        self.fleet.store.write_once(&work, &json(&order))?;
        let answered = self.wait(&name).inspect_err(|_| {
            // Nobody is to measure it any more.
            let _ = self.fleet.store.remove(&work);
            self.fleet.lose(&self.session, &self.instance);
        })?;
        match answered {
            Answered { refused: Some(refused), .. } => Err(self.lost(&refused)),
            Answered { measured, .. } if measured.len() == count => Ok(measured),
            Answered { .. } => Err(self.lost("it answered for another number of candidates")),
        }
    }
}
