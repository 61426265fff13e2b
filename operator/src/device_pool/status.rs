//! Writes a pool's status where it changed.

use hone_crds::{DevicePool, DevicePoolStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use crate::children::names::MANAGER;
use crate::context::Context;
use crate::runtime::worker::{FailureClass, ReconcileFailure, class_of};

/// Why the status could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the status of DevicePool '{name}'")]
pub struct StatusError {
    name: String,
    #[source]
    source: Box<kube::Error>,
}

impl ReconcileFailure for StatusError {
    fn class(&self) -> FailureClass {
        class_of(&self.source)
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
