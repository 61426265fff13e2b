//! The slots of a pool: what its workers can have to themselves.

use hone_crds::device_pool::{DeviceKind, DevicePoolSpec, Exclusivity, Toleration};
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::children::bounds;

/// One device, or one node as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Slot {
    /// The name of its Lease.
    pub name: String,
    /// The node.
    pub node: String,
    /// Whether it is the whole node.
    pub whole: bool,
}

/// What the slots of a pool are read from: a node.
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many of the pool's extended resource it has.
    pub devices: i64,
}

/// Whether workers of the pool are held apart by leases.
pub fn is_leased(spec: &DevicePoolSpec) -> bool {
    // What is outside of the cluster is not the operator's to give.
    spec.kind != DeviceKind::External
        && spec.exclusivity != Exclusivity::Shared
        && spec.resource_claim_template.is_none()
}

/// How many workers a node takes at once; each has its slot where the pool is leased.
pub fn per_node(spec: &DevicePoolSpec, devices: i64) -> i64 {
    let Some(resource) = &spec.extended_resource else { return 1 };
    let fit = devices / resource.count.max(1);
    match spec.exclusivity {
        Exclusivity::Node => fit.min(1),
        Exclusivity::Device | Exclusivity::Shared => fit,
    }
}

/// The slots of a node.
pub fn slots(spec: &DevicePoolSpec, node: &Node<'_>) -> Vec<Slot> {
    let whole = spec.extended_resource.is_none() || spec.exclusivity == Exclusivity::Node;
    let count = per_node(spec, node.devices).min(MOST);
    let resource = spec.extended_resource.as_ref().map_or("", |resource| &resource.name);
    let slot = |index: i64| {
        let name = match whole {
            true => lease_name(&[node.name]),
            false => lease_name(&[node.name, resource, &index.to_string()]),
        };
        Slot { name, node: node.name.to_owned(), whole }
    };
    (0..count).map(slot).collect()
}

/// Most slots of one node.
const MOST: i64 = 1024;

/// The name of a slot's Lease, which is an object's name whatever the parts are.
fn lease_name(parts: &[&str]) -> String {
    let readable = format!("device-{}", parts.join("-")).replace('/', "-").to_lowercase();
    match readable.len() <= bounds::NAME && parts.len() == 1 {
        true => readable,
        // Parts could be cut in several ways: the digest tells them apart.
        false => bounds::label(&format!("device-{}", parts.join("/"))).to_lowercase(),
    }
}

/// Whether workers may run in spite of the taints.
pub fn tolerated(spec: &DevicePoolSpec, taints: &[Taint]) -> bool {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(text: &str) -> DevicePoolSpec {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn a_slot_is_named_after_its_device_and_not_after_the_pool() {
        let node = Node { name: "n-1.example", devices: 5 };
        let whole = slots(&spec("{kind: CPU}"), &node);
        assert_eq!(whole.len(), 1);
        assert_eq!((whole[0].name.as_str(), whole[0].whole), ("device-n-1.example", true));
        let gpus = "{kind: GPU, extendedResource: {name: x.dev/gpu, count: 2}";
        let devices = slots(&spec(&format!("{gpus}}}")), &node);
        assert_eq!(devices.len(), 2);
        assert!(devices[0].name != devices[1].name && !devices[0].whole);
        assert!(devices.iter().all(|slot| bounds::is_label(&slot.name)), "{devices:?}");
        // The whole node with its devices is the node's own slot.
        assert_eq!(slots(&spec(&format!("{gpus}, exclusivity: Node}}")), &node), whole);
        let long = Node { name: &"a".repeat(253), devices: 0 };
        assert!(slots(&spec("{kind: CPU}"), &long)[0].name.len() <= bounds::NAME);
    }

    #[test]
    fn shared_pools_and_claims_lease_nothing() {
        assert!(is_leased(&spec("{kind: CPU}")));
        assert!(!is_leased(&spec("{kind: CPU, exclusivity: Shared}")));
        assert!(!is_leased(&spec("{kind: External}")));
        assert!(!is_leased(&spec("{kind: FPGA, resourceClaimTemplate: {name: t}}")));
    }
}
