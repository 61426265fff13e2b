//! Decides a pool's status from values alone.

use hone_crds::DevicePoolStatus;
use hone_crds::conditions::{READY, RECONCILING, STALLED, State, set};
use hone_crds::device_pool::{
    Capacity, DeviceKind, DeviceLease, DevicePoolSpec, Exclusivity, Fingerprint, Toleration,
};
use k8s_openapi::api::core::v1::Taint;

use super::observe::{NodeView, Observed};

/// Most leases that a status lists.
const LEASES: usize = 64;
/// Most fingerprints that a status lists.
const FINGERPRINTS: usize = 32;

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
        leased: observed.workers.len() as i64,
    };
    let (ready, stalled, reason, message) = judge(observed, &capacity);
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
        leases: leases(observed),
        conditions,
    }
}

/// Ready, stalled, reason and message.
fn judge(observed: &Observed, capacity: &Capacity) -> (bool, bool, &'static str, String) {
    let spec = &observed.object.spec;
    if spec.kind == DeviceKind::External {
        let message = "pools of kind External arrive in a later release: use CPU, GPU or FPGA";
        return (false, true, "NotImplemented", message.to_owned());
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
    let per_node = |node: &&NodeView| match &spec.extended_resource {
        Some(resource) => {
            let fit = node.devices / resource.count.max(1);
            match spec.exclusivity {
                Exclusivity::Node => fit.min(1),
                Exclusivity::Device | Exclusivity::Shared => fit,
            }
        }
        None => 1,
    };
    Some(nodes.iter().map(per_node).sum())
}

/// Whether workers may run in spite of the taints.
fn tolerated(spec: &DevicePoolSpec, taints: &[Taint]) -> bool {
    let keeps_away = |taint: &&Taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    taints
        .iter()
        .filter(keeps_away)
        .all(|taint| spec.tolerations.iter().any(|t| tolerates(t, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key = toleration.key.as_ref().is_none_or(|key| *key == taint.key);
    let wanted = toleration.value.as_deref().unwrap_or_default();
    let value = exists || wanted == taint.value.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_ref().is_none_or(|e| *e == taint.effect);
    key && value && effect
}

fn leases(observed: &Observed) -> Vec<DeviceLease> {
    let mut leases: Vec<DeviceLease> = observed
        .workers
        .iter()
        .map(|worker| DeviceLease {
            namespace: worker.namespace.clone(),
            job: worker.job.clone(),
            since: worker.since.clone(),
        })
        .collect();
    leases.sort_by(|a, b| {
        let key = |lease: &DeviceLease| lease.since.as_ref().map(|since| since.0);
        (key(a), &a.namespace, &a.job).cmp(&(key(b), &b.namespace, &b.job))
    });
    leases.truncate(LEASES);
    leases
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
