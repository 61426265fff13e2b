//! Refuses, before any pod is made, what a compilation asks for in vain.

use hone_crds::model_compilation::ModelCompilationSpec;
use hone_crds::not_yet::not_yet;
use hone_crds::status::Failure;

use crate::children::refusal;
use crate::config::Config;

/// Why no pod can do what `spec` asks for; `None` where one can.
pub fn find(config: &Config, spec: &ModelCompilationSpec) -> Option<Failure> {
    let samples = spec.correctness.samples.as_ref();
    let uris = [
        ("spec.model.uri", Some(spec.model.uri.as_str())),
        ("spec.output.uri", Some(spec.output.uri.as_str())),
        ("spec.correctness.samples.uri", samples.map(|samples| samples.uri.as_str())),
    ];
    refusal::find(config, not_yet(spec), &uris, spec.worker.as_ref())
}
