//! The name of the Job of a run, from everything that its pod is told: where that changes, another pod goes on.

use hone_crds::TuningRun;
use serde_json::{Value, json};

use crate::children::digest::{child_name, value};
use crate::children::names::RETRY_ANNOTATION;

/// The name of the Job that does the run's work as the spec is now.
pub fn job_name(object: &TuningRun) -> String {
    child_name(&[object.metadata.name.as_deref().unwrap_or_default(), "tune"], &told(object))
}

/// The names of the Jobs of the run's sessions as the spec is now: one for each device but the first.
pub fn session_names(object: &TuningRun) -> Vec<String> {
    let run = object.metadata.name.as_deref().unwrap_or_default();
    let (told, count) = (told(object), object.spec.parallel_devices);
    // The number is in the digest, too: the readable part may be cut.
    let name = |index: i32| {
        child_name(&[run, &format!("session-{index}")], &json!({"run": told, "session": index}))
    };
    (1..count).map(name).collect()
}

fn told(object: &TuningRun) -> Value {
    let spec = &object.spec;
    let retry = object.metadata.annotations.as_ref().and_then(|all| all.get(RETRY_ANNOTATION));
    let mut told = json!({
        "uid": object.metadata.uid,
        "model": value(&spec.model),
        "inputs": value(&spec.inputs),
        "target": value(&spec.target),
        "pool": spec.pool,
        "search": value(&spec.search),
        "measure": value(&spec.measure),
        "stop": value(&spec.stop),
        "log": value(&spec.log),
        "worker": value(&spec.worker),
        "retry": retry,
    });
    // Whether there are sessions is told, and not how many.
    if spec.parallel_devices > 1 {
        told["sessions"] = json!(true);
    }
    told
}
