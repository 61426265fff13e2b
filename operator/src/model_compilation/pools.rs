//! Chooses the DevicePool that a target is worked on in.

use std::collections::BTreeMap;

use hone_crds::Platform;
use hone_crds::device_pool::DeviceKind;
use hone_crds::model_compilation::Target;

use super::model::{NamespaceView, PoolView};
use crate::broker::slots::is_leased;
use crate::children::names::CPU_LABEL;
use crate::children::reasons::Reason;

/// The processor of the machine that compiles.
pub const HOST_CPU: &str = "host";

/// Why a target has no pool. Only a pool of the wrong kind is terminal: others may be made or changed.
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
}

/// What `pool` offers: its `platform`, else the labels of its nodes.
pub fn offer(pool: &PoolView) -> Offer<'_> {
    let labels = pool.spec.node_selector.as_ref();
    let label = |name: &str| labels.and_then(|all| all.get(name)).map(String::as_str);
    let platform = pool.spec.platform.as_ref();
    Offer {
        os: platform.map(|p| p.os.as_str()).or_else(|| label("kubernetes.io/os")),
        arch: platform.map(|p| p.arch.as_str()).or_else(|| label("kubernetes.io/arch")),
        cpu: platform.and_then(|p| p.cpu.as_deref()).or_else(|| label(CPU_LABEL)),
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
fn allows(pool: &PoolView, name: &str, namespace: &NamespaceView) -> bool {
    let Some(allowed) = &pool.spec.allowed_namespaces else {
        return true;
    };
    let named = allowed.names.iter().flatten().any(|n| n == name);
    let labelled = allowed.match_labels.as_ref().is_some_and(|wanted| {
        wanted.iter().all(|(key, value)| namespace.labels.get(key) == Some(value))
    });
    named || labelled
}

/// Whether the pool's devices run what is built for `platform`.
pub fn fits(pool: &PoolView, platform: &Platform) -> bool {
    let offer = offer(pool);
    let same = |wanted: &str, has: Option<&str>| has.is_none_or(|has| has == wanted);
    let cpu = platform.cpu.as_deref().is_none_or(|cpu| any_node(cpu) || offer.cpu == Some(cpu));
    same(&platform.arch, offer.arch)
        && (platform.os == "none" || same(&platform.os, offer.os))
        && cpu
}

/// Devices that no worker holds or waits for, which may be less than none; unknown counts as one device.
fn free(pool: &PoolView) -> i64 {
    let capacity = pool.status.capacity.as_ref();
    let held = capacity.map_or(0, |capacity| capacity.leased).max(pool.assigned);
    capacity.and_then(|capacity| capacity.total).unwrap_or(1) - held
}

/// The pools that `target` may be worked on in: the one it names, else those that fit, the one that `before` names
/// first, then the cheapest with a device free, then the one with most devices free.
///
/// # Errors
/// [`NoPool`], saying what is missing, where there is none.
pub fn candidates<'a>(
    pools: &'a [PoolView],
    target: &Target,
    before: Option<&str>,
    namespace_name: &str,
    namespace: &NamespaceView,
) -> Result<Vec<&'a PoolView>, NoPool> {
    if let Some(name) = &target.pool {
        return named(pools, target, name, namespace_name, namespace).map(|pool| vec![pool]);
    }
    let Some(platform) = &target.platform else {
        // The schema asks for one of both.
        return Err(missing(Reason::NoMatchingPool, target, "it names no platform"));
    };
    let usable = |pool: &&PoolView| {
        pool.spec.kind == DeviceKind::Cpu
            && !pool.foreign
            && fits(pool, platform)
            && allows(pool, namespace_name, namespace)
    };
    let mut candidates: Vec<&PoolView> = pools.iter().filter(usable).collect();
    candidates.sort_by(|a, b| {
        let was = |pool: &PoolView| before != Some(pool.name.as_str());
        let busy = |pool: &PoolView| free(pool) <= 0;
        (was(a), busy(a))
            .cmp(&(was(b), busy(b)))
            .then(price(a).total_cmp(&price(b)))
            .then(free(b).cmp(&free(a)))
            .then(a.name.cmp(&b.name))
    });
    match candidates.is_empty() {
        true => Err(no_match(pools, target, platform, namespace_name)),
        false => Ok(candidates),
    }
}

/// What a device costs; nothing where the pool does not say.
fn price(pool: &PoolView) -> f64 {
    pool.spec.price_per_hour.as_ref().map_or(0.0, hone_crds::Decimal::value)
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

fn missing(reason: Reason, target: &Target, why: &str) -> NoPool {
    NoPool { reason, message: format!("target '{}' has no pool: {why}", target.name) }
}

fn named<'a>(
    pools: &'a [PoolView],
    target: &Target,
    name: &str,
    namespace_name: &str,
    namespace: &NamespaceView,
) -> Result<&'a PoolView, NoPool> {
    let Some(pool) = pools.iter().find(|pool| pool.name == name) else {
        let why = format!("there is no DevicePool '{name}': make it or name another");
        return Err(missing(Reason::PoolNotFound, target, &why));
    };
    if pool.spec.kind != DeviceKind::Cpu {
        let kind = pool.spec.kind.as_str();
        let why = format!(
            "DevicePool '{name}' is of kind {kind}, and this release makes code for CPUs alone, which would hold a device that it does not use: name a pool of kind CPU"
        );
        return Err(missing(Reason::PoolNotSupported, target, &why));
    }
    if pool.foreign {
        let why = format!(
            "the devices of DevicePool '{name}' are granted by another operator: name another pool, or set managedBy of this one"
        );
        return Err(missing(Reason::PoolManagedElsewhere, target, &why));
    }
    if !allows(pool, namespace_name, namespace) {
        let why = format!(
            "DevicePool '{name}' does not allow namespace '{namespace_name}': ask its administrator to add it to allowedNamespaces"
        );
        return Err(missing(Reason::PoolNotAllowed, target, &why));
    }
    if let Some(platform) = &target.platform
        && !fits(pool, platform)
    {
        let why = format!(
            "DevicePool '{name}' offers {}, the target needs {}: name another pool or correct the platform",
            describe(&offer(pool)),
            labels_text(platform),
        );
        return Err(missing(Reason::PoolMismatch, target, &why));
    }
    Ok(pool)
}

fn no_match(pools: &[PoolView], target: &Target, platform: &Platform, namespace: &str) -> NoPool {
    let there: Vec<String> = pools
        .iter()
        .take(8)
        .map(|pool| format!("'{}' ({})", pool.name, describe(&offer(pool))))
        .collect();
    let there = match pools.len() {
        0 => "there is no DevicePool at all".to_owned(),
        n if n > 8 => format!("of {n} pools none does, such as {}", there.join(", ")),
        _ => format!("there are {}", there.join(", ")),
    };
    let why = format!(
        "it needs a DevicePool of kind CPU that allows namespace '{namespace}' and whose nodeSelector or platform says {}; {there}",
        labels_text(platform),
    );
    missing(Reason::NoMatchingPool, target, &why)
}

fn labels_text(platform: &Platform) -> String {
    let labels: Vec<String> =
        wanted_labels(platform).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(", ")
}

fn describe(offer: &Offer<'_>) -> String {
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
