//! Watched objects, kept without what nobody reads.

use std::collections::HashMap;
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{Stream, StreamExt, TryStreamExt};
use hone_crds::{DevicePool, ModelCompilation, Phase};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt};

use crate::facts::Facts;
use crate::index::Index;
use crate::model_compilation::{names, result};
use crate::running::Running;
use crate::seen::{SeenCompilation, SeenJob, SeenNode, SeenPod};
use crate::waiting::Waiting;
use crate::watched::{self, JobFacts, NodeFacts, PodFacts};

/// Readers of every watched kind.
#[derive(Clone)]
pub struct Stores {
    /// Compilations.
    pub compilations: Store<ModelCompilation>,
    /// Our own Jobs, by the uid of their compilation.
    pub jobs: Arc<Facts<JobFacts>>,
    /// Those of them whose worker runs for some time already.
    pub running: Arc<Running>,
    /// Workers' pods that succeeded, by [`watched::pods_of`].
    pub pods: Arc<Facts<PodFacts>>,
    /// Pools.
    pub pools: Store<DevicePool>,
    /// Nodes: labels, taints, capacity, readiness.
    pub nodes: Arc<Facts<NodeFacts>>,
    /// Namespaces: labels and whether they are going away.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
    /// Names of compilations by `namespace/content key` of their results.
    pub result_index: Arc<Index>,
    /// Wakes compilations.
    pub wake: UnboundedSender<ObjectRef<ModelCompilation>>,
}

/// What drives the stores: to be polled by the controllers and by tasks.
pub struct Sources {
    /// Compilations, for their controller.
    pub compilations: futures::stream::BoxStream<'static, Result<ModelCompilation, watcher::Error>>,
    /// Compilations to be looked at for another object's sake.
    pub wake: UnboundedReceiver<ObjectRef<ModelCompilation>>,
    /// Tasks that keep the other stores current.
    pub tasks: Vec<futures::future::BoxFuture<'static, ()>>,
}

/// Watches everything, in one namespace or in all.
pub fn open(client: &Client, namespace: Option<&str>, waiting: Arc<Waiting>) -> (Stores, Sources) {
    let (wake, woken) = unbounded();
    let result_index = Arc::new(Index::default());

    let (compilations, compilation_writer) = reflector::store();
    let compilation_stream = compilation_stream(
        scoped(client, namespace),
        compilation_writer,
        Arc::clone(&result_index),
    );
    let jobs = Arc::new(Facts::default());
    let running = Arc::new(Running::new(waiting, wake.clone()));
    let job_task =
        job_task(scoped(client, namespace), Arc::clone(&jobs), Arc::clone(&running), wake.clone());
    let pods = Arc::new(Facts::default());
    let pod_task = pod_task(scoped(client, namespace), Arc::clone(&pods));
    let (pools, pool_writer) = reflector::store();
    let pool_task =
        pool_task(Api::all(client.clone()), pool_writer, compilations.clone(), wake.clone());
    let nodes = Arc::new(Facts::default());
    let node_task = node_task(Api::all(client.clone()), Arc::clone(&nodes));
    let (namespaces, namespace_writer) = reflector::store();
    let namespace_stream = watch(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), lists())
        .default_backoff()
        .modify(|namespace| namespace.managed_fields_mut().clear())
        .reflect(namespace_writer);
    let stores =
        Stores { compilations, jobs, running, pods, pools, nodes, namespaces, result_index, wake };
    let sources = Sources {
        compilations: compilation_stream,
        wake: woken,
        tasks: vec![
            Box::pin(job_task),
            Box::pin(pod_task),
            Box::pin(pool_task),
            Box::pin(node_task),
            Box::pin(drain(namespace_stream, "namespaces")),
        ],
    };
    (stores, sources)
}

impl Stores {
    /// Returns once every store but that of compilations, which its controller fills, is complete.
    pub async fn ready(&self) {
        let ready = (
            self.pools.wait_until_ready(),
            self.namespaces.wait_until_ready(),
            self.jobs.ready(),
            self.pods.ready(),
            self.nodes.ready(),
        );
        // A writer is dropped only when the process ends.
        let _ = futures::join!(ready.0, ready.1, ready.2, ready.3, ready.4);
    }
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Pages keep memory flat when a large cluster is listed.
fn lists() -> watcher::Config {
    watcher::Config::default().any_semantic().page_size(500)
}

/// Runs a stream for its side effects.
async fn drain<K>(stream: impl Stream<Item = Result<K, watcher::Error>>, what: &str) {
    futures::pin_mut!(stream);
    while let Some(event) = stream.next().await {
        if let Err(error) = event {
            tracing::warn!(what, error = %chain(&error), "watch interrupted");
        }
    }
}

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

fn compilation_stream(
    api: Api<SeenCompilation>,
    writer: Writer<ModelCompilation>,
    index: Arc<Index>,
) -> futures::stream::BoxStream<'static, Result<ModelCompilation, watcher::Error>> {
    watch(api, lists())
        .default_backoff()
        .map_ok(|event| map(event, ModelCompilation::from))
        .modify(strip_meta)
        .reflect(writer)
        .inspect(move |event| match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                index.set(&identity(object), &object.name_any(), result_keys(object));
            }
            Ok(Event::Delete(object)) => {
                index.set(&identity(object), &object.name_any(), Vec::new());
            }
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        })
        .touched_objects()
        .boxed()
}

fn identity<K: ResourceExt>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// The content keys under which others find the results of `object`.
fn result_keys(object: &ModelCompilation) -> Vec<String> {
    let namespace = object.namespace().unwrap_or_default();
    let targets = object.status.iter().flat_map(|status| &status.targets);
    targets
        .filter(|target| result::is_complete(target))
        .filter_map(|target| target.content_key.as_ref())
        .map(|key| format!("{namespace}/{key}"))
        .collect()
}

/// Annotations that hold a copy of the object are not kept.
fn strip_meta<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// An event about an object as one about what it becomes.
fn map<A, B>(event: Event<A>, into: impl Fn(A) -> B) -> Event<B> {
    match event {
        Event::Apply(object) => Event::Apply(into(object)),
        Event::Delete(object) => Event::Delete(into(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(into(object)),
        Event::InitDone => Event::InitDone,
    }
}

/// Keeps Jobs, and wakes their owners.
async fn job_task(
    api: Api<SeenJob>,
    jobs: Arc<Facts<JobFacts>>,
    running: Arc<Running>,
    wake: UnboundedSender<ObjectRef<ModelCompilation>>,
) {
    let ours = lists().labels(&format!("{}={}", names::MANAGED_BY, names::MANAGER));
    let stream = watch(api, ours).default_backoff();
    let changed = |job: &SeenJob, facts: Option<&JobFacts>| {
        let Some(owner) = watched::owner(job) else {
            return;
        };
        let (uid, name) = (watched::uid(job), job.name_any());
        if facts.is_some_and(JobFacts::runs) {
            running.began(uid, name, owner);
        } else {
            running.ended(&uid, &name);
            let _ = wake.unbounded_send(owner);
        }
    };
    jobs.keep("jobs", stream, watched::job, changed).await;
}

/// Keeps workers' pods that succeeded. They wake nobody: the Job that finishes after its pod does.
async fn pod_task(api: Api<SeenPod>, pods: Arc<Facts<PodFacts>>) {
    let labels = format!(
        "{}={},{}={}",
        names::MANAGED_BY,
        names::MANAGER,
        names::PURPOSE_LABEL,
        names::PURPOSE_COMPILE
    );
    let ended = lists().labels(&labels).fields("status.phase=Succeeded");
    let stream = watch(api, ended).default_backoff();
    pods.keep("pods", stream, watched::pod, |_, _| {}).await;
}

/// Keeps nodes.
async fn node_task(api: Api<SeenNode>, nodes: Arc<Facts<NodeFacts>>) {
    let stream = watch(api, lists()).default_backoff();
    nodes.keep("nodes", stream, watched::node, |_, _| {}).await;
}

/// Keeps pools, and wakes who waits when one is made or changed.
async fn pool_task(
    api: Api<DevicePool>,
    writer: Writer<DevicePool>,
    compilations: Store<ModelCompilation>,
    wake: UnboundedSender<ObjectRef<ModelCompilation>>,
) {
    let mut generations = HashMap::new();
    let stream = watch(api, lists()).default_backoff().modify(strip_meta).reflect(writer).inspect(
        move |event| {
            let Ok(Event::Apply(pool) | Event::InitApply(pool)) = event else {
                return;
            };
            let generation = pool.metadata.generation;
            if generations.insert(pool.name_any(), generation) == Some(generation) {
                return;
            }
            for object in compilations.state() {
                let waits = object.status.as_ref().is_some_and(|s| s.phase == Phase::Pending);
                if waits {
                    let _ = wake.unbounded_send(ObjectRef::from_obj(&*object));
                }
            }
        },
    );
    drain(stream, "device pools").await;
}
