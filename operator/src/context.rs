//! What every reconcile shares.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use kube::Client;

use crate::config::Config;
use crate::events::Events;
use crate::fence::Fence;
use crate::metrics::Metrics;
use crate::stores::Stores;
use crate::waiting::Waiting;

/// Clients, caches and settings.
pub struct Context {
    /// The client for everything but the lease.
    pub client: Client,
    /// The administrator's settings.
    pub config: Config,
    /// Watched objects.
    pub stores: Stores,
    /// Counters.
    pub metrics: Metrics,
    /// Whether this replica may write.
    pub fence: Arc<Fence>,
    /// Events.
    pub events: Events,
    /// Who waits since when.
    pub waiting: Arc<Waiting>,
}

impl Context {
    /// A random number in `[0, 1)`; for spreading load, not for secrets.
    pub fn random(&self) -> f64 {
        let bits = RandomState::new().hash_one(0u8) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}
