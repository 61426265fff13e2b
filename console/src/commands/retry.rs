//! `kubectl hone retry`: has failed targets, and failed searches for faster schedules, tried again.

use hone_crds::ModelCompilation;
use hone_operator::children::names::RETRY_ANNOTATION;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::ConsoleError;
use crate::cluster::Cluster;
use crate::text::plain;

/// Arguments of `retry`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The compilation.
    name: String,
}

pub async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<(), ConsoleError> {
    let object = cluster.compilation(&arguments.name).await?;
    let status = object.status.clone().unwrap_or_default();
    let failed: Vec<&str> = status
        .targets
        .iter()
        .filter(|target| target.has_failed())
        .map(|target| target.name.as_str())
        .collect();
    if failed.is_empty() {
        let message = format!(
            "no target of '{}' has failed (it is {}): there is nothing to try again",
            arguments.name,
            status.phase.as_str()
        );
        return Err(ConsoleError::Nothing(message));
    }
    // Any other value than before counts; a time tells people when it was asked for.
    let patch = json!({"metadata": {
        "resourceVersion": object.resource_version(),
        "annotations": {RETRY_ANNOTATION: Timestamp::now().to_string()},
    }});
    let api: Api<ModelCompilation> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let params =
        PatchParams { field_manager: Some("kubectl-hone".to_owned()), ..PatchParams::default() };
    let what = format!("annotating ModelCompilation '{}'", arguments.name);
    api.patch(&arguments.name, &params, &Patch::Merge(&patch))
        .await
        .map_err(ConsoleError::api(what))?;
    println!("{} is tried again: {}", plain(&arguments.name), plain(&failed.join(", ")));
    Ok(())
}
