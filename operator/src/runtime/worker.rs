//! Workers: each takes one key after the other from the queue and reconciles it, whatever its kind.

use std::any::Any;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::chain;
use super::queue::{Done, Key, Taken, WorkQueue};
use crate::fence::Fence;
use crate::metrics::Metrics;

/// Longest time of one reconcile: an API server that hangs must not hold a worker for ever.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What reconciles the objects of one kind.
pub struct Controller {
    /// Its name in keys, metrics and logs.
    pub name: &'static str,
    /// Reconciles the object of a key.
    pub reconcile: Box<dyn Fn(Key) -> BoxFuture<'static, Outcome> + Send + Sync>,
}

/// How a reconcile ended.
pub enum Outcome {
    /// Well; after which time to look again unless something changes before.
    Done(Option<Duration>),
    /// There is no such object any more.
    Gone,
    /// With an error.
    Failed(FailureClass, Box<dyn Error + Send + Sync>),
}

/// How an error is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Another writer was first: tried again, and worth no warning.
    Conflict,
    /// This replica does not lead at the moment: queued until it does.
    NotLeading,
    /// Anything else: tried again with back-off.
    Fault,
}

/// An error of a reconcile.
pub trait ReconcileFailure: Error + Send + Sync + 'static {
    /// How it is treated.
    fn class(&self) -> FailureClass;
}

/// The class of an answer of the API server.
pub fn class_of(error: &kube::Error) -> FailureClass {
    match error {
        kube::Error::Api(status) if status.code == 409 => FailureClass::Conflict,
        _ => FailureClass::Fault,
    }
}

/// What all workers share.
pub struct Workers {
    /// Where keys come from.
    pub queue: Arc<WorkQueue>,
    /// Nothing is taken while it is closed.
    pub fence: Arc<Fence>,
    /// Counters.
    pub metrics: Metrics,
    /// One for each kind.
    pub controllers: Vec<Controller>,
}

impl Workers {
    /// Takes keys one after the other until the queue is closed.
    pub async fn run(&self) {
        loop {
            self.fence.opened().await;
            let Some(Taken { key, waited }) = self.queue.next().await else { return };
            self.metrics.started(key.kind, waited, self.queue.depth(key.kind));
            let start = Instant::now();
            let (result, done) = self.reconcile(&key).await;
            self.metrics.ended(key.kind, result, start.elapsed());
            self.queue.done(&key, done);
        }
    }

    /// One reconcile: its result for the metrics, and what becomes of the key. A bug that panics over one object
    /// is an error of that object alone.
    async fn reconcile(&self, key: &Key) -> (&'static str, Done) {
        let Some(controller) = self.controllers.iter().find(|c| c.name == key.kind) else {
            return ("success", Done::Gone);
        };
        let work = AssertUnwindSafe((controller.reconcile)(key.clone())).catch_unwind();
        let outcome = match tokio::time::timeout(TIME_LIMIT, work).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Outcome::Failed(FailureClass::Fault, Panicked(text(&*panic)).into()),
            Err(_) => Outcome::Failed(FailureClass::Fault, TooLong.into()),
        };
        match outcome {
            Outcome::Done(None) => ("success", Done::Settled),
            Outcome::Done(Some(delay)) => ("requeue_after", Done::RequeueAfter(delay)),
            Outcome::Gone => ("success", Done::Gone),
            Outcome::Failed(class, error) => ("error", failed(key, class, &*error)),
        }
    }
}

/// Logs a failure.
fn failed(key: &Key, class: FailureClass, error: &(dyn Error + 'static)) -> Done {
    let Key { kind: controller, namespace, name } = key;
    let error = chain(error);
    match class {
        FailureClass::Fault => {
            tracing::warn!(controller, name, namespace, error, "reconcile failed");
            Done::Failed(random())
        }
        FailureClass::Conflict => {
            tracing::debug!(controller, name, namespace, error, "reconciling again");
            Done::Failed(random())
        }
        FailureClass::NotLeading => Done::PutBack,
    }
}

/// The text of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// A reconcile panicked.
#[derive(Debug, thiserror::Error)]
#[error("the reconcile panicked, please report this: {0}")]
struct Panicked(String);

/// A reconcile took too long.
#[derive(Debug, thiserror::Error)]
#[error("the reconcile took longer than {} s", TIME_LIMIT.as_secs())]
struct TooLong;

/// A random number in `[0, 1)`; for spreading load, not for secrets.
pub fn random() -> f64 {
    let bits = RandomState::new().hash_one(0u8) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runtime::queue::Priority;
    use crate::runtime::supervisor::Supervisor;
    use std::sync::Mutex;
    use tokio::time::timeout;

    fn key(name: &str) -> Key {
        Key { kind: "thing", namespace: "team".to_owned(), name: name.to_owned() }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("not leading")]
    struct NotLeading;

    fn workers(fence: Fence) -> (Arc<Workers>, Arc<Mutex<Vec<String>>>) {
        let worked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&worked);
        let reconcile = move |key: Key| {
            log.lock().unwrap().push(key.name.clone());
            async move {
                match key.name.as_str() {
                    "panics" => panic!("a bug"),
                    "hangs" => std::future::pending().await,
                    "deposed" => Outcome::Failed(FailureClass::NotLeading, NotLeading.into()),
                    _ => Outcome::Done(None),
                }
            }
            .boxed()
        };
        let workers = Workers {
            queue: Arc::default(),
            fence: Arc::new(fence),
            metrics: Metrics::new().unwrap(),
            controllers: vec![Controller { name: "thing", reconcile: Box::new(reconcile) }],
        };
        (Arc::new(workers), worked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_and_a_hang_cost_their_own_object_only() {
        let (workers, worked) = workers(Fence::open());
        for name in ["panics", "hangs", "good"] {
            workers.queue.add(key(name), Priority::Change);
        }
        let mut supervisor = Supervisor::default();
        let shared = Arc::clone(&workers);
        supervisor.spawn("worker", async move { shared.run().await });
        let ended = timeout(Duration::from_secs(70), supervisor.ended()).await;
        assert!(ended.is_err(), "the worker ended: {ended:?}");
        let worked = worked.lock().unwrap().clone();
        assert_eq!(worked[..2], ["panics", "hangs"]);
        assert!(worked.contains(&"good".to_owned()), "{worked:?}");
        // It is tried again, with back-off, and counted.
        assert!(worked.iter().filter(|name| *name == "panics").count() > 1, "{worked:?}");
        let metrics = workers.metrics.text();
        let active = r#"controller_runtime_active_workers{controller="thing"}"#;
        assert!(metrics.lines().any(|l| l.starts_with(active) && !l.ends_with("-1")), "{metrics}");
        assert!(metrics.contains(r#"errors_total{controller="thing"}"#), "{metrics}");
    }

    /// After an outage of the API server work goes on at once, not after a back-off.
    #[tokio::test(start_paused = true)]
    async fn a_closed_fence_holds_work_and_an_open_one_lets_it_go_on() {
        let (workers, worked) = workers(Fence::closed());
        workers.queue.add(key("good"), Priority::Change);
        let shared = Arc::clone(&workers);
        let task = tokio::spawn(async move { shared.run().await });
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(worked.lock().unwrap().is_empty());
        let until =
            jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
        workers.fence.extend(until);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*worked.lock().unwrap(), ["good"]);
        task.abort();
    }
}
