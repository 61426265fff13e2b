//! Pools as those see them who want a device: what one offers, who may use it, and which device was granted.

use std::collections::BTreeMap;

use hone_crds::common::Accelerator;
use hone_crds::device_pool::{DeviceKind, DevicePoolSpec, DevicePoolStatus};
use hone_crds::model_compilation::Worker;
use hone_crds::{DevicePool, Platform};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::DeviceLease;
use super::slots::is_leased;
use crate::children::names::CPU_LABEL;
use crate::children::reasons::Reason;
use crate::context::Context;
use crate::nodes::NodeFacts;
use crate::runtime::cache::Object;

/// The processor of the machine that compiles.
pub const HOST_CPU: &str = "host";

/// A device that a Job may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// The pool that granted it.
    pub pool: String,
    /// The slot, which is the name of its Lease.
    pub slot: String,
    /// The node that it is on.
    pub node: String,
    /// The number of the grant.
    pub fence: u64,
}

/// A DevicePool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: DevicePoolSpec,
    /// Jobs that compile or wait in it now, which its status tells later or, while they wait, not at all.
    #[serde(default)]
    pub assigned: i64,
    /// The machine, where all of the pool is one.
    #[serde(default)]
    pub machine: Option<String>,
    /// Whether another operator grants its devices.
    #[serde(default)]
    pub foreign: bool,
    /// Its status, for free devices.
    #[serde(default)]
    pub status: DevicePoolStatus,
}

/// The namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceView {
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether it is going away.
    #[serde(default)]
    pub terminating: bool,
}

/// Why there is no pool. Only a pool of the wrong kind is terminal: others may be made or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPool {
    /// The word.
    pub reason: Reason,
    /// What is missing and what to do.
    pub message: String,
}

/// The architecture and so on that a pool offers; `None` where neither field nor label says.
#[derive(Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Operating system.
    pub os: Option<&'a str>,
    /// Architecture.
    pub arch: Option<&'a str>,
    /// Processor.
    pub cpu: Option<&'a str>,
    /// What runs every step in place of the processor.
    pub accelerator: Option<Accelerator>,
}

/// What `pool` offers: its `platform`, else the labels of its nodes. GPUs of which no more is said are driven by OpenCL.
pub fn offer(pool: &PoolView) -> Offer<'_> {
    let labels = pool.spec.node_selector.as_ref();
    let label = |name: &str| labels.and_then(|all| all.get(name)).map(String::as_str);
    let platform = pool.spec.platform.as_ref();
    Offer {
        os: platform.map(|p| p.os.as_str()).or_else(|| label("kubernetes.io/os")),
        arch: platform.map(|p| p.arch.as_str()).or_else(|| label("kubernetes.io/arch")),
        cpu: platform.and_then(|p| p.cpu.as_deref()).or_else(|| label(CPU_LABEL)),
        accelerator: (pool.spec.kind == DeviceKind::Gpu)
            .then(|| platform.and_then(|p| p.accelerator).unwrap_or(Accelerator::OpenCl)),
    }
}

/// The labels that nodes for `platform` carry.
pub fn wanted_labels(platform: &Platform) -> BTreeMap<&'static str, &str> {
    let mut labels = BTreeMap::from([("kubernetes.io/arch", platform.arch.as_str())]);
    if platform.os != "none" {
        labels.insert("kubernetes.io/os", &platform.os);
    }
    if let Some(cpu) = platform.cpu.as_deref().filter(|cpu| !any_node(cpu)) {
        labels.insert(CPU_LABEL, cpu);
    }
    labels
}

/// Whether `cpu` names no particular processor: `generic` runs anywhere, and `host` is whatever
/// the worker's node has.
fn any_node(cpu: &str) -> bool {
    cpu == "generic" || cpu == HOST_CPU
}

/// Whether `pool` may be used from the namespace.
pub fn allows(pool: &PoolView, name: &str, namespace: &NamespaceView) -> bool {
    let Some(allowed) = &pool.spec.allowed_namespaces else {
        return true;
    };
    let named = allowed.names.iter().flatten().any(|n| n == name);
    let labelled = allowed.match_labels.as_ref().is_some_and(|wanted| {
        wanted.iter().all(|(key, value)| namespace.labels.get(key) == Some(value))
    });
    named || labelled
}

/// The kind of pools that build for `platform`: those whose devices run the result, and for browsers, whose devices no pool
/// has, those that every cluster has.
pub fn kind_for(platform: &Platform) -> DeviceKind {
    match platform.accelerator {
        None | Some(Accelerator::WebGpu) => DeviceKind::Cpu,
        Some(_) => DeviceKind::Gpu,
    }
}

/// Whether workers for `platform` may run in the pool, and its devices run what is built for it.
pub fn fits(pool: &PoolView, platform: &Platform) -> bool {
    pool.spec.kind == kind_for(platform) && runs(pool, platform)
}

/// Whether the pool's devices run what is built for `platform`, where they are of the kind for it.
fn runs(pool: &PoolView, platform: &Platform) -> bool {
    let offer = offer(pool);
    let same = |wanted: &str, has: Option<&str>| has.is_none_or(|has| has == wanted);
    let cpu = platform.cpu.as_deref().is_none_or(|cpu| any_node(cpu) || offer.cpu == Some(cpu));
    same(&platform.arch, offer.arch)
        && (platform.os == "none" || same(&platform.os, offer.os))
        && cpu
        && runs_accelerator(pool, platform)
}

/// Whether the devices of a pool run what is built for a platform's accelerator, where the pool says what they are.
fn runs_accelerator(pool: &PoolView, platform: &Platform) -> bool {
    let said = pool.spec.platform.as_ref().and_then(|own| own.accelerator);
    match (said, platform.accelerator) {
        (Some(said), Some(wanted)) => said.runs(wanted),
        _ => true,
    }
}

/// Devices that no worker holds or waits for, which may be less than none; unknown counts as one device.
pub fn free(pool: &PoolView) -> i64 {
    let capacity = pool.status.capacity.as_ref();
    let held = capacity.map_or(0, |capacity| capacity.leased).max(pool.assigned);
    capacity.and_then(|capacity| capacity.total).unwrap_or(1) - held
}

/// Of candidates, the one whose worker needs no lease and is made at once: none while a pool that leases its devices,
/// and so measures better, has one free.
pub fn without_lease<'a>(candidates: &[&'a PoolView]) -> Option<&'a PoolView> {
    let better = candidates.iter().any(|pool| is_leased(&pool.spec) && free(pool) > 0);
    let mut shared = candidates.iter().filter(|pool| !is_leased(&pool.spec) && !better);
    shared.next().copied()
}

/// The names of those candidates that lease their devices.
pub fn leased(candidates: &[&PoolView]) -> Vec<String> {
    let leased = candidates.iter().filter(|pool| is_leased(&pool.spec));
    leased.map(|pool| pool.name.clone()).collect()
}

/// What a pool is named for: only a search can have its devices outside of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Compiling and measuring a target, in a pod on the device.
    Compile,
    /// A tuning run.
    Tune,
}

/// The pool `name`, where it may be used from a namespace for `platform`.
///
/// # Errors
/// [`NoPool`], saying what keeps it from being used.
pub fn named<'a>(
    pools: &'a [PoolView],
    (name, use_): (&str, Use),
    platform: Option<&Platform>,
    namespace_name: &str,
    namespace: &NamespaceView,
) -> Result<&'a PoolView, NoPool> {
    let missing = |reason, message| Err(NoPool { reason, message });
    let Some(pool) = pools.iter().find(|pool| pool.name == name) else {
        let why = format!("there is no DevicePool '{name}': make it or name another");
        return missing(Reason::PoolNotFound, why);
    };
    if let Some(why) = wrong_kind(pool, use_, platform) {
        return missing(Reason::PoolNotSupported, format!("DevicePool '{name}' {why}"));
    }
    if pool.foreign {
        let why = format!(
            "the devices of DevicePool '{name}' are granted by another operator: name another pool, or set managedBy of this one"
        );
        return missing(Reason::PoolManagedElsewhere, why);
    }
    if !allows(pool, namespace_name, namespace) {
        let why = format!(
            "DevicePool '{name}' does not allow namespace '{namespace_name}': ask its administrator to add it to allowedNamespaces"
        );
        return missing(Reason::PoolNotAllowed, why);
    }
    if let Some(platform) = platform
        && !runs(pool, platform)
    {
        let why = format!(
            "DevicePool '{name}' offers {}, the target needs {}: name another pool or correct the platform",
            describe(&offer(pool)),
            labels_text(platform),
        );
        return missing(Reason::PoolMismatch, why);
    }
    Ok(pool)
}

/// Why a pool's kind is not that of a platform's devices, where it is not.
fn wrong_kind(pool: &PoolView, use_: Use, platform: Option<&Platform>) -> Option<String> {
    let kind = pool.spec.kind;
    let word = kind.as_str();
    if (kind, use_) == (DeviceKind::External, Use::Tune) {
        return wrong_elsewhere(platform?);
    }
    if !matches!(kind, DeviceKind::Cpu | DeviceKind::Gpu) {
        return Some(format!(
            "is of kind {word}, for which this release makes no code: name a pool of kind CPU or GPU"
        ));
    }
    let wanted = platform.map(kind_for).filter(|wanted| *wanted != kind)?;
    Some(match wanted {
        DeviceKind::Gpu => format!(
            "is of kind {word}, and the platform has an accelerator: name a pool of kind GPU, or remove platform.accelerator"
        ),
        _ => {
            let what = match platform.and_then(|own| own.accelerator) {
                Some(_) => "browsers",
                None => "processors",
            };
            format!(
                "is of kind {word}, and code for {what} would hold a device that it does not use: set platform.accelerator to opencl, or name a pool of kind CPU"
            )
        }
    })
}

/// Why code for a platform cannot be made on one machine and measured on others outside of the cluster, where it cannot.
fn wrong_elsewhere(platform: &Platform) -> Option<String> {
    if platform.accelerator.is_some() {
        return Some(
            "is of kind External, whose devices are processors: remove the accelerator".to_owned(),
        );
    }
    (platform.cpu.as_deref() == Some(HOST_CPU)).then(|| {
        "is of kind External: 'host' would be the processor of the pod that searches, so name that of the devices in target.cpu".to_owned()
    })
}

/// The labels that nodes for a platform carry, in words.
pub fn labels_text(platform: &Platform) -> String {
    let labels: Vec<String> =
        wanted_labels(platform).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(", ")
}

/// What a pool offers, in words.
pub fn describe(offer: &Offer<'_>) -> String {
    let parts: Vec<String> = [
        ("kubernetes.io/os", offer.os),
        ("kubernetes.io/arch", offer.arch),
        (CPU_LABEL, offer.cpu),
    ]
    .into_iter()
    .filter_map(|(key, value)| value.map(|value| format!("{key}={value}")))
    .collect();
    if parts.is_empty() { "no platform labels".to_owned() } else { parts.join(", ") }
}

/// Every pool that is not about to go.
pub fn pools(context: &Context) -> Vec<PoolView> {
    let mut pools: Vec<PoolView> = context
        .stores
        .pools
        .all()
        .iter()
        .filter(|pool| pool.metadata.deletion_timestamp.is_none())
        .map(|pool| PoolView {
            name: pool.name_any(),
            assigned: assigned(context, pool),
            machine: machine(context, pool),
            foreign: is_foreign(pool, &context.config.namespace),
            spec: pool.spec.clone(),
            status: pool.status.clone().unwrap_or_default(),
        })
        .collect();
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    pools
}

/// Devices that are held or asked for; Jobs under way where nothing is leased.
fn assigned(context: &Context, pool: &DevicePool) -> i64 {
    let name = pool.name_any();
    match is_leased(&pool.spec) {
        true => context.broker.held(&name) + context.broker.unserved(&name),
        false => context.stores.load.of(&name),
    }
}

/// The machine of a pool that has only one.
fn machine(context: &Context, pool: &DevicePool) -> Option<String> {
    let selector = pool.spec.node_selector.iter().flatten();
    let selector: Vec<(&String, &String)> = selector.collect();
    let of = |node: &NodeFacts| {
        let matches = selector.iter().all(|(key, value)| node.labels.get(*key) == Some(*value));
        matches.then(|| node.machine.clone())
    };
    // A second one is enough to know that there are several.
    let machines = context.stores.nodes.pick_first(2, of);
    match &machines[..] {
        [machine] => machine.clone(),
        _ => None,
    }
}

/// Whether another operator grants the pool's devices.
fn is_foreign(pool: &DevicePool, install: &str) -> bool {
    let claimed = pool.status.as_ref().and_then(|status| status.managed_by.as_deref());
    pool.spec.managed_by.as_deref().or(claimed).is_some_and(|manager| manager != install)
}

/// The device that a Job was granted.
pub fn grant(context: &Context, namespace: &str, job: &str) -> Option<Grant> {
    let lease = context.broker.grant(namespace, job)?;
    let DeviceLease { name: slot, pool, node, fence, .. } = lease;
    Some(Grant { pool, slot, node, fence })
}

/// The value of the priority class that workers get.
pub fn priority(context: &Context, worker: Option<&Worker>) -> i32 {
    let classes = &context.stores.priorities;
    match worker.and_then(|worker| worker.priority_class_name.as_deref()) {
        Some(name) => classes.get("", name).map_or(0, |class| class.value),
        None => {
            let default = |class: &Object<PriorityClass>| {
                (class.0.global_default == Some(true)).then_some(class.0.value)
            };
            classes.pick(default).first().copied().unwrap_or(0)
        }
    }
}

/// A namespace; without labels where nothing is known of it.
pub fn namespace_view(context: &Context, name: &str) -> NamespaceView {
    let Some(namespace) = context.stores.namespaces.get("", name) else {
        return NamespaceView::default();
    };
    NamespaceView {
        labels: namespace.labels().clone(),
        terminating: namespace.metadata.deletion_timestamp.is_some(),
    }
}
