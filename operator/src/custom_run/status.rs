//! Writes the status, at exactly the version that was planned for.

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::CONTROLLER;
use super::apply::{RunError, failed};
use super::resource::{CustomRun, CustomRunStatus};
use crate::children::names;
use crate::context::Context;
use crate::runtime::queue::Key;

/// Writes the status of a plan, if it changed. A merge patch and no server-side apply: what is taken back has to go,
/// whatever fields Tekton's schema lists.
///
/// # Errors
/// [`RunError`], a conflict included.
pub async fn write(
    context: &Context,
    run: &CustomRun,
    status: Option<CustomRunStatus>,
) -> Result<(), RunError> {
    let Some(status) = status else { return Ok(()) };
    if !context.fence.leads() {
        return Err(RunError::NotLeading);
    }
    let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
    let patch = json!({
        "apiVersion": CustomRun::api_version(&()),
        "kind": CustomRun::kind(&()),
        "metadata": {"resourceVersion": run.resource_version()},
        "status": status,
    });
    let api: Api<CustomRun> = Api::namespaced(context.client.clone(), &namespace);
    let params =
        PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..Default::default() };
    match api.patch_status(&name, &params, &Patch::Merge(&patch)).await {
        Ok(written) => {
            let key = Key::of(CONTROLLER, run);
            context.queue.wrote(&key, written.resource_version().as_deref());
            Ok(())
        }
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        Err(error) => {
            Err(failed(format!("write the status of CustomRun '{namespace}/{name}'"))(error))
        }
    }
}
