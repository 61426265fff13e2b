//! The list of controllers: one line a kind, each with its bound on what runs at once.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use hone_crds::{DevicePool, ModelCompilation, TuningRun};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use tokio::sync::watch::Receiver;

use crate::context::Context;
use crate::model_compilation::reconcile::ReconcileError;
use crate::queue::Queue;
use crate::stores::{Sources, chain};
use crate::{device_pool, model_compilation, tuning_run};

/// Longest time of one reconcile: an API server that hangs must not hold a place for ever.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The controller of compilations, in metrics and logs.
const COMPILATIONS: &str = "modelcompilation";

/// A compilation in the queue.
type Key = ObjectRef<ModelCompilation>;

/// Runs every controller until `stop` says true and what is under way has ended.
pub async fn run(
    context: Arc<Context>,
    sources: Sources,
    concurrency: u16,
    namespace: Option<String>,
    stop: Receiver<bool>,
) {
    let tasks: Vec<_> = sources.tasks.into_iter().map(tokio::spawn).collect();
    // Nothing is decided before everything that exists is known.
    tokio::select! {
        () = context.stores.ready() => {}
        () = stopped(stop.clone()) => return,
    }
    let all: [BoxFuture<'static, ()>; 3] = [
        compilations(
            Arc::clone(&context),
            sources.compilations,
            sources.wake,
            concurrency,
            stop.clone(),
        )
        .boxed(),
        device_pools(Arc::clone(&context), stop.clone()),
        tuning_runs(Arc::clone(&context), namespace, stop.clone()),
    ];
    futures::future::join_all(all).await;
    for task in tasks {
        task.abort();
    }
}

/// Ends when `stop` says true.
async fn stopped(mut stop: Receiver<bool>) {
    // A sender that is gone means that the process ends, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Reconciles compilations, `concurrency` at once: who is in line is seen by [`Queue`].
async fn compilations(
    context: Arc<Context>,
    stream: BoxStream<'static, Result<ModelCompilation, watcher::Error>>,
    wake: UnboundedReceiver<Key>,
    concurrency: u16,
    stop: Receiver<bool>,
) {
    context.metrics.controller(COMPILATIONS, concurrency);
    let queue = Arc::new(Queue::default());
    let feed = tokio::spawn(feed(Arc::clone(&context), stream, wake, Arc::clone(&queue)));
    // A store that is not complete says of objects that they are gone.
    tokio::select! {
        _ = context.stores.compilations.wait_until_ready() => {}
        () = stopped(stop.clone()) => {}
    }
    let workers = (0..concurrency).map(|_| work(Arc::clone(&context), Arc::clone(&queue)));
    let workers = futures::future::join_all(workers);
    let close = async {
        stopped(stop).await;
        queue.close();
        feed.abort();
    };
    // What is under way ends; what stands in line is the next leader's.
    futures::future::join(workers, close).await;
}

/// Puts in line what changed, and what is to be looked at for another object's sake.
async fn feed(
    context: Arc<Context>,
    stream: BoxStream<'static, Result<ModelCompilation, watcher::Error>>,
    wake: UnboundedReceiver<Key>,
    queue: Arc<Queue<Key>>,
) {
    let changed = stream.filter_map(|event| {
        let found = match event {
            Ok(object) => Some(ObjectRef::from_obj(&object)),
            Err(error) => {
                tracing::warn!(what = COMPILATIONS, error = %chain(&error), "watch interrupted");
                None
            }
        };
        futures::future::ready(found)
    });
    let mut asked = futures::stream::select(changed, wake);
    while let Some(mut key) = asked.next().await {
        // What else is known of it now is looked up when its turn comes.
        key.extra = Default::default();
        context.metrics.queued(COMPILATIONS);
        context.waiting.event(text(&key));
        queue.add(key);
    }
}

/// The key by which the time is taken that it waits.
fn text(key: &Key) -> String {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    format!("{COMPILATIONS}/{namespace}/{}", key.name)
}

/// One after the other, as it is now that its turn has come.
async fn work(context: Arc<Context>, queue: Arc<Queue<Key>>) {
    while let Some(key) = queue.next().await {
        match context.stores.compilations.get(&key) {
            Some(object) => {
                let again = turn(&context, object).await;
                if let Some(delay) = again {
                    queue.add_after(key.clone(), delay);
                }
            }
            None => context.waiting.gone(&text(&key)),
        }
        queue.done(&key);
    }
}

/// One reconcile: after which time to look again. In a task of its own, so that a bug that panics over
/// one object stops neither the others nor the process.
async fn turn(context: &Arc<Context>, object: Arc<ModelCompilation>) -> Option<Duration> {
    let (own, seen) = (Arc::clone(context), Arc::clone(&object));
    let task = tokio::spawn(async move {
        let work = model_compilation::reconcile::reconcile(Arc::clone(&seen), Arc::clone(&own));
        measured(COMPILATIONS, &*seen, &own, work, Option::is_some).await
    });
    let error = match task.await {
        Ok(Ok(again)) => return again,
        Ok(Err(error)) => error,
        Err(panic) => Ended::Panicked(panic),
    };
    Some(retry(COMPILATIONS, &*object, &error, context))
}

fn device_pools(context: Arc<Context>, stop: Receiver<bool>) -> BoxFuture<'static, ()> {
    const NAME: &str = "devicepool";
    context.metrics.controller(NAME, 2);
    let api: Api<DevicePool> = Api::all(context.client.clone());
    Controller::new(api, watcher::Config::default().any_semantic())
        .with_config(Config::default().concurrency(2))
        .graceful_shutdown_on(stopped(stop))
        .run(
            |object, context| async move {
                let work = device_pool::reconcile(Arc::clone(&object), Arc::clone(&context));
                measured(NAME, &*object, &context, work, comes_again).await
            },
            |object, error, context| Action::requeue(retry(NAME, &*object, error, &context)),
            context,
        )
        .for_each(|_| futures::future::ready(()))
        .boxed()
}

fn tuning_runs(
    context: Arc<Context>,
    namespace: Option<String>,
    stop: Receiver<bool>,
) -> BoxFuture<'static, ()> {
    const NAME: &str = "tuningrun";
    context.metrics.controller(NAME, 2);
    let api: Api<TuningRun> = api(&context, namespace.as_deref());
    Controller::new(api, watcher::Config::default().any_semantic())
        .with_config(Config::default().concurrency(2))
        .graceful_shutdown_on(stopped(stop))
        .run(
            |object, context| async move {
                let work = tuning_run::reconcile(Arc::clone(&object), Arc::clone(&context));
                measured(NAME, &*object, &context, work, comes_again).await
            },
            |object, error, context| Action::requeue(retry(NAME, &*object, error, &context)),
            context,
        )
        .for_each(|_| futures::future::ready(()))
        .boxed()
}

fn api<K>(context: &Context, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    }
}

fn key<K: ResourceExt>(controller: &str, object: &K) -> String {
    let namespace = object.namespace().unwrap_or_default();
    format!("{controller}/{namespace}/{}", object.name_any())
}

/// Why a reconcile ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Ended<E: std::error::Error + 'static> {
    /// A step failed.
    #[error(transparent)]
    Failed(E),
    /// It took too long.
    #[error("the reconcile took longer than {} s", TIME_LIMIT.as_secs())]
    TooLong,
    /// It panicked.
    #[error("the reconcile panicked: please report this")]
    Panicked(#[source] tokio::task::JoinError),
}

/// Whether an action asks for another look.
fn comes_again(action: &Action) -> bool {
    *action != Action::await_change()
}

/// Runs `work` within the time limit and counts it. `again` tells whether its result asks for another look.
async fn measured<K: ResourceExt, T, E: std::error::Error + 'static>(
    controller: &str,
    object: &K,
    context: &Context,
    work: impl Future<Output = Result<T, E>>,
    again: impl Fn(&T) -> bool,
) -> Result<T, Ended<E>> {
    let key = key(controller, object);
    let (waited, depth) = context.waiting.start(&key);
    context.metrics.started(controller, waited, depth);
    let start = Instant::now();
    let done = match tokio::time::timeout(TIME_LIMIT, work).await {
        Ok(done) => done.map_err(Ended::Failed),
        Err(_) => Err(Ended::TooLong),
    };
    let result = match &done {
        Ok(result) if again(result) => "requeue_after",
        Ok(_) => "success",
        Err(_) => "error",
    };
    if done.is_ok() {
        context.waiting.succeeded(&key);
    }
    context.metrics.ended(controller, result, start.elapsed());
    done
}

/// Says what failed, and after which time to try again.
fn retry<K: ResourceExt, E: Expected + std::error::Error + 'static>(
    controller: &str,
    object: &K,
    error: &Ended<E>,
    context: &Context,
) -> Duration {
    let delay = context.waiting.failed(&key(controller, object), context.random());
    let (name, namespace) = (object.name_any(), object.namespace());
    let expected = matches!(error, Ended::Failed(error) if error.is_expected());
    let error = chain(error);
    if expected {
        tracing::debug!(controller, name, namespace, error, "looking again");
    } else {
        tracing::warn!(controller, name, namespace, error, ?delay, "reconcile failed");
    }
    delay
}

/// Tells everyday failures, which are not worth a warning, from others.
pub trait Expected: Display {
    /// Whether another writer was merely first, or this replica does not lead.
    fn is_expected(&self) -> bool;
}

impl Expected for ReconcileError {
    fn is_expected(&self) -> bool {
        Self::is_expected(self)
    }
}
