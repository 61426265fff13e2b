//! Waiting for answers: of all threads that wait for one, one looks at the store for all of them. So what a search costs
//! the store does not grow with its sessions: it is one list of results and one of sessions, a few times a second.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::tuner::locked;
use super::{FAULTS, POLL};
use crate::failure::Result;

/// Which results lie at the store.
#[derive(Default)]
pub(super) struct Answers {
    /// Names of the results that were there at the last look.
    there: Mutex<HashSet<String>>,
    changed: Condvar,
    looking: Mutex<Looking>,
}

/// How the store is looked at.
struct Looking {
    /// When that was done last.
    at: Option<Instant>,
    /// Time to the next look.
    pause: Duration,
    /// Looks in a row that failed.
    faults: usize,
}

impl Default for Looking {
    fn default() -> Self {
        Self { at: None, pause: POLL[0], faults: 0 }
    }
}

impl Answers {
    /// Whether the result `name` is there, after a while in which this thread or another one may have looked; `look` gives
    /// the names of those that are.
    ///
    /// # Errors
    /// What `look` gives time after time.
    pub(super) fn wait(
        &self,
        name: &str,
        look: impl FnOnce() -> Result<HashSet<String>>,
    ) -> Result<bool> {
        if locked(&self.there).contains(name) {
            return Ok(true);
        }
        if let Ok(mut looking) = self.looking.try_lock() {
            let left =
                looking.at.map_or(Duration::ZERO, |at| looking.pause.saturating_sub(at.elapsed()));
            std::thread::sleep(left);
            let found = look();
            looking.at = Some(Instant::now());
            self.note(&mut looking, found)?;
            return Ok(locked(&self.there).contains(name));
        }
        let there = locked(&self.there);
        let waited = self.changed.wait_timeout(there, POLL[1]);
        let (there, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Ok(there.contains(name))
    }

    /// Takes down a look.
    fn note(&self, looking: &mut Looking, found: Result<HashSet<String>>) -> Result<()> {
        match found {
            Ok(found) => {
                let mut there = locked(&self.there);
                // Quick while answers come, slow where none does.
                let is_new = found.iter().any(|name| !there.contains(name));
                let longer = (looking.pause * 3 / 2).min(POLL[1]);
                looking.pause = if is_new { POLL[0] } else { longer };
                looking.faults = 0;
                *there = found;
                if is_new {
                    self.changed.notify_all();
                }
                Ok(())
            }
            Err(failure) => {
                looking.faults += 1;
                looking.pause = POLL[1];
                if looking.faults >= FAULTS { Err(failure) } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::failure::Failure;
    use hone_artifact::exit_code::Reason;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_thread_looks_for_all() {
        let (answers, looks) = (Answers::default(), AtomicUsize::new(0));
        let begin = Instant::now();
        let look = || {
            looks.fetch_add(1, Ordering::Relaxed);
            let is_there = begin.elapsed() > Duration::from_millis(600);
            Ok((0..if is_there { 40 } else { 0 }).map(|name: usize| name.to_string()).collect())
        };
        std::thread::scope(|scope| {
            for name in 0..40 {
                let (answers, look) = (&answers, &look);
                scope.spawn(move || while !answers.wait(&name.to_string(), look).unwrap() {});
            }
        });
        // Forty threads that look by themselves would do so hundreds of times.
        assert!(looks.load(Ordering::Relaxed) < 60, "{looks:?}");
    }

    #[test]
    fn a_store_that_fails_time_after_time_is_an_error() {
        let answers = Answers::default();
        let fails = || Err(Failure::new(Reason::StorageFault, "gone"));
        let failed = (1..).find(|_| answers.wait("a", fails).is_err()).unwrap();
        assert_eq!(failed, FAULTS);
        assert!(!answers.wait("a", || Ok(HashSet::new())).unwrap());
        assert!(!answers.wait("a", fails).unwrap());
    }
}
