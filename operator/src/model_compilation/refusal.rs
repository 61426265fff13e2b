//! Refuses, before any pod is made, what a spec asks for in vain.

use hone_artifact::exit_code::Reason;
use hone_crds::model_compilation::ModelCompilationSpec;
use hone_crds::not_yet::not_yet;
use hone_crds::status::Failure;

use crate::config::Config;

/// Why no pod can do what `spec` asks for; `None` where one can.
pub fn find(config: &Config, spec: &ModelCompilationSpec) -> Option<Failure> {
    let mut lines: Vec<String> = not_yet(spec)
        .into_iter()
        .map(|refused| format!("{}: {}", refused.field, refused.advice))
        .collect();
    if config.shared_volume_claim.is_none() {
        for (field, uri) in [
            ("spec.model.uri", Some(&spec.model.uri)),
            ("spec.output.uri", Some(&spec.output.uri)),
            ("spec.correctness.samples.uri", spec.correctness.samples.as_ref().map(|s| &s.uri)),
        ] {
            if uri.is_some_and(|uri| uri.starts_with("file://")) {
                lines.push(format!(
                    "{field}: file:// needs a volume, and this cluster's operator was installed without a shared one: use s3, gs or az"
                ));
            }
        }
    }
    (!lines.is_empty()).then(|| Failure {
        reason: Reason::NotSupportedYet.as_str().to_owned(),
        message: lines.join("; "),
    })
}
