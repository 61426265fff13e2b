//! The objects of the suite.

use serde_json::{Value, json};

/// Where the simulated workers say that their artifacts lie (`tests/cluster/kwok/stages.yaml`).
const OUTPUT: &str = "s3://artifacts";

/// A pool of all simulated nodes, as YAML.
pub fn pool(exclusive: bool) -> String {
    let exclusivity = if exclusive { "Device" } else { "Shared" };
    format!(
        "
apiVersion: hone.dev/v1alpha1
kind: DevicePool
metadata: {{name: simulated}}
spec: {{kind: CPU, nodeSelector: {{type: simulated}}, exclusivity: {exclusivity}}}
"
    )
}

/// A compilation that no other equals, so that none is found in the cache.
pub fn compilation(number: usize) -> Value {
    json!({
        "apiVersion": "hone.dev/v1alpha1",
        "kind": "ModelCompilation",
        "metadata": {"name": format!("c{number}")},
        "spec": {
            "model": {
                "uri": format!("s3://models/{number}.onnx"),
                "digest": format!("sha256:{number:064x}"),
            },
            "targets": [{"name": "main", "pool": "simulated"}],
            // The simulated workers say that their artifacts lie here, and a report of one elsewhere is refused.
            "output": {"uri": OUTPUT},
        },
    })
}

/// Where work stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a device.
    Waiting,
    /// Its Job is made.
    Started,
    /// It is done.
    Done,
}

/// A status of the size of the operator's.
pub fn status(number: usize, stage: Stage) -> Value {
    let now = "2026-01-01T00:00:00Z";
    let done = stage == Stage::Done;
    let (reason, message) = match stage {
        Stage::Waiting => ("Pending", "waiting for a device"),
        Stage::Started => ("Pending", "starting a worker"),
        Stage::Done => ("Succeeded", "main: 1.31ms"),
    };
    let condition = |kind: &str| {
        let truth = if kind == "Ready" && done { "True" } else { "False" };
        json!({
            "type": kind, "status": truth, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": now,
        })
    };
    let kinds = ["Ready", "Reconciling", "Stalled", "Finished", "Succeeded", "Verified", "Tuned"];
    let mut target = json!({
        "name": "main", "phase": reason, "pool": "simulated",
        "specDigest": format!("sha256:{number:064x}"),
        "contentKey": format!("sha256:{number:064x}"),
    });
    if stage != Stage::Waiting {
        target["jobRef"] = json!({"name": format!("j{number}-main-0123456789")});
    }
    let mut status = json!({
        "observedGeneration": 1, "phase": reason, "startTime": now,
        "targetsReady": if done { "1/1" } else { "0/1" },
        "conditions": kinds.map(condition),
    });
    if done {
        target["artifact"] = json!({
            "uri": format!("s3://artifacts/{number}.hone"),
            "digest": format!("sha256:{number:064x}"), "sizeBytes": 4096,
        });
        target["fingerprint"] = json!(format!("sha256:{number:064x}"));
        target["latency"] = json!({"p50": "1.31ms"});
        target["correctness"] = json!({"maxAbs": "1e-5", "maxRel": "1e-4", "passed": true});
        target["cache"] = json!("Miss");
        target["compileTime"] = json!("1s");
        status["completionTime"] = json!(now);
    }
    status["targets"] = json!([target]);
    status
}

/// A lease of a device of the form and size of the operator's.
pub fn lease(number: usize, node: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": format!("hone-device-{number}"),
            "labels": {"hone.dev/lease": "device", "app.kubernetes.io/managed-by": "hone"},
            "annotations": {
                "hone.dev/pool": "simulated", "hone.dev/node": node, "hone.dev/whole-node": "true",
                "hone.dev/holder-kind": "modelcompilation", "hone.dev/holder-namespace": "default",
                "hone.dev/holder-name": format!("c{number}"),
                "hone.dev/holder-uid": format!("00000000-0000-0000-0000-{number:012}"),
                "hone.dev/holder-job": format!("j{number}-main-0123456789"),
                "hone.dev/priority": "0", "hone.dev/fence": "1",
            },
        },
        "spec": {
            "holderIdentity": format!("default/j{number}-main-0123456789"),
            "leaseDurationSeconds": 14400,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    })
}

/// A Job of the form and size of the operator's, with an owner or without, on a `node` where its device is leased.
pub fn job(number: usize, owner: Option<&Value>, node: Option<&str>) -> Value {
    // The label by which the simulation knows whose pods end with a report.
    let labels = json!({
        "plain": "true", "hone.dev/purpose": "compile", "hone.dev/compilation": format!("c{number}"),
        "hone.dev/compilation-uid": format!("00000000-0000-0000-0000-{number:012}"),
        "hone.dev/target": "main", "hone.dev/pool": "simulated",
    });
    let owners = owner.map(|owner| {
        json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }])
    });
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": format!("j{number}-main-0123456789"), "labels": labels},
        "spec": {
            "activeDeadlineSeconds": 14400,
            "backoffLimit": 3,
            "completions": 1,
            "parallelism": 1,
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": 86400,
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": {
                    "containerName": "worker", "operator": "In", "values": [1, 2],
                }},
            ]},
            "template": {"metadata": {"labels": labels}, "spec": pod(number, node)},
        },
    });
    if let Some(owners) = owners {
        job["metadata"]["ownerReferences"] = owners;
    }
    job
}

fn pod(number: usize, node: Option<&str>) -> Value {
    let request = json!({
        "version": 1,
        "subject": {
            "namespace": "default", "name": format!("c{number}"),
            "uid": format!("00000000-0000-0000-0000-{number:012}"),
        },
        "work": {"compile": {
            "model": {
                "uri": format!("s3://models/{number}.onnx"),
                "digest": format!("sha256:{number:064x}"),
            },
            "inputs": [],
            "target": {
                "name": "main", "os": "linux", "arch": "amd64", "cpu": "host", "features": [],
                "pool": "simulated",
            },
            "precision": ["f32"],
            "tuning": {"policy": "Never"},
            "correctness": {"rtol": 1e-3, "atol": 1e-4},
            "output": {"uri": OUTPUT},
        }},
    });
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 10,
        "nodeSelector": {"type": "simulated"},
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "worker",
            "image": "simulated",
            "imagePullPolicy": "IfNotPresent",
            "args": ["worker"],
            "env": [
                {"name": "HONE_REQUEST", "value": request.to_string()},
                {"name": "HONE_SCRATCH", "value": "/scratch"},
                {"name": "HOME", "value": "/scratch"},
            ],
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true, "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [
                {"name": "scratch", "mountPath": "/scratch"},
                {"name": "scratch", "mountPath": "/tmp", "subPath": "tmp"},
            ],
        }],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}}],
    });
    if let Some(node) = node {
        pod["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
            }],
        }}});
    }
    pod
}
