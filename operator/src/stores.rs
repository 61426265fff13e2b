//! Watched objects, kept without what nobody reads.

use std::collections::HashMap;
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{Stream, StreamExt};
use hone_crds::{DevicePool, ModelCompilation, Phase};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt};

use crate::index::Index;
use crate::model_compilation::{names, result};

/// Readers of every watched kind.
#[derive(Clone)]
pub struct Stores {
    /// Compilations.
    pub compilations: Store<ModelCompilation>,
    /// Our own Jobs.
    pub jobs: Store<Job>,
    /// Pools.
    pub pools: Store<DevicePool>,
    /// Nodes: labels, taints, capacity, readiness.
    pub nodes: Store<Node>,
    /// Namespaces: labels and whether they are going away.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
    /// Names of Jobs by the uid of their compilation.
    pub job_index: Arc<Index>,
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
pub fn open(client: &Client, namespace: Option<&str>) -> (Stores, Sources) {
    let (wake, woken) = unbounded();
    let job_index = Arc::new(Index::default());
    let result_index = Arc::new(Index::default());

    let (compilations, compilation_writer) = reflector::store();
    let compilation_stream = compilation_stream(
        scoped(client, namespace),
        compilation_writer,
        Arc::clone(&result_index),
    );
    let (jobs, job_writer) = reflector::store();
    let job_task =
        job_task(scoped(client, namespace), job_writer, Arc::clone(&job_index), wake.clone());
    let (pools, pool_writer) = reflector::store();
    let pool_task =
        pool_task(Api::all(client.clone()), pool_writer, compilations.clone(), wake.clone());
    let (nodes, node_writer) = reflector::store();
    let node_stream = watch(Api::<Node>::all(client.clone()), lists())
        .default_backoff()
        .modify(strip_node)
        .reflect(node_writer);
    let (namespaces, namespace_writer) = reflector::store();
    let namespace_stream = watch(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), lists())
        .default_backoff()
        .modify(|namespace| namespace.managed_fields_mut().clear())
        .reflect(namespace_writer);
    let stores =
        Stores { compilations, jobs, pools, nodes, namespaces, job_index, result_index, wake };
    let sources = Sources {
        compilations: compilation_stream,
        wake: woken,
        tasks: vec![
            Box::pin(job_task),
            Box::pin(pool_task),
            Box::pin(drain(node_stream, "nodes")),
            Box::pin(drain(namespace_stream, "namespaces")),
        ],
    };
    (stores, sources)
}

impl Stores {
    /// Returns once every store but that of compilations, which its controller fills, is complete.
    pub async fn ready(&self) {
        let ready = (
            self.jobs.wait_until_ready(),
            self.pools.wait_until_ready(),
            self.namespaces.wait_until_ready(),
            self.nodes.wait_until_ready(),
        );
        // A writer is dropped only when the process ends.
        let _ = futures::join!(ready.0, ready.1, ready.2, ready.3);
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
    api: Api<ModelCompilation>,
    writer: Writer<ModelCompilation>,
    index: Arc<Index>,
) -> futures::stream::BoxStream<'static, Result<ModelCompilation, watcher::Error>> {
    watch(api, lists())
        .default_backoff()
        .modify(strip_compilation)
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

fn strip_compilation(object: &mut ModelCompilation) {
    strip_meta(object);
}

fn strip_job(job: &mut Job) {
    strip_meta(job);
    job.metadata.annotations = None;
    if let Some(spec) = job.spec.take() {
        job.spec = Some(JobSpec {
            active_deadline_seconds: spec.active_deadline_seconds,
            backoff_limit: spec.backoff_limit,
            ..JobSpec::default()
        });
    }
}

fn strip_node(node: &mut Node) {
    strip_meta(node);
    node.metadata.annotations = None;
    if let Some(spec) = node.spec.take() {
        node.spec = Some(NodeSpec {
            taints: spec.taints,
            unschedulable: spec.unschedulable,
            ..NodeSpec::default()
        });
    }
    if let Some(status) = node.status.take() {
        let ready = status.conditions.into_iter().flatten();
        node.status = Some(NodeStatus {
            allocatable: status.allocatable,
            conditions: Some(ready.filter(|c| c.type_ == "Ready").collect()),
            ..NodeStatus::default()
        });
    }
}

/// The compilation that owns a Job.
fn owner(job: &Job) -> Option<ObjectRef<ModelCompilation>> {
    let owners = job.owner_references().iter();
    let mut owners = owners.filter(|owner| owner.kind == ModelCompilation::kind(&()));
    let name = &owners.next()?.name;
    Some(ObjectRef::new(name).within(&job.namespace().unwrap_or_default()))
}

/// Keeps Jobs and their index, and wakes their owners.
async fn job_task(
    api: Api<Job>,
    writer: Writer<Job>,
    index: Arc<Index>,
    wake: UnboundedSender<ObjectRef<ModelCompilation>>,
) {
    let ours = lists().labels(&format!("{}={}", names::MANAGED_BY, names::MANAGER));
    let stream =
        watch(api, ours).default_backoff().modify(strip_job).reflect(writer).inspect(|event| {
            let (job, there) = match event {
                Ok(Event::Apply(job) | Event::InitApply(job)) => (job, true),
                Ok(Event::Delete(job)) => (job, false),
                Ok(Event::Init | Event::InitDone) | Err(_) => return,
            };
            let uid = job.labels().get(names::UID_LABEL);
            let keys = uid.filter(|_| there).cloned().into_iter().collect();
            index.set(&identity(job), &job.name_any(), keys);
            if let Some(owner) = owner(job) {
                let _ = wake.unbounded_send(owner);
            }
        });
    drain(stream, "jobs").await;
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
