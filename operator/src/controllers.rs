//! The list of controllers: one line a kind, each with its bound on what runs at once.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use hone_crds::{DevicePool, ModelCompilation, TuningRun};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use tokio::sync::Semaphore;
use tokio::sync::watch::Receiver;

use crate::context::Context;
use crate::model_compilation::reconcile::ReconcileError;
use crate::stores::{Sources, chain};
use crate::{device_pool, model_compilation, tuning_run};

/// Longest time of one reconcile: an API server that hangs must not hold a place for ever.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Objects that stand in line for a reconcile. The library takes what waits beyond these in no order,
/// so that under load one object could wait for ever; within the line it is first come, first served.
const IN_LINE: u16 = 8192;

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
        ),
        device_pools(Arc::clone(&context), stop.clone()),
        tuning_runs(Arc::clone(&context), namespace, stop.clone()),
    ];
    futures::future::join_all(all).await;
    for task in tasks {
        task.abort();
    }
}

/// The object as it is now that its turn has come; what came in is that of when it got in line.
fn newest(context: &Context, object: Arc<ModelCompilation>) -> Arc<ModelCompilation> {
    let now = context.stores.compilations.get(&ObjectRef::from_obj(&*object));
    now.filter(|now| now.uid() == object.uid()).unwrap_or(object)
}

/// Ends when `stop` says true.
async fn stopped(mut stop: Receiver<bool>) {
    // A sender that is gone means that the process ends, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn compilations(
    context: Arc<Context>,
    stream: futures::stream::BoxStream<'static, Result<ModelCompilation, watcher::Error>>,
    wake: futures::channel::mpsc::UnboundedReceiver<ObjectRef<ModelCompilation>>,
    concurrency: u16,
    stop: Receiver<bool>,
) -> BoxFuture<'static, ()> {
    const NAME: &str = "modelcompilation";
    context.metrics.controller(NAME, concurrency);
    let (seen, woken) = (Arc::clone(&context), Arc::clone(&context));
    let stream = stream.inspect_ok(move |object| {
        seen.metrics.queued(NAME);
        seen.waiting.event(key(NAME, object));
    });
    let wake = wake.inspect(move |object| {
        woken.metrics.queued(NAME);
        let namespace = object.namespace.as_deref().unwrap_or_default();
        woken.waiting.event(format!("{NAME}/{namespace}/{}", object.name));
    });
    let reader = context.stores.compilations.clone();
    let turns = Arc::new(Semaphore::new(usize::from(concurrency)));
    let ending = stop.clone();
    Controller::for_stream(stream, reader)
        .with_config(Config::default().concurrency(concurrency.max(IN_LINE)))
        .reconcile_on(wake)
        .graceful_shutdown_on(stopped(stop))
        .run(
            move |object, context| {
                let (turns, ending) = (Arc::clone(&turns), ending.clone());
                async move {
                    // It is never closed, so a turn always comes, in the order of asking.
                    let _turn = turns.acquire().await;
                    // A hand-over waits for what is under way, not for all that stand in line.
                    if *ending.borrow() {
                        return Ok(Action::await_change());
                    }
                    let object = newest(&context, object);
                    // On the heap, so that those in line are small.
                    let work = Box::pin(model_compilation::reconcile::reconcile(
                        Arc::clone(&object),
                        Arc::clone(&context),
                    ));
                    Box::pin(measured(NAME, &*object, &context, work)).await
                }
            },
            |object, error, context| retry(NAME, &*object, error, &context),
            context,
        )
        .for_each(|_| futures::future::ready(()))
        .boxed()
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
                measured(NAME, &*object, &context, work).await
            },
            |object, error, context| retry(NAME, &*object, error, &context),
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
                measured(NAME, &*object, &context, work).await
            },
            |object, error, context| retry(NAME, &*object, error, &context),
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
}

/// Runs `work` within the time limit and counts it.
async fn measured<K: ResourceExt, E: std::error::Error + 'static>(
    controller: &str,
    object: &K,
    context: &Context,
    work: impl Future<Output = Result<Action, E>>,
) -> Result<Action, Ended<E>> {
    let key = key(controller, object);
    let (waited, depth) = context.waiting.start(&key);
    context.metrics.started(controller, waited, depth);
    let start = Instant::now();
    let done = match tokio::time::timeout(TIME_LIMIT, work).await {
        Ok(done) => done.map_err(Ended::Failed),
        Err(_) => Err(Ended::TooLong),
    };
    let result = match &done {
        Ok(action) if *action == Action::await_change() => "success",
        Ok(_) => "requeue_after",
        Err(_) => "error",
    };
    if done.is_ok() {
        context.waiting.succeeded(&key);
    }
    context.metrics.ended(controller, result, start.elapsed());
    done
}

/// Says what failed and when to try again.
fn retry<K: ResourceExt, E: Expected + std::error::Error + 'static>(
    controller: &str,
    object: &K,
    error: &Ended<E>,
    context: &Context,
) -> Action {
    let delay = context.waiting.failed(&key(controller, object), context.random());
    let (name, namespace) = (object.name_any(), object.namespace());
    let expected = matches!(error, Ended::Failed(error) if error.is_expected());
    let error = chain(error);
    if expected {
        tracing::debug!(controller, name, namespace, error, "looking again");
    } else {
        tracing::warn!(controller, name, namespace, error, ?delay, "reconcile failed");
    }
    Action::requeue(delay)
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
