//! The watches of every kind, and who is queued for what changes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use hone_crds::{DevicePool, ModelCompilation, Phase, TuningRun};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::broker::{self, Broker, DeviceLease, lease};
use crate::children::jobs::{self, JobFacts};
use crate::children::load::Load;
use crate::children::pods::{self, PodFacts, Waiting};
use crate::children::running::{Running, SETTLED};
use crate::children::warnings::{self, WARNINGS, Warning};
use crate::children::{names, owner};
use crate::custom_run::{self, CustomRun};
use crate::device_pool::observe::selects;
use crate::fingerprints::Fingerprints;
use crate::index::Index;
use crate::model_compilation::result;
use crate::nodes::{self, NodeFacts};
use crate::progress::Posts;
use crate::runtime::cache::{self, Cache, Object};
use crate::runtime::health::{LIST_PAGE, WATCH_TIMEOUT};
use crate::runtime::queue::{Key, Priority, WorkQueue};
use crate::seen::{SeenCompilation, SeenEvent, SeenJob, SeenNode, SeenPod};
use crate::{device_pool, model_compilation, tuning_run};

/// The kinds that own Jobs, as their owner references say.
const COMPILATION: &str = "ModelCompilation";
const RUN: &str = "TuningRun";

/// A task that keeps one cache current, with its name.
pub type Watch = (&'static str, BoxFuture<'static, ()>);

/// What is watched.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The one namespace whose compilations are worked on; all when absent.
    pub namespace: Option<String>,
    /// The operator's own namespace, where the Leases of devices are.
    pub install: String,
    /// Whether Tekton's CustomRuns are watched.
    pub tekton: bool,
}

/// The informer caches of every watched kind.
#[derive(Clone, Default)]
pub struct Stores {
    /// Compilations.
    pub compilations: Arc<Cache<Object<ModelCompilation>>>,
    /// Pools.
    pub pools: Arc<Cache<Object<DevicePool>>>,
    /// Tuning runs.
    pub tuning_runs: Arc<Cache<Object<TuningRun>>>,
    /// Tekton's CustomRuns whose task is of a kind of ours. Nothing waits until they are known.
    pub custom_runs: Arc<Cache<Object<CustomRun>>>,
    /// Namespaces: labels and whether they are going away.
    pub namespaces: Arc<Cache<Object<PartialObjectMeta<Namespace>>>>,
    /// Our Jobs, by their owner.
    pub jobs: Arc<Cache<JobFacts>>,
    /// Since when each of them runs.
    pub running: Arc<Running>,
    /// How far those that search say that they are.
    pub posts: Arc<Posts>,
    /// How many of them are under way in each pool.
    pub load: Arc<Load>,
    /// Pods of our Jobs that wait or succeeded, by their Job.
    pub pods: Arc<Cache<PodFacts>>,
    /// Events that say why workers do not start, by the uid of what they are about. Nothing waits until they are known.
    pub warnings: Arc<Cache<Warning>>,
    /// Nodes: labels, taints, capacity, readiness.
    pub nodes: Arc<Cache<NodeFacts>>,
    /// Leases of devices.
    pub leases: Arc<Cache<DeviceLease>>,
    /// Who holds which device, and who waits for one.
    pub broker: Arc<Broker>,
    /// Priority classes.
    pub priorities: Arc<Cache<Object<PriorityClass>>>,
    /// On what hardware results were measured.
    pub fingerprints: Arc<Fingerprints>,
    /// Names of compilations by `namespace/content key` of their results.
    pub results: Arc<Index>,
}

impl Stores {
    /// Returns once every cache is complete: nothing is decided before everything that exists is known.
    pub async fn synced(&self) {
        futures::join!(
            self.compilations.synced(),
            self.pools.synced(),
            self.tuning_runs.synced(),
            self.namespaces.synced(),
            self.jobs.synced(),
            self.pods.synced(),
            self.nodes.synced(),
            self.leases.synced(),
            self.priorities.synced(),
        );
    }

    /// The watches of everything.
    pub fn watches(&self, client: &Client, scope: &Scope, queue: &Arc<WorkQueue>) -> Vec<Watch> {
        let wake = Wake { stores: self.clone(), queue: Arc::clone(queue) };
        let all = client.clone();
        let namespace = scope.namespace.as_deref();
        let leases = Api::namespaced(client.clone(), &scope.install);
        let mut watches: Vec<Watch> = vec![
            ("watch of compilations", wake.clone().compilations(scoped(client, namespace)).boxed()),
            ("watch of tuning runs", wake.clone().tuning_runs(scoped(client, namespace)).boxed()),
            ("watch of pools", wake.clone().pools(Api::all(all.clone())).boxed()),
            ("watch of jobs", wake.clone().jobs(scoped(client, namespace)).boxed()),
            ("watch of pods", wake.clone().pods(scoped(client, namespace)).boxed()),
            ("watch of warnings", wake.clone().warnings(scoped(client, namespace)).boxed()),
            ("watch of namespaces", wake.clone().namespaces(Api::all(all.clone())).boxed()),
            ("watch of leases", wake.clone().leases(leases).boxed()),
            ("watch of priority classes", wake.clone().priorities(Api::all(all.clone())).boxed()),
            ("watch of nodes", wake.clone().nodes(Api::all(all)).boxed()),
        ];
        if scope.tekton {
            let runs = wake.custom_runs(client.clone(), scoped(client, namespace));
            watches.push(("watch of custom runs", runs.boxed()));
        }
        watches
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

fn lists() -> watcher::Config {
    let timeout = u32::try_from(WATCH_TIMEOUT.as_secs()).unwrap_or(290);
    watcher::Config::default().any_semantic().page_size(LIST_PAGE).timeout(timeout)
}

/// Queues objects when something changes that they depend on.
#[derive(Clone)]
struct Wake {
    stores: Stores,
    queue: Arc<WorkQueue>,
}

impl Wake {
    fn change(&self, key: Key) {
        self.queue.add(key, Priority::Change);
    }

    /// Queues what waits for a device, in one namespace or in all.
    fn pending(&self, namespace: Option<&str>) {
        let here = |metadata: &ObjectMeta| {
            namespace.is_none_or(|name| metadata.namespace.as_deref() == Some(name))
        };
        let waits = |phase: Option<Phase>| phase == Some(Phase::Pending);
        let compilation = |object: &Object<ModelCompilation>| {
            let object = &object.0;
            let waits = waits(object.status.as_ref().map(|status| status.phase));
            (waits && here(&object.metadata))
                .then(|| Key::of(model_compilation::CONTROLLER, &**object))
        };
        let run = |object: &Object<TuningRun>| {
            let object = &object.0;
            let waits = waits(object.status.as_ref().map(|status| status.phase));
            (waits && here(&object.metadata)).then(|| Key::of(tuning_run::CONTROLLER, &**object))
        };
        let keys = self.stores.compilations.pick(compilation).into_iter();
        keys.chain(self.stores.tuning_runs.pick(run)).for_each(|key| self.change(key));
    }

    /// An object is gone: it wishes for no device any more.
    fn wishes_end<K: Resource>(&self, controller: &str, object: &K) {
        self.stores.broker.ask(&broker::Applicant::of(controller, object), Vec::new());
    }

    async fn compilations(self, api: Api<SeenCompilation>) {
        let stream = watch(api, lists())
            .default_backoff()
            .map_ok(|event| map(event, ModelCompilation::from))
            .modify(strip_meta)
            .boxed();
        let changed = |before: Option<&_>, after: Option<&Object<ModelCompilation>>| {
            let Some(object) = after.or(before).map(|object| &object.0) else { return };
            let whole = |entry: Option<&Object<ModelCompilation>>| entry.map(|e| Arc::clone(&e.0));
            let (was, is) = (whole(before), whole(after));
            let pools = self.stores.fingerprints.changed(was.as_deref(), is.as_deref());
            pools.iter().for_each(|pool| self.pool_later(pool));
            if after.is_none() {
                self.wishes_end(model_compilation::CONTROLLER, &**object);
            }
            let keys = if after.is_some() { result_keys(object) } else { Vec::new() };
            let group =
                cache::object_group(&object.namespace().unwrap_or_default(), &object.name_any());
            self.stores.results.set(&group, &object.name_any(), keys);
            self.custom_run_of(object.meta());
            self.change(Key::of(model_compilation::CONTROLLER, &**object));
        };
        self.stores.compilations.follow("compilations", stream, cache::object, changed).await;
    }

    async fn tuning_runs(self, api: Api<TuningRun>) {
        let changed = |before: Option<&Object<TuningRun>>, after: Option<&Object<TuningRun>>| {
            if let (Some(gone), None) = (before, after) {
                self.wishes_end(tuning_run::CONTROLLER, &*gone.0);
            }
            // A compilation goes on when its run does.
            let Some(run) = after.or(before).map(|run| &run.0) else { return };
            if let Some(owner) = owner::controller(run.meta(), hone_crds::GROUP, COMPILATION) {
                self.change(Key {
                    kind: model_compilation::CONTROLLER,
                    namespace: run.namespace().unwrap_or_default(),
                    name: owner.name.clone(),
                });
            }
            self.custom_run_of(run.meta());
        };
        self.objects(tuning_run::CONTROLLER, api, &self.stores.tuning_runs, changed).await;
    }

    /// Tekton's CustomRuns, once the cluster serves the kind.
    async fn custom_runs(self, client: Client, api: Api<CustomRun>) {
        custom_run::served::served(&client).await;
        let stream = watch(api, lists()).default_backoff().modify(strip_meta).boxed();
        let ours = |run: &CustomRun| cache::object(run).filter(|_| run.is_ours());
        let changed = |before: Option<&Object<CustomRun>>, after: Option<&Object<CustomRun>>| {
            if let Some(run) = after.or(before) {
                self.change(Key::of(custom_run::CONTROLLER, &*run.0));
            }
        };
        self.stores.custom_runs.follow("custom runs", stream, ours, changed).await;
    }

    /// Queues the CustomRun that controls an object.
    fn custom_run_of(&self, metadata: &ObjectMeta) {
        let (group, kind) = (custom_run::resource::GROUP, custom_run::resource::KIND);
        if let Some(owner) = owner::controller(metadata, group, kind) {
            self.change(Key {
                kind: custom_run::CONTROLLER,
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: owner.name.clone(),
            });
        }
    }

    /// Pools. Who waits for one looks again when one is made, edited or deleted.
    async fn pools(self, api: Api<DevicePool>) {
        let changed = |before: Option<&Object<DevicePool>>, after: Option<&Object<DevicePool>>| {
            let generation = |object: Option<&Object<DevicePool>>| {
                object.map(|object| object.0.metadata.generation)
            };
            if generation(before) != generation(after) {
                self.pending(None);
            }
            if let (Some(gone), None) = (before, after) {
                self.stores.broker.forget_pool(&gone.0.name_any());
                // Others inherit its slots, and whom it would have served.
                let wanted = self.stores.broker.wanted_pools();
                wanted.iter().for_each(|pool| self.pool_soon(pool));
            }
        };
        self.objects(device_pool::CONTROLLER, api, &self.stores.pools, changed).await;
    }

    /// Namespaces. Labels decide which pools may be used.
    async fn namespaces(self, api: Api<PartialObjectMeta<Namespace>>) {
        type Entry = Object<PartialObjectMeta<Namespace>>;
        let changed = |before: Option<&Entry>, after: Option<&Entry>| {
            let labels = |entry: Option<&Entry>| entry.map(|e| e.0.metadata.labels.clone());
            if let (Some(after), true) =
                (after, before.is_some() && labels(before) != labels(after))
            {
                self.pending(Some(&after.0.name_any()));
            }
        };
        let stream = watch(api, lists()).default_backoff().modify(strip_meta).boxed();
        self.stores.namespaces.follow("namespaces", stream, cache::object, changed).await;
    }

    /// Whole objects of a controller's kind: each is queued when it changes.
    async fn objects<K>(
        &self,
        controller: &'static str,
        api: Api<K>,
        cache: &Cache<Object<K>>,
        also: impl Fn(Option<&Object<K>>, Option<&Object<K>>),
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let stream = watch(api, lists()).default_backoff().modify(strip_meta).boxed();
        let changed = |before: Option<&Object<K>>, after: Option<&Object<K>>| {
            if let Some(object) = after.or(before) {
                self.change(Key::of(controller, &*object.0));
            }
            also(before, after);
        };
        cache.follow(controller, stream, cache::object, changed).await;
    }

    /// Jobs. Their owner looks again when one changes; a little later where it has only begun to run.
    async fn jobs(self, api: Api<SeenJob>) {
        let ours = lists().labels(&format!("{}={}", names::MANAGED_BY, names::MANAGER));
        let stream = watch(api, ours).default_backoff().boxed();
        let view = |job: &SeenJob| jobs::facts(job, &[COMPILATION, RUN]);
        let changed = |before: Option<&JobFacts>, after: Option<&JobFacts>| {
            let Some(job) = after.or(before) else { return };
            let gave_back = after.is_none_or(JobFacts::gave_back);
            if gave_back {
                self.stores.broker.job_ended(&job.namespace, &job.view.name);
            }
            let before_too = before.is_some_and(JobFacts::gave_back);
            if self.stores.load.changed(before, after) || (gave_back && !before_too) {
                job.view.pool.iter().for_each(|pool| self.pool_soon(pool));
            }
            if after.is_none_or(|job| !job.is_under_way()) {
                self.stores.posts.ended(&job.uid);
            }
            let owner = owner_of(job);
            if after.is_none_or(|job| !job.runs()) {
                self.stores.running.ended(&job.uid);
                self.change(owner);
            } else if self.stores.running.began(&job.uid) {
                self.queue.add_after(owner, SETTLED);
            } else {
                self.change(owner);
            }
        };
        self.stores.jobs.follow("jobs", stream, view, changed).await;
    }

    /// Pods that wait or succeeded. Those that succeeded wake nobody: the Job that finishes after its pod does.
    async fn pods(self, api: Api<SeenPod>) {
        let ours = lists()
            .labels(&format!("{}={}", names::MANAGED_BY, names::MANAGER))
            .fields("status.phase!=Running,status.phase!=Failed");
        let stream = watch(api, ours).default_backoff().boxed();
        let changed = |before: Option<&PodFacts>, after: Option<&PodFacts>| {
            let Some(pod) = after.filter(|pod| pod.waiting.is_some()) else { return };
            let explains = |waiting: &Waiting| waiting.scheduled || waiting.classify().is_some();
            let unchanged = before.is_some_and(|before| before.waiting == pod.waiting);
            if unchanged || !pod.waiting.as_ref().is_some_and(explains) {
                return;
            }
            let jobs = self.stores.jobs.group(&owner::group(&pod.namespace, &pod.owner_uid));
            if let Some(job) = jobs.iter().find(|job| job.uid == pod.job_uid) {
                self.change(owner_of(job));
            }
        };
        self.stores.pods.follow("pods", stream, pods::facts, changed).await;
    }

    /// Events. Who waits looks again by itself.
    async fn warnings(self, api: Api<SeenEvent>) {
        let stream = watch(api, lists().fields(WARNINGS)).default_backoff().boxed();
        self.stores.warnings.follow("warnings", stream, warnings::facts, |_, _| {}).await;
    }

    /// Nodes. The pools that they belong or belonged to have other slots then.
    async fn nodes(self, api: Api<SeenNode>) {
        let stream = watch(api, lists()).default_backoff().boxed();
        let changed = |before: Option<&NodeFacts>, after: Option<&NodeFacts>| {
            let concerned = |pool: &Object<DevicePool>| {
                let is_in = |node: Option<&NodeFacts>| node.is_some_and(|n| selects(&pool.0, n));
                (is_in(before) || is_in(after)).then(|| pool.0.name_any())
            };
            let pools = self.stores.pools.pick(concerned);
            pools.iter().for_each(|pool| self.pool_soon(pool));
        };
        self.stores.nodes.follow("nodes", stream, nodes::facts, changed).await;
    }

    /// Leases of devices. Who was granted one looks, and so does who may be next.
    async fn leases(self, api: Api<Lease>) {
        let (label, value) = lease::LEASE_LABEL;
        let ours = lists().labels(&format!("{label}={value}"));
        let stream = watch(api, ours).default_backoff().boxed();
        let changed = |before: Option<&DeviceLease>, after: Option<&DeviceLease>| {
            match (before, after) {
                (_, Some(lease)) => drop(self.stores.broker.saw(lease.clone())),
                (Some(lease), None) => self.stores.broker.gone(&lease.name),
                (None, None) => {}
            }
            let holder = |lease: Option<&DeviceLease>| {
                lease.and_then(|lease| lease.holder.as_ref().map(|holder| holder.applicant.clone()))
            };
            if let Some(applicant) =
                holder(after).filter(|now| Some(now) != holder(before).as_ref())
            {
                let kind = match applicant.kind == tuning_run::CONTROLLER {
                    true => tuning_run::CONTROLLER,
                    false => model_compilation::CONTROLLER,
                };
                self.change(Key { kind, namespace: applicant.namespace, name: applicant.name });
            }
            // Pools that overlap share slots.
            let is_free = |lease: Option<&DeviceLease>| lease.is_none_or(|l| l.holder.is_none());
            if is_free(after) && !is_free(before) {
                let wanted = self.stores.broker.wanted_pools();
                wanted.iter().for_each(|pool| self.pool_soon(pool));
            }
            let pools = before.iter().chain(&after).map(|lease| &lease.pool);
            pools.for_each(|pool| self.pool_later(pool));
        };
        self.stores.leases.follow("leases", stream, lease::facts, changed).await;
    }

    async fn priorities(self, api: Api<PriorityClass>) {
        let stream = watch(api, lists()).default_backoff().modify(strip_meta).boxed();
        self.stores.priorities.follow("priority classes", stream, cache::object, |_, _| {}).await;
    }

    /// Has a pool's devices be granted anew. A burst of changes costs one look.
    fn pool_soon(&self, pool: &str) {
        self.queue.add_after(pool_key(pool), Duration::from_millis(20));
    }

    /// Has a pool's status be brought up to date.
    fn pool_later(&self, pool: &str) {
        self.queue.add_after(pool_key(pool), Duration::from_secs(1));
    }
}

fn pool_key(name: &str) -> Key {
    Key { kind: broker::CONTROLLER, namespace: String::new(), name: name.to_owned() }
}

/// The object that a Job belongs to.
fn owner_of(job: &JobFacts) -> Key {
    Key {
        kind: match job.owner_kind {
            RUN => tuning_run::CONTROLLER,
            _ => model_compilation::CONTROLLER,
        },
        namespace: job.namespace.clone(),
        name: job.owner.clone(),
    }
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
