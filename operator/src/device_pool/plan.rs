//! Decides a pool's status from values alone.

use hone_crds::conditions::{READY, RECONCILING, STALLED, State, set};
use hone_crds::device_pool::{Capacity, DeviceKind, DevicePoolSpec, ExternalSession, Fingerprint};
use hone_crds::{DevicePool, DevicePoolStatus};

use super::observe::{NodeView, Observed};
use super::sessions;
use crate::broker::slots::{self, tolerated};

/// Most fingerprints that a status lists.
const FINGERPRINTS: usize = 32;

/// Whether the operator of namespace `install` grants the devices of a pool: the one that the spec names, else the one
/// that claimed it first.
pub fn is_ours(pool: &DevicePool, install: &str) -> bool {
    let claimed = pool.status.as_ref().and_then(|status| status.managed_by.as_deref());
    pool.spec.managed_by.as_deref().or(claimed).is_none_or(|manager| manager == install)
}

/// The status.
pub fn plan(observed: &Observed) -> DevicePoolStatus {
    let object = &observed.object;
    let spec = &object.spec;
    let before = object.status.clone().unwrap_or_default();
    let nodes: Vec<&NodeView> =
        observed.nodes.iter().filter(|node| node.usable && tolerated(spec, &node.taints)).collect();
    let capacity = Capacity {
        nodes: nodes.len() as i64,
        total: total(spec, &nodes),
        leased: observed.leased,
        waiting: observed.waiting,
    };
    let sessions = sessions::merged(&before.sessions, &observed.sessions, &observed.now);
    let (ready, stalled, reason, message) = judge(observed, &capacity, &sessions);
    let mut conditions = before.conditions;
    let generation = object.metadata.generation;
    for (kind, state) in [
        (READY, State::from(ready)),
        (RECONCILING, State::from(!ready && !stalled)),
        (STALLED, State::from(stalled)),
    ] {
        let now = &observed.now;
        set(&mut conditions, kind, state, reason, &message, generation, now);
    }
    DevicePoolStatus {
        observed_generation: generation,
        capacity: (spec.kind != DeviceKind::External).then_some(capacity),
        fingerprints: fingerprints(observed),
        sessions,
        managed_by: (!observed.install.is_empty()).then(|| observed.install.clone()),
        conditions,
    }
}

/// Ready, stalled, reason and message.
fn judge(
    observed: &Observed,
    capacity: &Capacity,
    sessions: &[ExternalSession],
) -> (bool, bool, &'static str, String) {
    let spec = &observed.object.spec;
    if spec.kind == DeviceKind::External {
        return (true, false, "Ready", sessions::note(sessions));
    }
    if observed.nodes.is_empty() {
        let labels: Vec<String> = spec
            .node_selector
            .iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let message =
            format!("no node carries {}: label nodes or change nodeSelector", labels.join(", "));
        return (false, false, "NoNodes", message);
    }
    if capacity.nodes == 0 {
        let message = format!(
            "none of {} matching nodes takes workers: they are not ready, cordoned, or tainted without a toleration in the pool",
            observed.nodes.len()
        );
        return (false, false, "NoUsableNodes", message);
    }
    if let (Some(resource), Some(0)) = (&spec.extended_resource, capacity.total) {
        let message = format!(
            "no matching node has {} of {}: look at the device plugin",
            resource.count, resource.name
        );
        return (false, false, "NoDevices", message);
    }
    let devices = match capacity.total {
        Some(total) => format!("{total} workers fit on {} nodes", capacity.nodes),
        None => format!("{} nodes; claims say how many devices", capacity.nodes),
    };
    (true, false, "Ready", devices)
}

/// Workers that fit at once.
fn total(spec: &DevicePoolSpec, nodes: &[&NodeView]) -> Option<i64> {
    if spec.resource_claim_template.is_some() {
        return None;
    }
    Some(nodes.iter().map(|node| slots::per_node(spec, node.devices)).sum())
}

fn fingerprints(observed: &Observed) -> Vec<Fingerprint> {
    let mut list: Vec<Fingerprint> = observed
        .fingerprints
        .iter()
        .map(|(digest, results)| Fingerprint { digest: digest.clone(), results: *results })
        .collect();
    list.sort_by(|a, b| b.results.cmp(&a.results).then(a.digest.cmp(&b.digest)));
    list.truncate(FINGERPRINTS);
    list
}
