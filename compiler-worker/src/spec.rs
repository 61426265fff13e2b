//! From what a person gives, a YAML file or a model and flags, to requests: one a target.

use std::path::{Path, PathBuf};

use hone_artifact::Extent;
use hone_artifact::exit_code::Reason;
use hone_artifact::request::{
    Compile, CorrectnessRequest, Destination, Input, Source, TargetRequest, TuningRequest,
};
use hone_crds::Decimal;
use hone_crds::common::SampleSource;
use hone_crds::model_compilation::{
    Correctness, Goal, ModelCompilationSpec, Target, Tuning, TuningPolicy,
};
use hone_crds::not_yet::not_yet;
use hone_crds::{InputBinding, ModelCompilation};

use crate::failure::{Failure, Result};
use crate::storage::local;

/// Everything that one call of `hone compile` is asked for.
#[derive(Debug)]
pub struct Spec {
    /// The name of the object, or the model's.
    pub name: String,
    /// One request a target.
    pub requests: Vec<Compile>,
    /// What results must reach.
    pub goals: Vec<Goal>,
    /// What relative paths start at.
    pub folder: PathBuf,
    /// What the file asks for that means something on a cluster only.
    pub notes: Vec<String>,
}

/// Largest YAML file that is read.
const LARGEST_FILE: u64 = 1 << 20;

/// Reads a `ModelCompilation`.
///
/// # Errors
/// `InvalidSpec` with every fault; `NotSupportedYet` with every field that this release cannot honour.
pub fn from_file(path: &Path) -> Result<Spec> {
    let name = path.display();
    let bytes = local::read(path, LARGEST_FILE)?;
    let invalid = |error: Box<dyn std::error::Error + Send + Sync>| {
        Failure::because(Reason::InvalidSpec, format!("file '{name}' cannot be used"), error)
    };
    let text = String::from_utf8(bytes).map_err(|error| invalid(error.into()))?;
    let object = ModelCompilation::from_yaml(&text).map_err(|error| invalid(error.into()))?;
    let mut refused = not_yet(&object.spec);
    // A cluster cannot do it yet, this machine can.
    refused.retain(|own| own.field != "spec.tuning");
    if !refused.is_empty() {
        let lines: Vec<String> =
            refused.iter().map(|field| format!("\n  {}: {}", field.field, field.advice)).collect();
        let message =
            format!("file '{name}' asks for what this release cannot do:{}", lines.concat());
        return Err(Failure::new(Reason::NotSupportedYet, message));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let spec = &object.spec;
    let requests = spec.targets.iter().map(|target| request(spec, target)).collect();
    let name = object.metadata.name.clone().unwrap_or_default();
    Ok(Spec { name, requests, goals: spec.goals.clone(), folder, notes: notes(spec) })
}

fn request(spec: &ModelCompilationSpec, target: &Target) -> Compile {
    let Correctness { rtol, atol, samples } = &spec.correctness;
    Compile {
        model: Source {
            uri: spec.model.uri.clone(),
            digest: spec.model.digest.clone(),
            credentials: None,
        },
        inputs: spec.inputs.iter().map(input).collect(),
        target: target_request(target),
        precision: spec.precision.as_ref().map_or_else(
            || vec!["f32".to_owned()],
            |own| own.allow.iter().map(ToString::to_string).collect(),
        ),
        max_relative_error: spec
            .precision
            .as_ref()
            .and_then(|own| own.max_relative_error.as_ref())
            .map(Decimal::value),
        calibration: None,
        tuning: spec.tuning.as_ref().map_or_else(never_tuned, tuning),
        correctness: CorrectnessRequest {
            rtol: rtol.value(),
            atol: atol.as_ref().map(Decimal::value),
            samples: samples.as_ref().map(source),
        },
        output: Destination { uri: spec.output.uri.clone(), credentials: None },
    }
}

fn input(binding: &InputBinding) -> Input {
    Input {
        name: binding.name.clone(),
        shape: extents(binding),
        dtype: binding.dtype.map(|dtype| dtype.to_string()),
    }
}

fn extents(binding: &InputBinding) -> Vec<Extent> {
    // The schema has seen to their form; an empty list is refused when the model is read.
    let extent = |text: &String| text.parse().unwrap_or(Extent::Sizes(Vec::new()));
    binding.extents().iter().map(extent).collect()
}

fn source(samples: &SampleSource) -> Source {
    Source { uri: samples.uri.clone(), digest: samples.digest.clone(), credentials: None }
}

fn never_tuned() -> TuningRequest {
    TuningRequest {
        policy: format!("{:?}", TuningPolicy::Never),
        max_trials: None,
        max_seconds: None,
        cost_model: None,
        records: None,
    }
}

fn tuning(own: &Tuning) -> TuningRequest {
    TuningRequest {
        policy: format!("{:?}", own.policy),
        max_trials: own.max_trials.and_then(|most| u64::try_from(most).ok()),
        max_seconds: own.max_duration.map(|most| most.as_secs_ceil().max(1)),
        cost_model: own.cost_model.map(|model| model.name().to_owned()),
        records: own
            .records
            .as_ref()
            .map(|log| Destination { uri: log.uri.clone(), credentials: None }),
    }
}

fn target_request(target: &Target) -> TargetRequest {
    let platform = target.platform.as_ref();
    TargetRequest {
        name: target.name.clone(),
        os: platform.map_or("linux", |platform| &platform.os).to_owned(),
        arch: platform.map_or("", |platform| &platform.arch).to_owned(),
        // Where only a pool is named, this machine stands for its devices.
        cpu: platform.map_or(Some("host".to_owned()), |platform| platform.cpu.clone()),
        features: platform.and_then(|platform| platform.features.clone()).unwrap_or_default(),
        accelerator: platform.and_then(|own| own.accelerator).map(|own| own.to_string()),
        pool: target.pool.clone(),
        noise_budget: None,
    }
}

/// Says of every field that a cluster alone gives a meaning to that it has none here.
fn notes(spec: &ModelCompilationSpec) -> Vec<String> {
    let mut notes = Vec::new();
    for target in &spec.targets {
        if let Some(pool) = &target.pool {
            notes.push(format!(
                "target '{}': pool '{pool}' is a cluster's; this machine measures",
                target.name
            ));
        }
    }
    let samples = spec.correctness.samples.as_ref();
    let secrets = [
        spec.model.credentials_secret_ref.is_some(),
        spec.output.credentials_secret_ref.is_some(),
        samples.is_some_and(|samples| samples.credentials_secret_ref.is_some()),
    ];
    if secrets.contains(&true) {
        notes.push(
            "credentialsSecretRef is a cluster's; credentials come from the environment".into(),
        );
    }
    if spec.suspend {
        notes.push("suspend is a cluster's; the work begins".into());
    }
    if spec.worker.is_some() || spec.retention.is_some() {
        notes.push("worker and retention are a cluster's and mean nothing here".into());
    }
    notes
}

/// The request for a model by its file.
///
/// # Errors
/// `Usage` for a target or a shape that cannot be read.
pub fn from_model(model: &Path, target: &str, shapes: &[String], output: &Path) -> Result<Spec> {
    let correctness = Correctness::default();
    let stem = model.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model");
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let request = Compile {
        model: Source {
            uri: format!("file://{}", absolute(model).display()),
            digest: None,
            credentials: None,
        },
        inputs: shapes.iter().map(|text| shape(text)).collect::<Result<_>>()?,
        target: target_from_text(target)?,
        precision: vec!["f32".to_owned()],
        max_relative_error: None,
        calibration: None,
        tuning: never_tuned(),
        correctness: CorrectnessRequest {
            rtol: correctness.rtol.value(),
            atol: correctness.atol.as_ref().map(Decimal::value),
            samples: None,
        },
        output: Destination {
            uri: format!("file://{}", absolute(output).display()),
            credentials: None,
        },
    };
    Ok(Spec {
        name: stem.to_owned(),
        requests: vec![request],
        goals: Vec::new(),
        folder: PathBuf::from("."),
        notes: Vec::new(),
    })
}

/// `host`, or `os/arch` with an optional `:cpu`.
///
/// # Errors
/// `Usage` for anything else.
pub fn target_from_text(text: &str) -> Result<TargetRequest> {
    let (os, arch, cpu, name) = match text {
        "host" => ("linux", "", Some("host"), "host".to_owned()),
        text => {
            let (platform, cpu) = match text.split_once(':') {
                Some((platform, cpu)) => (platform, Some(cpu)),
                None => (text, None),
            };
            let (os, arch) = platform.split_once('/').ok_or_else(|| {
                let message = format!(
                    "target '{text}' is not understood: use host, or os/arch with an optional :cpu, such as linux/arm64:cortex-a72"
                );
                Failure::new(Reason::Usage, message)
            })?;
            let name = cpu.map_or(arch.to_owned(), |cpu| format!("{arch}-{cpu}"));
            (os, arch, cpu, name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "-"))
        }
    };
    Ok(TargetRequest {
        name,
        os: os.to_owned(),
        arch: arch.to_owned(),
        cpu: cpu.map(str::to_owned),
        features: Vec::new(),
        accelerator: None,
        pool: None,
        noise_budget: None,
    })
}

/// `name=1,3,224,224`, with several sizes of a dimension as `16|32` or `1..4`; an empty list is a scalar.
fn shape(text: &str) -> Result<Input> {
    let wrong = || {
        let message = format!(
            "shape '{text}' is not understood: use name=1,3,224,224, and 16|32|64 or 1..8 for several sizes of a dimension"
        );
        Failure::new(Reason::Usage, message)
    };
    // Names may hold '=', extents cannot.
    let (name, extents) = text.rsplit_once('=').ok_or_else(wrong)?;
    let extents = extents.split(',').filter(|extent| !extent.trim().is_empty());
    let shape: std::result::Result<Vec<Extent>, _> =
        extents.map(|extent| extent.trim().parse()).collect();
    match shape {
        Ok(shape) if !name.is_empty() => Ok(Input { name: name.to_owned(), shape, dtype: None }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_says_how_to_search() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("compile.yaml");
        let ask = |tuning: &str| {
            let text = format!(
                "{{apiVersion: hone.dev/v1alpha1, kind: ModelCompilation, metadata: {{name: x}}, spec: {{
                   model: {{uri: 'file://./x.onnx'}}, output: {{uri: 'file://./out'}},
                   targets: [{{name: here, platform: {{arch: amd64}}}}], tuning: {tuning}}}}}"
            );
            std::fs::write(&path, text).unwrap();
            from_file(&path).unwrap().requests.remove(0).tuning
        };
        let asked = ask("{maxTrials: 5, costModel: Neural}");
        assert_eq!((asked.max_trials, asked.cost_model.as_deref()), (Some(5), Some("neural")));
        assert_eq!(ask("{costModel: Trees}").cost_model.as_deref(), Some("trees"));
        assert_eq!(ask("{maxTrials: 5}").cost_model, None);
    }

    #[test]
    fn targets_and_shapes_are_read() {
        let target = target_from_text("linux/arm64:cortex-a72").unwrap();
        assert_eq!((target.os.as_str(), target.arch.as_str()), ("linux", "arm64"));
        assert_eq!(
            (target.cpu.as_deref(), target.name.as_str()),
            (Some("cortex-a72"), "arm64-cortex-a72")
        );
        assert_eq!(target_from_text("host").unwrap().cpu.as_deref(), Some("host"));
        assert_eq!(target_from_text("arm64").unwrap_err().reason, Reason::Usage);
        let input = shape("x=1,3,224,224").unwrap();
        assert_eq!(
            (input.name.as_str(), input.shape),
            ("x", [1, 3, 224, 224].map(Extent::One).into())
        );
        assert_eq!(shape("x=").unwrap().shape, []);
        let several =
            [Extent::Range { min: 1, max: 4 }, Extent::Sizes(vec![16, 32]), Extent::One(8)];
        assert_eq!(shape("x=1..4,16|32,8").unwrap().shape, several);
        assert_eq!(shape("x=1..,3").unwrap().shape, [Extent::From { min: 1 }, Extent::One(3)]);
        for wrong in ["x", "=1", "x=a", "x=1.5", "x=..", "x=1|", "x=1..2..3"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
    }
}
