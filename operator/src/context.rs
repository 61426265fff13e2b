//! What every reconcile shares.

use std::sync::Arc;

use kube::Client;

use crate::broker::Broker;
use crate::children::events::Events;
use crate::cloud_events::CloudEvents;
use crate::config::Config;
use crate::device_pool::status::Written;
use crate::fence::Fence;
use crate::metrics::Metrics;
use crate::runtime::queue::WorkQueue;
use crate::stores::Stores;
use crate::traces::Traces;

/// Clients, caches and settings.
pub struct Context {
    /// The client for everything but the lease.
    pub client: Client,
    /// The administrator's settings.
    pub config: Config,
    /// Watched objects.
    pub stores: Stores,
    /// Who holds which device, and who waits for one.
    pub broker: Arc<Broker>,
    /// When the pools' statuses were written.
    pub pool_statuses: Written,
    /// What is to be reconciled.
    pub queue: Arc<WorkQueue>,
    /// Counters.
    pub metrics: Metrics,
    /// Whether this replica may write.
    pub fence: Arc<Fence>,
    /// Where events for other systems go.
    pub cloud_events: CloudEvents,
    /// Where spans go.
    pub traces: Traces,
    /// Events.
    pub events: Events,
}
