//! The status of a DevicePool: capacity, leases, fingerprints and conditions, from values.
#![allow(clippy::unwrap_used)]

use hone_crds::{DevicePool, DevicePoolStatus};
use hone_operator::device_pool::observe::Observed;
use hone_operator::device_pool::plan::{is_ours, plan};

/// The plan for a pool of this spec over these nodes and workers, as YAML.
fn planned(spec: &str, rest: &str) -> DevicePoolStatus {
    let text = format!(
        "now: 2026-01-01T00:00:00Z\nobject:\n  apiVersion: hone.dev/v1alpha1\n  kind: DevicePool\n  \
         metadata: {{name: p, generation: 3}}\n  spec: {spec}\n{rest}"
    );
    let observed: Observed = serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let status = plan(&observed);
    // Planning over the status changes nothing.
    let mut after = observed;
    after.object.status = Some(status.clone());
    assert_eq!(plan(&after), status);
    status
}

/// Reason, and whether it is Ready and Stalled.
fn condition(status: &DevicePoolStatus) -> (String, bool, bool) {
    let of = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind).unwrap();
    (of("Ready").reason.clone(), of("Ready").status == "True", of("Stalled").status == "True")
}

const CPU: &str = "{kind: CPU, nodeSelector: {a: b}}";

#[test]
fn nodes_that_take_workers_are_capacity() {
    let status = planned(
        "{kind: CPU, tolerations: [{key: lab, operator: Exists, effect: NoSchedule}]}",
        "nodes:
        - {name: good, usable: true}
        - {name: cordoned}
        - {name: tolerated, usable: true, taints: [{key: lab, effect: NoSchedule}]}
        - {name: tainted, usable: true, taints: [{key: other, effect: NoSchedule}]}
        - {name: preferred, usable: true, taints: [{key: other, effect: PreferNoSchedule}]}
install: hone
leased: 2
waiting: 5",
    );
    let capacity = status.capacity.clone().unwrap();
    assert_eq!((capacity.nodes, capacity.total), (3, Some(3)));
    assert_eq!((capacity.leased, capacity.waiting), (2, 5));
    assert_eq!(status.managed_by.as_deref(), Some("hone"));
    assert_eq!(condition(&status), ("Ready".to_owned(), true, false));
    assert_eq!(status.observed_generation, Some(3));
}

#[test]
fn devices_are_counted_by_what_a_worker_takes() {
    let spec = |exclusivity: &str| {
        format!(
            "{{kind: GPU, extendedResource: {{name: x.dev/gpu, count: 2}}, exclusivity: {exclusivity}}}"
        )
    };
    let nodes = "nodes: [{name: a, usable: true, devices: 5}, {name: b, usable: true, devices: 1}]";
    let total = |exclusivity| planned(&spec(exclusivity), nodes).capacity.unwrap().total;
    assert_eq!(total("Device"), Some(2));
    assert_eq!(total("Node"), Some(1));
    let none = planned(&spec("Device"), "nodes: [{name: a, usable: true}]");
    assert_eq!(condition(&none), ("NoDevices".to_owned(), false, false));
    // What claims give is known to nobody beforehand.
    let claims = "{kind: FPGA, resourceClaimTemplate: {name: t}}";
    assert_eq!(planned(claims, nodes).capacity.unwrap().total, None);
}

#[test]
fn pools_without_nodes_say_why() {
    assert_eq!(condition(&planned(CPU, "")), ("NoNodes".to_owned(), false, false));
    let cordoned = planned(CPU, "nodes: [{name: a}]");
    assert_eq!(condition(&cordoned), ("NoUsableNodes".to_owned(), false, false));
    let spec = "{kind: External, platform: {os: linux, arch: arm64}, sessions: {uri: s3://b/f}}";
    let told = "sessions: [[{name: s1, kind: pi4, secondsAgo: 2}, 3], [{name: s2, kind: pi4, secondsAgo: 9, aside: it hangs}, 3]]";
    let external = planned(spec, told);
    // They have no nodes, and are known by what searches tell of them.
    assert_eq!(condition(&external), ("Ready".to_owned(), true, false));
    assert!(external.capacity.is_none());
    let names: Vec<(&str, Option<&str>)> =
        external.sessions.iter().map(|s| (s.name.as_str(), s.set_aside.as_deref())).collect();
    assert_eq!(names, [("s1", None), ("s2", Some("it hangs"))]);
}

#[test]
fn lists_are_bounded_and_the_most_used_hardware_is_first() {
    let prints: Vec<String> = (0..50).map(|n| format!("  f{n:03}: {n}")).collect();
    let nodes = "nodes: [{name: a, usable: true}]";
    let status = planned(CPU, &format!("{nodes}\nfingerprints:\n{}", prints.join("\n")));
    assert_eq!(status.fingerprints.len(), 32);
    assert_eq!(status.fingerprints[0].results, 49);
}

/// B7: of several operators one writes a pool's status.
#[test]
fn a_pool_has_one_manager() {
    let pool = |spec: &str, status: &str| -> DevicePool {
        let text = format!(
            "{{apiVersion: hone.dev/v1alpha1, kind: DevicePool, metadata: {{name: p}}, spec: {{kind: CPU{spec}}}, status: {{{status}}}}}"
        );
        serde_yaml::from_str(&text).unwrap()
    };
    assert!(is_ours(&pool("", ""), "a"));
    assert!(is_ours(&pool("", "managedBy: a"), "a"));
    assert!(!is_ours(&pool("", "managedBy: b"), "a"));
    // The administrator moves it.
    assert!(is_ours(&pool(", managedBy: a", "managedBy: b"), "a"));
    assert!(!is_ours(&pool(", managedBy: b", ""), "a"));
}
