//! Digests of what decides a result. Everything that is named after the spec is named here.
//!
//! Four digests, from narrow to wide; that of tuning stands beside them:
//! - the *spec digest* says which part of the spec a target's result came from: a finished
//!   target is done again only when it changes. It does not hold the compiler's version, so that
//!   upgrading the operator redoes nothing.
//! - the *content key* says which results are the same: it holds the model's digest in place of
//!   its URI, the compiler, and what the code is made for in place of the target's name. There is none where
//!   the spec does not say enough, and none for what the worker found to depend on more (external data).
//! - the *tuning digest* says what search the spec asks for, which is not part of the spec digest: what was published
//!   without tuning stays where only that changes.
//! - the *Job name* also holds what the pod needs (credentials, resources, the retry mark), so
//!   that a change of those restarts work that is not done.

use hone_crds::common::Log;
use hone_crds::device_pool::DeviceKind;
use hone_crds::model_compilation::{Target, Tuning, TuningPolicy};
use hone_crds::{Accelerator, ModelCompilation};
use serde_json::{Value, json};

use super::model::PoolView;
use super::pools::{HOST_CPU, fits, offer};
use crate::children::digest::{child_name, digest, value};
use crate::children::names::RETRY_ANNOTATION;
use crate::config::Config;

/// What the result depends on, but for the model.
fn decisive(object: &ModelCompilation, target: &Target) -> Value {
    let spec = &object.spec;
    json!({
        "inputs": value(&spec.inputs),
        "target": value(target),
        "precision": value(&spec.precision),
        "tuning": value(&untuned(spec.tuning.as_ref())),
        "correctness": value(&spec.correctness),
        "output": spec.output.uri,
    })
}

/// As much of the tuning as is known before a search.
fn untuned(tuning: Option<&Tuning>) -> Option<Tuning> {
    let tuning = tuning?;
    if tuning.policy == TuningPolicy::Never {
        return Some(tuning.clone());
    }
    let records = tuning.records.clone()?;
    Some(Tuning { policy: TuningPolicy::Never, records: Some(records), ..Tuning::default() })
}

/// The search that the spec asks for, and whether a person wants what failed tried again.
pub fn tuning_digest(object: &ModelCompilation) -> String {
    digest(&json!({"tuning": value(&object.spec.tuning), "retry": retry(object)}))
}

fn retry(object: &ModelCompilation) -> Option<&String> {
    object.metadata.annotations.as_ref().and_then(|all| all.get(RETRY_ANNOTATION))
}

/// The spec digest of one target.
pub fn spec_digest(object: &ModelCompilation, target: &Target) -> String {
    let model = json!({"uri": object.spec.model.uri, "digest": object.spec.model.digest});
    digest(&json!({"model": model, "rest": decisive(object, target)}))
}

/// The key under which equal work finds this result. None where nothing in the spec says that the work is equal: a
/// model or samples without a digest, records that may grow, a search in any case, or a processor that is known only once a worker looks.
pub fn content_key(
    config: &Config,
    object: &ModelCompilation,
    target: &Target,
    pools: &[PoolView],
) -> Option<String> {
    let spec = &object.spec;
    let model = spec.model.digest.as_ref()?;
    let samples = spec.correctness.samples.as_ref();
    let calibration = spec.precision.as_ref().and_then(|precision| precision.calibration.as_ref());
    if samples.into_iter().chain(calibration).any(|source| source.digest.is_none()) {
        return None;
    }
    if spec.tuning.as_ref().is_some_and(|t| t.records.is_some() || t.policy == TuningPolicy::Always)
    {
        return None;
    }
    Some(digest(&json!({
        "model": model,
        // The image is the compiler; the version tells apart what moves under one tag.
        "compiler": [&config.worker_image, &config.compiler_version],
        "inputs": value(&spec.inputs),
        "processor": processor(target, pools)?,
        "pool": target.pool,
        "precision": value(&spec.precision),
        // How long a search is to be is compared where a result is taken.
        "tuning": match &spec.tuning {
            Some(tuning) if tuning.policy == TuningPolicy::IfNotCached => json!("IfNotCached"),
            tuning => value(tuning),
        },
        "correctness": value(&spec.correctness),
        "output": spec.output.uri,
    })))
}

/// What the code is made for: the platform of the target or of its pool, down to the processor. `host` and `cuda` are
/// whatever the worker's node has, so they say something only where the pool is one machine.
fn processor(target: &Target, pools: &[PoolView]) -> Option<Value> {
    let platform = target.platform.as_ref();
    let cpu = platform.and_then(|platform| platform.cpu.as_deref());
    let here = platform.and_then(|own| own.accelerator) == Some(Accelerator::Cuda);
    if let Some(platform) = platform.filter(|_| cpu != Some(HOST_CPU) && !here) {
        return Some(value(platform));
    }
    let named = |pool: &&PoolView| target.pool.as_ref().is_none_or(|name| *name == pool.name);
    // Pools of another kind are refused.
    let fitting = |pool: &&PoolView| match platform {
        Some(platform) => fits(pool, platform),
        None => matches!(pool.spec.kind, DeviceKind::Cpu | DeviceKind::Gpu),
    };
    let mut pools = pools.iter().filter(named).filter(fitting);
    let (pool, None) = (pools.next()?, pools.next()) else { return None };
    let offer = offer(pool);
    let offered = [offer.os, offer.arch, offer.cpu];
    let accelerator = platform.and_then(|own| own.accelerator).or(offer.accelerator);
    if accelerator == Some(Accelerator::Cuda) {
        return Some(json!([value(&platform), offered, accelerator, pool.machine.as_ref()?]));
    }
    if let (Some(accelerator), None) = (accelerator, platform) {
        // The accelerator runs every step, whatever processor is beside it.
        return Some(json!([offered[0], offered[1], accelerator]));
    }
    let machine = match (offer.cpu, platform) {
        // The worker compiles for the processor that the pool says.
        (Some(_), None) => None,
        _ => Some(pool.machine.as_ref()?),
    };
    Some(json!([value(&platform), offered, machine]))
}

/// The name of the Job that does a target's work.
pub fn job_name(object: &ModelCompilation, target: &Target) -> String {
    let spec = &object.spec;
    let pod = json!({
        "uid": object.metadata.uid,
        "spec": spec_digest(object, target),
        "worker": value(&spec.worker),
        "model": value(&spec.model.credentials_secret_ref),
        "output": value(&spec.output.credentials_secret_ref),
        "retry": retry(object),
    });
    let name = object.metadata.name.as_deref().unwrap_or_default();
    child_name(&[name, &target.name], &pod)
}

/// The name of the run that tunes a target.
pub fn run_name(object: &ModelCompilation, target: &Target) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let spec = &object.spec;
    let mut decided_by = json!({
        "uid": object.metadata.uid,
        "spec": spec_digest(object, target),
        "model": value(&spec.model.credentials_secret_ref),
        "log": value(&tuning_log(object, target)),
    });
    // How a run searches is fixed: another cost model is another run, which goes on in the log.
    let cost_model = spec.tuning.as_ref().and_then(|tuning| tuning.cost_model);
    if let Some(model) = cost_model.filter(|model| !model.is_default()) {
        decided_by["costModel"] = json!(model);
    }
    child_name(&[name, &target.name, "tuning"], &decided_by)
}

/// The log of that run: the one that the spec names, else a folder below the output. Another compilation never writes
/// there; one of the same name goes on in it, unless the search is to begin anew.
pub fn tuning_log(object: &ModelCompilation, target: &Target) -> Log {
    let (metadata, spec) = (&object.metadata, &object.spec);
    let tuning = spec.tuning.as_ref();
    if let Some(log) = tuning.and_then(|tuning| tuning.records.as_ref()) {
        return log.clone();
    }
    let always = tuning.is_some_and(|tuning| tuning.policy == TuningPolicy::Always);
    let anew = always.then_some(&metadata.uid);
    let decided_by = json!({
        "namespace": metadata.namespace,
        "name": metadata.name,
        "spec": spec_digest(object, target),
        "anew": anew,
    });
    let folder = child_name(&[&target.name], &decided_by);
    Log {
        uri: format!("{}/tuning/{folder}", spec.output.uri.trim_end_matches('/')),
        credentials_secret_ref: spec.output.credentials_secret_ref.clone(),
    }
}

/// The name of the Job that compiles a target with what lies in its run's log up to the segment of this digest.
pub fn revision_name(object: &ModelCompilation, target: &Target, checkpoint: &str) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let decided_by = json!({"job": job_name(object, target), "checkpoint": checkpoint});
    child_name(&[name, &target.name, "tuned"], &decided_by)
}

/// The name of the Job that looks whether the artifact of another compilation is still there.
pub fn adoption_name(object: &ModelCompilation, target: &Target, uri: &str) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let decided_by = json!({"job": job_name(object, target), "uri": uri});
    child_name(&[name, &target.name, "adopt"], &decided_by)
}

/// The name of the Job that deletes what was stored.
pub fn cleanup_name(object: &ModelCompilation, uris: &[String]) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    child_name(&[name, "cleanup"], &json!({"uid": object.metadata.uid, "uris": uris}))
}
