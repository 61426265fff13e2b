//! Messages as Kubernetes 1.35 writes them, and what they mean.
#![allow(clippy::unwrap_used)]

use super::*;

fn pod(status: &str) -> PodFacts {
    let pod: SeenPod = serde_json::from_str(&format!(
        r#"{{"metadata": {{"name": "p", "namespace": "team", "uid": "5", "ownerReferences": [
            {{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "9", "controller": true}}]}},
            "status": {status}}}"#
    ))
    .unwrap();
    let (group, facts) = facts(&pod).unwrap();
    assert_eq!(group, "team/9");
    facts
}

fn reason(status: &str) -> Option<Reason> {
    pod(status).waiting.unwrap().classify().map(|wait| wait.reason)
}

fn unscheduled(message: &str) -> String {
    format!(
        r#"{{"phase": "Pending", "conditions": [{{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": {message:?}}}]}}"#
    )
}

fn container(waiting: &str) -> String {
    format!(
        r#"{{"phase": "Pending", "conditions": [{{"type": "PodScheduled", "status": "True"}}],
        "containerStatuses": [{{"name": "worker", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {{"waiting": {waiting}}}}}]}}"#
    )
}

#[test]
fn a_pod_at_our_gate_waits_for_its_device() {
    let gated = |gate: &str| -> Option<Reason> {
        let pod: SeenPod = serde_json::from_str(&format!(
            r#"{{"metadata": {{"name": "p", "ownerReferences": [
                {{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "9", "controller": true}}]}},
                "spec": {{"schedulingGates": [{gate}]}},
                "status": {{"phase": "Pending", "conditions": [{{"type": "PodScheduled", "status": "False",
                "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}}]}}}}"#
        ))
        .unwrap();
        facts(&pod).unwrap().1.waiting.unwrap().classify().map(|wait| wait.reason)
    };
    assert_eq!(gated(r#"{"name": "hone.dev/device"}"#), Some(Reason::WaitingForDevice));
    assert_eq!(gated(r#"{"name": "example.com/other"}"#), None);
    assert_eq!(gated(""), None);
}

#[test]
fn the_scheduler_is_quoted() {
    let message = "0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't match Pod's node affinity/selector.";
    let wait = pod(&unscheduled(message)).waiting.unwrap().classify().unwrap();
    assert_eq!(wait, Wait { reason: Reason::Unschedulable, message: message.to_owned() });
    for (message, expected) in [
        (
            r"0/1 nodes are available: persistentvolumeclaim 'models' not found.",
            Reason::VolumeClaimNotFound,
        ),
        (
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            Reason::Unschedulable,
        ),
        (
            "waiting for dynamic resource controller to create the resourceclaim for pod 'p'",
            Reason::ResourceClaimMissing,
        ),
    ] {
        assert_eq!(reason(&unscheduled(message)), Some(expected), "{message}");
    }
}

#[test]
fn containers_that_cannot_start_are_told_apart() {
    for (waiting, expected) in [
        (
            r#"{"reason": "ImagePullBackOff", "message": "Back-off pulling image"}"#,
            Some(Reason::ImagePullFailed),
        ),
        (r#"{"reason": "ErrImageNeverPull"}"#, Some(Reason::ImagePullFailed)),
        (r#"{"reason": "InvalidImageName"}"#, Some(Reason::InvalidImageName)),
        (
            r#"{"reason": "CreateContainerConfigError", "message": "secret \"s\" not found"}"#,
            Some(Reason::SecretNotFound),
        ),
        (
            r#"{"reason": "CreateContainerConfigError", "message": "container has runAsNonRoot"}"#,
            Some(Reason::ContainerConfigInvalid),
        ),
        (r#"{"reason": "ContainerCreating"}"#, None),
    ] {
        assert_eq!(reason(&container(waiting)), expected, "{waiting}");
    }
}

#[test]
fn events_tell_what_no_status_does() {
    for (word, message, expected) in [
        (
            "FailedMount",
            "MountVolume.SetUp failed for volume \"credentials-model\" : secret \"nope\" not found",
            Reason::SecretNotFound,
        ),
        (
            "FailedMount",
            "MountVolume.SetUp failed for volume \"x\" : configmap \"nope\" not found",
            Reason::ConfigMapNotFound,
        ),
        (
            "FailedMount",
            "MountVolume.SetUp failed for volume \"x\" : mount failed: exit status 32",
            Reason::VolumeNotMounted,
        ),
        (
            "FailedCreate",
            "Error creating: pods \"a-\" is forbidden: error looking up service account team/no: serviceaccount \"no\" not found",
            Reason::ServiceAccountNotFound,
        ),
        (
            "FailedCreate",
            "Error creating: pods \"a-\" is forbidden: no PriorityClass with name no was found",
            Reason::PriorityClassNotFound,
        ),
        (
            "FailedCreate",
            "Error creating: pods \"a-\" is forbidden: pod rejected: RuntimeClass \"no\" not found",
            Reason::RuntimeClassNotFound,
        ),
        (
            "FailedCreate",
            "Error creating: pods \"a-\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
            Reason::QuotaExceeded,
        ),
        (
            "FailedCreate",
            "Error creating: pods \"a-\" is forbidden: violates PodSecurity \"restricted:latest\": seccompProfile",
            Reason::PodSecurityViolation,
        ),
        (
            "FailedCreate",
            "Error creating: Pod \"a-\" is invalid: spec.containers[0].resources.requests: Invalid value",
            Reason::PodInvalid,
        ),
        (
            "FailedCreate",
            "Error creating: Internal error occurred: failed calling webhook",
            Reason::PodRefused,
        ),
        (
            "FailedResourceClaimCreation",
            "PodResourceClaim device: resource claim template \"no\": not found",
            Reason::ResourceClaimMissing,
        ),
        ("FailedCreatePodSandBox", "no runtime for \"kata\" is configured", Reason::SandboxFailed),
    ] {
        let found = classify_event(word, message).unwrap();
        assert_eq!((found.reason, found.message.as_str()), (expected, message));
    }
    assert_eq!(classify_event("Scheduled", "Successfully assigned"), None);
}

#[test]
fn a_pod_of_nobody_is_no_fact() {
    let pod: SeenPod = serde_json::from_str(
        r#"{"metadata": {"name": "p", "labels": {"batch.kubernetes.io/controller-uid": "9"}},
        "status": {"phase": "Succeeded"}}"#,
    )
    .unwrap();
    assert!(facts(&pod).is_none());
}
