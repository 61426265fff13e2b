//! Digests of what decides a result. Everything that is named after the spec is named here.
//!
//! Three digests, from narrow to wide:
//! - the *spec digest* says which part of the spec a target's result came from: a finished
//!   target is done again only when it changes. It does not hold the compiler's version, so that
//!   upgrading the operator redoes nothing.
//! - the *content key* says which results are the same: it holds the model's digest in place of
//!   its URI, and the compiler. Without a digest in the spec there is none.
//! - the *Job name* also holds what the pod needs (credentials, resources, the retry mark), so
//!   that a change of those restarts work that is not done.

use hone_crds::ModelCompilation;
use hone_crds::model_compilation::Target;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::children::names::RETRY_ANNOTATION;
use crate::config::Config;

/// `sha256:` of the value's JSON, whose keys are sorted.
fn digest(value: &Value) -> String {
    format!("sha256:{}", hex(&Sha256::digest(value.to_string())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as JSON. Our own types always have a form in JSON.
fn value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or(Value::Null)
}

/// What the result depends on, but for the model.
fn decisive(object: &ModelCompilation, target: &Target) -> Value {
    let spec = &object.spec;
    json!({
        "inputs": value(&spec.inputs),
        "target": value(target),
        "precision": value(&spec.precision),
        "tuning": value(&spec.tuning),
        "correctness": value(&spec.correctness),
        "output": spec.output.uri,
    })
}

/// The spec digest of one target.
pub fn spec_digest(object: &ModelCompilation, target: &Target) -> String {
    let model = json!({"uri": object.spec.model.uri, "digest": object.spec.model.digest});
    digest(&json!({"model": model, "rest": decisive(object, target)}))
}

/// The key under which equal work finds this result; `None` where the model has no digest.
pub fn content_key(config: &Config, object: &ModelCompilation, target: &Target) -> Option<String> {
    let model = object.spec.model.digest.as_ref()?;
    Some(digest(&json!({
        "model": model,
        "compiler": config.compiler_version,
        "rest": decisive(object, target),
    })))
}

/// The name of the Job that does a target's work.
pub fn job_name(object: &ModelCompilation, target: &Target) -> String {
    let spec = &object.spec;
    let retry = object.metadata.annotations.as_ref().and_then(|all| all.get(RETRY_ANNOTATION));
    let pod = json!({
        "uid": object.metadata.uid,
        "spec": spec_digest(object, target),
        "worker": value(&spec.worker),
        "model": value(&spec.model.credentials_secret_ref),
        "output": value(&spec.output.credentials_secret_ref),
        "retry": retry,
    });
    let name = object.metadata.name.as_deref().unwrap_or_default();
    child_name(&[name, &target.name], &pod)
}

/// The name of the Job that deletes what was stored.
pub fn cleanup_name(object: &ModelCompilation, uris: &[String]) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    child_name(&[name, "cleanup"], &json!({"uid": object.metadata.uid, "uris": uris}))
}

/// Readable parts and a digest, at most 63 characters, so that it fits a label as well.
fn child_name(parts: &[&str], decided_by: &Value) -> String {
    const DIGITS: usize = 10;
    let hash = hex(&Sha256::digest(decided_by.to_string()));
    let readable = parts.join("-").replace('.', "-");
    let room = 63 - DIGITS - 1;
    let cut = &readable[..readable.len().min(room)];
    format!("{}-{}", cut.trim_end_matches('-'), &hash[..DIGITS])
}
