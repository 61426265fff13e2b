//! Writes a pool's status where it changed.

use hone_crds::{DevicePool, DevicePoolStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use crate::context::Context;
use crate::controllers::Expected;
use crate::model_compilation::names::MANAGER;

/// Why the status could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the status of DevicePool '{name}'")]
pub struct StatusError {
    name: String,
    #[source]
    source: Box<kube::Error>,
}

impl Expected for StatusError {
    fn is_expected(&self) -> bool {
        matches!(&*self.source, kube::Error::Api(status) if status.code == 409)
    }
}

/// Writes `wanted` unless it is there already.
///
/// # Errors
/// [`StatusError`].
pub async fn write(
    context: &Context,
    object: &DevicePool,
    wanted: DevicePoolStatus,
) -> Result<(), StatusError> {
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting || object.status.as_ref() == Some(&wanted) || !context.fence.leads() {
        return Ok(());
    }
    let name = object.name_any();
    let api: Api<DevicePool> = Api::all(context.client.clone());
    let patch = json!({
        "apiVersion": DevicePool::api_version(&()),
        "kind": DevicePool::kind(&()),
        "metadata": {"name": name, "resourceVersion": object.resource_version()},
        "status": wanted,
    });
    let params = PatchParams::apply(MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        Err(source) => Err(StatusError { name, source: Box::new(source) }),
    }
}
