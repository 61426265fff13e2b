//! Whether this replica does its work: what `/healthz` and `/readyz` report.
//!
//! A watch is alive when the API server was asked for it, or sent something for it, not long ago. The server ends
//! every watch after [`WATCH_TIMEOUT`], so even where nothing changes there is a new request by then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// After this time the API server ends a watch, and it is opened again.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(120);
/// So many objects are listed at once: pages keep memory flat when a large cluster is listed.
pub const LIST_PAGE: u32 = 500;
/// A watch without a request or an answer for this long is dead.
pub const SILENT: Duration = Duration::from_secs(240);

/// What this replica is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It has not found the cluster yet.
    #[default]
    Starting,
    /// Another replica leads, or none yet.
    StandingBy,
    /// It leads, and its caches are not complete yet.
    Syncing,
    /// It leads and works.
    Leading,
}

/// The state of this replica; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// When each watch was last heard of, by the plural name of its kind.
    heard: BTreeMap<String, Instant>,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a stage.
    pub fn enter(&self, stage: Stage) {
        self.state().stage = stage;
    }

    /// Something was asked or received for the watch of `resource`.
    pub fn heard(&self, resource: &str) {
        let mut state = self.state();
        match state.heard.get_mut(resource) {
            Some(at) => *at = Instant::now(),
            None => {
                state.heard.insert(resource.to_owned(), Instant::now());
            }
        }
    }

    /// Whether the process is to be kept.
    ///
    /// # Errors
    /// Why it must be started over.
    pub fn live(&self) -> Result<(), String> {
        let state = self.state();
        if !matches!(state.stage, Stage::Syncing | Stage::Leading) {
            return Ok(());
        }
        let silent: Vec<&str> = state
            .heard
            .iter()
            .filter(|(_, at)| at.elapsed() > SILENT)
            .map(|(resource, _)| resource.as_str())
            .collect();
        match silent.as_slice() {
            [] => Ok(()),
            silent => Err(format!(
                "this replica leads, and its watches are silent for more than {} s: {}",
                SILENT.as_secs(),
                silent.join(", ")
            )),
        }
    }

    /// Whether the replica does what it is there for: it leads with complete caches, or stands by.
    ///
    /// # Errors
    /// What is missing.
    pub fn ready(&self) -> Result<(), String> {
        self.live()?;
        match self.state().stage {
            Stage::Starting => Err("starting: the Lease was not read yet".to_owned()),
            Stage::Syncing => Err("leading: the first lists are not complete yet".to_owned()),
            Stage::StandingBy | Stage::Leading => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leader_with_a_silent_watch_is_not_well() {
        let health = Health::default();
        assert!(health.ready().is_err() && health.live().is_ok());
        health.enter(Stage::StandingBy);
        assert!(health.ready().is_ok());
        health.enter(Stage::Syncing);
        assert!(health.ready().is_err());
        health.enter(Stage::Leading);
        health.heard("jobs");
        health.heard("pods");
        tokio::time::advance(SILENT / 2).await;
        health.heard("pods");
        tokio::time::advance(SILENT / 2 + Duration::from_secs(1)).await;
        let why = health.live().err();
        assert!(why.as_ref().is_some_and(|why| why.ends_with(": jobs")), "{why:?}");
        assert!(health.ready().is_err());
        health.heard("jobs");
        assert!(health.live().is_ok() && health.ready().is_ok());
        // A replica that stands by watches nothing.
        tokio::time::advance(SILENT * 2).await;
        health.enter(Stage::StandingBy);
        assert!(health.live().is_ok());
    }
}
