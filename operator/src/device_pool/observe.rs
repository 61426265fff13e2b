//! Gathers a pool's nodes, leases and results from the watched caches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hone_artifact::progress::SessionSeen;
use hone_crds::DevicePool;
use hone_crds::device_pool::DeviceKind;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use serde::Deserialize;

use crate::broker::grant::{HolderJob, SLACK, State};
use crate::broker::{DeviceLease, Holder, Slot, slots};
use crate::children::jobs::JobFacts;
use crate::children::pods::JOB_LABEL;
use crate::children::{names, owner};
use crate::context::Context;
use crate::nodes::NodeFacts;
use crate::runtime::cache::{Cache, Object};
use crate::seen::SeenPod;

/// What a pool's status depends on.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observed {
    /// The clock.
    pub now: Time,
    /// The pool.
    pub object: DevicePool,
    /// The namespace of this operator.
    #[serde(default)]
    pub install: String,
    /// Nodes that carry all its labels.
    #[serde(default)]
    pub nodes: Vec<NodeView>,
    /// Devices that are leased; Jobs under way where the pool leases nothing.
    #[serde(default)]
    pub leased: i64,
    /// Targets that wait for a device.
    #[serde(default)]
    pub waiting: i64,
    /// Sessions outside of the cluster, as searches told of them, and the seconds since then.
    #[serde(default)]
    pub sessions: Vec<(SessionSeen, i64)>,
    /// Results by the fingerprint of what they were measured on.
    #[serde(default)]
    pub fingerprints: BTreeMap<String, i64>,
}

/// A node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Whether it is ready and takes pods.
    #[serde(default)]
    pub usable: bool,
    /// Taints that keep pods away.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// How many of the pool's extended resource it has.
    #[serde(default)]
    pub devices: i64,
}

/// What there is for `object`.
pub fn observe(context: &Context, object: &DevicePool) -> Observed {
    let name = object.name_any();
    let (leased, waiting) = match slots::is_leased(&object.spec) {
        true => (context.broker.held(&name), context.broker.unserved(&name)),
        false => (context.stores.load.of(&name), 0),
    };
    Observed {
        now: Time(Timestamp::now()),
        install: context.config.namespace.clone(),
        nodes: nodes(context, object),
        leased,
        waiting,
        sessions: sessions(context, object),
        fingerprints: context.stores.fingerprints.of(&name),
        object: object.clone(),
    }
}

/// What the searches in a pool told of the sessions outside of the cluster.
fn sessions(context: &Context, object: &DevicePool) -> Vec<(SessionSeen, i64)> {
    if object.spec.kind != DeviceKind::External {
        return Vec::new();
    }
    let name = object.name_any();
    let in_pool = |job: &JobFacts| {
        let is_here = job.view.pool.as_ref() == Some(&name) && job.is_under_way();
        is_here.then(|| job.uid.clone())
    };
    let posts = context.stores.jobs.pick(in_pool).into_iter();
    let posts = posts.filter_map(|uid| context.stores.posts.sessions_of(&uid));
    let aged = posts.flat_map(|(sessions, ago)| {
        let ago = i64::try_from(ago.as_secs()).unwrap_or(i64::MAX);
        sessions.into_iter().map(move |own| (own, ago))
    });
    aged.collect()
}

/// Whether a node carries the labels of a pool.
pub fn selects(pool: &DevicePool, node: &NodeFacts) -> bool {
    let selector = pool.spec.node_selector.iter().flatten();
    selector.into_iter().all(|(key, value)| node.labels.get(key) == Some(value))
}

fn nodes(context: &Context, object: &DevicePool) -> Vec<NodeView> {
    let view = |node: &NodeFacts| selects(object, node).then(|| node_view(node, object));
    context.stores.nodes.pick(view)
}

fn node_view(node: &NodeFacts, pool: &DevicePool) -> NodeView {
    let resource = pool.spec.extended_resource.as_ref();
    let devices = resource.and_then(|resource| {
        let mut devices = node.devices.iter();
        devices.find(|(name, _)| *name == resource.name).map(|(_, count)| *count)
    });
    NodeView {
        name: node.name.clone(),
        usable: node.usable,
        taints: node.taints.clone(),
        devices: devices.unwrap_or(0),
    }
}

/// What decides about the leases of `object`.
pub fn leases(context: &Context, object: &DevicePool) -> State {
    let name = object.name_any();
    let spec = &object.spec;
    let usable = nodes(context, object);
    let usable = usable.iter().filter(|n| n.usable && slots::tolerated(spec, &n.taints));
    let slots: Vec<Slot> = usable
        .flat_map(|node| {
            slots::slots(spec, &slots::Node { name: &node.name, devices: node.devices })
        })
        .collect();
    let leases = context.broker.leases();
    let (jobs, applicants) = holders(context, &leases);
    let over =
        leases.iter().filter(|lease| lease.holder.is_some() && context.broker.is_over(lease));
    let over = over.map(|lease| lease.name.clone()).collect();
    // With a quota the first may be passed over, so all are looked at.
    let most = spec.max_per_namespace.map_or(slots.len(), |_| usize::MAX);
    let mut waiting = context.broker.waiting(&name, most);
    waiting.retain(|(applicant, request)| {
        !context.broker.served_better(&applicant.namespace, request, &name)
    });
    State {
        slots,
        jobs,
        over,
        occupied: BTreeSet::new(),
        claimed: claimed(context),
        applicants,
        waiting,
        pools: context.stores.pools.pick(|pool| Some(pool.0.name_any())).into_iter().collect(),
        nodes: context.stores.nodes.pick(|node| Some(node.name.clone())).into_iter().collect(),
        max_per_namespace: spec.max_per_namespace,
        pool: name,
        leases,
    }
}

/// Which of `leases` a pod still uses, by the slot and the fence that it carries. The API server is asked, since those
/// that run are not watched; where it does not answer, all of them are taken for used.
pub async fn occupied(context: &Context, leases: &[&DeviceLease]) -> BTreeSet<String> {
    let mut occupied = BTreeSet::new();
    for lease in leases {
        let Some(holder) = &lease.holder else { continue };
        let api: Api<SeenPod> = Api::namespaced(context.client.clone(), &holder.namespace);
        let of_job = ListParams::default().labels(&format!("{JOB_LABEL}={}", holder.job));
        let used = match api.list(&of_job).await {
            Ok(list) => list.items.iter().any(|pod| uses(pod, lease)),
            Err(error) => {
                tracing::warn!(%error, job = holder.job, "the pods of the Job cannot be listed");
                true
            }
        };
        if used {
            occupied.insert(lease.name.clone());
        }
    }
    occupied
}

/// Whether a pod that has not ended was given `lease`.
fn uses(pod: &SeenPod, lease: &DeviceLease) -> bool {
    let ended = pod.status.phase == "Succeeded" || pod.status.phase == "Failed";
    let annotation = |key: &str| pod.annotations().get(key).map(String::as_str);
    let fence = lease.fence.to_string();
    !ended
        && annotation(names::SLOT_ANNOTATION) == Some(lease.name.as_str())
        && annotation(names::FENCE_ANNOTATION) == Some(fence.as_str())
}

type Jobs = HashMap<(String, String), HolderJob>;

/// The Jobs of all holders, and the uids of those holders that exist.
fn holders(context: &Context, leases: &[Arc<DeviceLease>]) -> (Jobs, BTreeSet<String>) {
    let (mut jobs, mut applicants) = (Jobs::new(), BTreeSet::new());
    for holder in leases.iter().filter_map(|lease| lease.holder.as_ref()) {
        let group = owner::group(&holder.namespace, &holder.applicant.uid);
        let of_holder = |job: &JobFacts| (job.view.name == holder.job).then(|| holder_job(job));
        if let Some(job) = context.stores.jobs.pick_of(&group, of_holder).pop() {
            jobs.insert((holder.namespace.clone(), holder.job.clone()), job);
        }
        if lives(&context.stores.compilations, holder) || lives(&context.stores.tuning_runs, holder)
        {
            applicants.insert(holder.applicant.uid.clone());
        }
    }
    (jobs, applicants)
}

/// Whether a lease's holder exists, as an object of one kind, and is not being deleted.
fn lives<K>(cache: &Cache<Object<K>>, holder: &Holder) -> bool
where
    K: Resource + Send + Sync + 'static,
{
    let object = cache.get(&holder.namespace, &holder.applicant.name);
    object.is_some_and(|object| {
        let metadata = object.meta();
        metadata.deletion_timestamp.is_none()
            && metadata.uid.as_ref() == Some(&holder.applicant.uid)
    })
}

/// The slots of Jobs under way, within their deadlines.
fn claimed(context: &Context) -> BTreeSet<String> {
    let now = Timestamp::now();
    let slack = SignedDuration::from_secs(SLACK);
    let slot = |job: &JobFacts| {
        // A pod that waits for its device uses none, whatever an earlier one was given.
        let claims = job.view.finish.is_none() && (!job.view.gated || job.view.ready > 0);
        let slot = job.view.slot.as_ref().filter(|_| claims)?;
        let end = holder_job(job).deadline.checked_add(slack).unwrap_or(Timestamp::MAX);
        (now < end).then(|| slot.clone())
    };
    context.stores.jobs.pick(slot).into_iter().collect()
}

fn holder_job(job: &JobFacts) -> HolderJob {
    let view = &job.view;
    let start = view.started.as_ref().or(view.created.as_ref()).map_or(Timestamp::MIN, |t| t.0);
    let limit = SignedDuration::from_secs(view.active_deadline_seconds.unwrap_or(0));
    HolderJob {
        finished: job.gave_back(),
        deadline: start.checked_add(limit).unwrap_or(Timestamp::MAX),
    }
}
