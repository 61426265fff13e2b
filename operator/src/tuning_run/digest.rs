//! The name of the Job of a run, from everything that its pod is told: where that changes, another pod goes on.

use hone_crds::TuningRun;
use serde_json::json;

use crate::children::digest::{child_name, value};
use crate::children::names::RETRY_ANNOTATION;

/// The name of the Job that does the run's work as the spec is now.
pub fn job_name(object: &TuningRun) -> String {
    let spec = &object.spec;
    let retry = object.metadata.annotations.as_ref().and_then(|all| all.get(RETRY_ANNOTATION));
    let told = json!({
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
    child_name(&[object.metadata.name.as_deref().unwrap_or_default(), "tune"], &told)
}
