//! CloudEvents to a webhook of the administrator's: that a compilation runs, succeeded or failed.
//!
//! Always true: an end is delivered at least once, unless the webhook is away for longer than the tries of one event last,
//! or more events wait than the queue holds; both are logged and counted. Nothing is kept for that: who begins to lead
//! tells the ends of the last [`REPLAY`] again, under the ids that they had. Reconciling never waits for the webhook.

pub mod delivery;
pub mod event;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hone_crds::{ModelCompilation, ModelCompilationStatus};
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::stores::Stores;
use delivery::{Delivery, DeliveryError, Policy};
use event::CloudEvent;

/// Events that wait to be delivered.
const WAITING: usize = 1024;
/// Ends that are told again when a replica begins to lead.
pub const REPLAY: Duration = Duration::from_secs(600);

/// Where events go, as the administrator says. It holds a secret, so it has no form to print.
#[derive(Clone)]
pub struct Webhook {
    /// Its address.
    pub endpoint: String,
    /// The value of the header `Authorization`.
    pub authorization: Option<String>,
    /// What the sources of events begin with, so that those of several clusters are told apart.
    pub cluster: String,
    /// How often and how long it is tried.
    pub policy: Policy,
}

/// Events on their way; none by default.
#[derive(Clone, Default)]
pub struct CloudEvents(Option<Arc<Queue>>);

struct Queue {
    cluster: String,
    events: mpsc::Sender<CloudEvent>,
    metrics: Metrics,
}

impl CloudEvents {
    /// To `webhook`, and the task that delivers.
    ///
    /// # Errors
    /// [`DeliveryError`] where it is no address.
    pub fn to(
        webhook: Webhook,
        metrics: Metrics,
    ) -> Result<(Self, BoxFuture<'static, ()>), DeliveryError> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let cluster = webhook.cluster.clone();
        let delivery = Delivery::new(webhook, metrics.clone())?;
        let queue = Queue { cluster, events: sender, metrics };
        Ok((Self(Some(Arc::new(queue))), Box::pin(delivery.run(receiver))))
    }

    /// The status of `object` was written as `now`.
    pub fn transition(&self, object: &ModelCompilation, now: &ModelCompilationStatus) {
        let Some(queue) = &self.0 else { return };
        let known = object.status.as_ref().is_some_and(|before| {
            before.phase == now.phase && before.completion_time == now.completion_time
        });
        let Some(event) = event::of(&queue.cluster, object, now).filter(|_| !known) else { return };
        if let Err(error) = queue.events.try_send(event) {
            let event = error.into_inner();
            tracing::warn!(id = event.id, "a CloudEvent is lost: too many wait for the webhook");
            queue.metrics.cloud_event("dropped");
        }
    }

    /// Tells the ends of the last [`REPLAY`] before `now` again, once all compilations are known, and never ends.
    pub async fn replay(self, stores: Stores, now: jiff::Timestamp) {
        stores.synced().await;
        if let Some(queue) = &self.0 {
            let span = jiff::SignedDuration::try_from(REPLAY).unwrap_or_default();
            let oldest = now.checked_sub(span).unwrap_or(jiff::Timestamp::MIN);
            let recent = stores.compilations.pick(|object| {
                let status = object.0.status.as_ref()?;
                let ended = status.phase.has_ended();
                let end = status.completion_time.as_ref().filter(|_| ended)?.0;
                (end >= oldest).then(|| event::of(&queue.cluster, &object.0, status))?
            });
            for event in recent {
                // It waits where the queue is full: what happens meanwhile goes first.
                if queue.events.send(event).await.is_err() {
                    break;
                }
            }
        }
        std::future::pending().await
    }
}
