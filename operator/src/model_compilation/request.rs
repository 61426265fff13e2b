//! What a worker is asked to do, from the spec.

use std::collections::BTreeMap;

use hone_artifact::request::{
    Adopt, Compile, CorrectnessRequest, Delete, Destination, OLDEST_REQUEST_VERSION, Request,
    Source, Subject, TargetRequest, TuningRequest, Work,
};
use hone_crds::ModelCompilation;
use hone_crds::common::{LocalSecretRef, Log, SampleSource};
use hone_crds::model_compilation::Target;
use hone_crds::status::Artifact;

use super::model::{PoolView, Purpose};
use super::pools;
use crate::children::inputs::input;
use crate::children::manifest::CREDENTIALS;

/// The folder of one of [`secrets`]' Secrets.
fn folder(use_: &str, secret: Option<&LocalSecretRef>) -> Option<String> {
    secret.map(|_| format!("{CREDENTIALS}/{use_}"))
}

/// The Secrets that a worker needs for its purpose: the folder's name and the Secret's. To delete what was
/// stored, those of the output are enough.
pub fn secrets(object: &ModelCompilation, purpose: Purpose) -> Vec<(&'static str, &str)> {
    let spec = &object.spec;
    let samples = spec.correctness.samples.as_ref();
    let calibration = spec.precision.as_ref().and_then(|p| p.calibration.as_ref());
    let records = spec.tuning.as_ref().and_then(|tuning| tuning.records.as_ref());
    [
        ("model", spec.model.credentials_secret_ref.as_ref()),
        ("output", spec.output.credentials_secret_ref.as_ref()),
        ("samples", samples.and_then(|s| s.credentials_secret_ref.as_ref())),
        ("calibration", calibration.and_then(|s| s.credentials_secret_ref.as_ref())),
        ("records", records.and_then(|log| log.credentials_secret_ref.as_ref())),
    ]
    .into_iter()
    .filter(|(use_, _)| purpose == Purpose::Compile || *use_ == "output")
    .filter_map(|(use_, secret)| secret.map(|secret| (use_, secret.name.as_str())))
    .collect()
}

fn subject(object: &ModelCompilation) -> Subject {
    let metadata = &object.metadata;
    Subject {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

fn samples(use_: &str, source: &SampleSource) -> Source {
    Source {
        uri: source.uri.clone(),
        digest: source.digest.clone(),
        credentials: folder(use_, source.credentials_secret_ref.as_ref()),
    }
}

/// The request to compile `target` in `pool`: with what lies in `log`, else in the log that the spec names.
pub fn compile(
    object: &ModelCompilation,
    target: &Target,
    pool: &PoolView,
    log: Option<&Log>,
) -> Request {
    let spec = &object.spec;
    let precision = spec.precision.as_ref();
    let allowed = precision.map(|p| p.allow.iter().map(ToString::to_string).collect());
    let compile = Compile {
        model: Source {
            uri: spec.model.uri.clone(),
            digest: spec.model.digest.clone(),
            credentials: folder("model", spec.model.credentials_secret_ref.as_ref()),
        },
        inputs: spec.inputs.iter().map(input).collect(),
        target: target_request(target, pool),
        precision: allowed.unwrap_or_else(|| vec!["f32".to_owned()]),
        max_relative_error: precision
            .and_then(|p| p.max_relative_error.as_ref())
            .map(hone_crds::Decimal::value),
        calibration: precision
            .and_then(|p| p.calibration.as_ref())
            .map(|source| samples("calibration", source)),
        tuning: tuning(object, log),
        correctness: CorrectnessRequest {
            rtol: spec.correctness.rtol.value(),
            atol: spec.correctness.atol.as_ref().map(hone_crds::Decimal::value),
            samples: spec.correctness.samples.as_ref().map(|source| samples("samples", source)),
        },
        output: Destination {
            uri: spec.output.uri.clone(),
            credentials: folder("output", spec.output.credentials_secret_ref.as_ref()),
        },
    };
    Request {
        version: compile.version_needed(),
        subject: subject(object),
        work: Work::Compile(Box::new(compile)),
    }
}

/// What `target` asks for in `pool`.
pub fn target_request(target: &Target, pool: &PoolView) -> TargetRequest {
    let offer = pools::offer(pool);
    let platform = target.platform.as_ref();
    let or_offer = |own: Option<&str>, offered: Option<&str>| {
        own.or(offered).map(str::to_owned).unwrap_or_default()
    };
    // A target without a platform is for the pool's devices, down to their processor: that of the
    // worker's node where the pool does not say.
    let cpu = match platform {
        Some(platform) => platform.cpu.clone(),
        None if offer.accelerator.is_some() => None,
        None => Some(offer.cpu.unwrap_or(pools::HOST_CPU).to_owned()),
    };
    let accelerator = match platform {
        Some(platform) => platform.accelerator,
        None => offer.accelerator,
    };
    let os = or_offer(platform.map(|p| p.os.as_str()), offer.os);
    TargetRequest {
        name: target.name.clone(),
        os: if os.is_empty() { "linux".to_owned() } else { os },
        arch: or_offer(platform.map(|p| p.arch.as_str()), offer.arch),
        cpu,
        features: platform.and_then(|p| p.features.clone()).unwrap_or_default(),
        accelerator: accelerator.map(|own| own.to_string()),
        pool: Some(pool.name.clone()),
        noise_budget: pool.spec.noise_budget.as_ref().map(hone_crds::Decimal::value),
    }
}

/// The worker itself never searches: a run does.
fn tuning(object: &ModelCompilation, log: Option<&Log>) -> TuningRequest {
    let named = object.spec.tuning.as_ref().and_then(|tuning| tuning.records.as_ref());
    // A log below the output is read as the output is written.
    let (log, use_) = if named.is_some() { (named, "records") } else { (log, "output") };
    TuningRequest {
        policy: "Never".to_owned(),
        records: log.map(|log| Destination {
            uri: log.uri.clone(),
            credentials: folder(use_, log.credentials_secret_ref.as_ref()),
        }),
        max_trials: None,
        max_seconds: None,
        cost_model: None,
    }
}

/// The request to look whether an artifact that another compilation stored is there, and to own it as well.
pub fn adopt(object: &ModelCompilation, artifact: &Artifact) -> Request {
    Request {
        version: OLDEST_REQUEST_VERSION,
        subject: subject(object),
        work: Work::Adopt(Adopt {
            uri: artifact.uri.clone(),
            size_bytes: u64::try_from(artifact.size_bytes).unwrap_or(0),
            credentials: folder("output", object.spec.output.credentials_secret_ref.as_ref()),
        }),
    }
}

/// Most artifacts for which a clean-up names heirs.
const INHERITED: usize = 64;

/// The request to give up what was stored, in the output folder and at `uris`, where `heirs` name some of it too.
pub fn delete(
    object: &ModelCompilation,
    uris: &[String],
    heirs: &BTreeMap<String, Vec<String>>,
) -> Request {
    let output = &object.spec.output;
    // A worker may also have stored what no status of this object tells of.
    let (known, others): (Vec<_>, Vec<_>) = heirs.iter().partition(|(uri, _)| uris.contains(uri));
    let heirs = known.into_iter().chain(others).take(INHERITED);
    let heirs = heirs.map(|(uri, uids)| (uri.clone(), uids.clone())).collect();
    Request {
        version: OLDEST_REQUEST_VERSION,
        subject: subject(object),
        work: Work::Delete(Delete {
            uris: uris.to_vec(),
            credentials: folder("output", output.credentials_secret_ref.as_ref()),
            folder: Some(output.uri.clone()),
            heirs,
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn request(pool: serde_json::Value) -> TargetRequest {
        let target = serde_json::from_value(serde_json::json!({"name": "t"})).unwrap();
        let pool: PoolView =
            serde_json::from_value(serde_json::json!({"name": "p", "spec": pool})).unwrap();
        target_request(&target, &pool)
    }

    /// Of a pool that does not say which processor its nodes have, the worker's node decides; an accelerator has none.
    #[test]
    fn a_target_without_a_platform_is_for_what_the_pool_offers() {
        let cpu = request(serde_json::json!({"kind": "CPU"}));
        assert_eq!((cpu.cpu.as_deref(), cpu.accelerator), (Some(pools::HOST_CPU), None));
        let gpu = request(serde_json::json!({"kind": "GPU"}));
        assert_eq!((gpu.cpu, gpu.accelerator.as_deref()), (None, Some("opencl")));
        assert_eq!(gpu.pool.as_deref(), Some("p"));
    }
}
