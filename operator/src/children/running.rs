//! Since when each Job's first pod runs.
//!
//! A status is the dearest thing that is written, to the API server and to everyone who watches. So that a
//! worker runs is written [`SETTLED`] after it began, whatever the load is: work that has ended by then needs no
//! status that says that it runs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A worker that runs for this long is reported as running.
pub const SETTLED: Duration = Duration::from_secs(1);

/// The Jobs that run, by uid.
#[derive(Debug, Default)]
pub struct Running(Mutex<HashMap<String, Instant>>);

impl Running {
    fn jobs(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first pod of Job `uid` runs; whether that is new.
    pub fn began(&self, uid: &str) -> bool {
        let mut jobs = self.jobs();
        let is_new = !jobs.contains_key(uid);
        if is_new {
            jobs.insert(uid.to_owned(), Instant::now());
        }
        is_new
    }

    /// Job `uid` does not run any more.
    pub fn ended(&self, uid: &str) {
        self.jobs().remove(uid);
    }

    /// Whether Job `uid` runs for [`SETTLED`].
    pub fn is_settled(&self, uid: &str) -> bool {
        self.jobs().get(uid).is_some_and(|began| began.elapsed() >= SETTLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_settles_after_a_fixed_time_and_is_forgotten() {
        let running = Running::default();
        assert!(running.began("1") && !running.is_settled("1"));
        tokio::time::advance(SETTLED / 2).await;
        assert!(!running.began("1"));
        tokio::time::advance(SETTLED / 2).await;
        assert!(running.is_settled("1"));
        running.ended("1");
        assert!(!running.is_settled("1") && running.jobs().is_empty());
    }
}
