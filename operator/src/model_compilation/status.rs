//! Writes the status, at exactly the version that was planned for: a replica that was deposed
//! meanwhile, or that looked at old state, gets a conflict and looks again.

use hone_crds::conditions::{READY, State, set};
use hone_crds::{ModelCompilation, ModelCompilationStatus, Phase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::apply::{Applied, ApplyError};
use super::names;
use crate::context::Context;

/// Writes the status of what was applied, if it changed.
///
/// # Errors
/// [`ApplyError`], a conflict included.
pub async fn write(
    context: &Context,
    object: &ModelCompilation,
    applied: Applied,
) -> Result<(), ApplyError> {
    let Applied { plan, resource_version, refused, gone } = applied;
    if gone {
        return Ok(());
    }
    let mut status = plan.status.or_else(|| object.status.clone());
    for (target, why) in refused {
        let Some(status) = &mut status else { break };
        refuse(status, target.as_deref(), why, object.metadata.generation);
    }
    let Some(status) = status.filter(|status| object.status.as_ref() != Some(status)) else {
        return Ok(());
    };
    if !context.fence.leads() {
        return Err(ApplyError::NotLeading);
    }
    let name = object.name_any();
    let patch = json!({
        "apiVersion": ModelCompilation::api_version(&()),
        "kind": ModelCompilation::kind(&()),
        "metadata": {"name": name, "resourceVersion": resource_version},
        "status": status,
    });
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<ModelCompilation> = Api::namespaced(context.client.clone(), &namespace);
    let params = PatchParams::apply(names::MANAGER).force();
    let written = api.patch_status(&name, &params, &Patch::Apply(&patch)).await;
    match written {
        Ok(written) => {
            let uid = written.uid().unwrap_or_default();
            context.waiting.wrote(&uid, written.resource_version().as_deref());
            context.metrics.transition(object.status.as_ref(), &status);
            Ok(())
        }
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        Err(source) => Err(ApplyError::Kube {
            what: format!("write the status of ModelCompilation '{namespace}/{name}'"),
            source: Box::new(source),
        }),
    }
}

/// Says that a target waits because the API server refused its Job.
fn refuse(
    status: &mut ModelCompilationStatus,
    target: Option<&str>,
    why: hone_crds::status::Failure,
    generation: Option<i64>,
) {
    let now = Time(jiff::Timestamp::now());
    set(&mut status.conditions, READY, State::False, &why.reason, &why.message, generation, &now);
    let entry = status.targets.iter_mut().find(|entry| Some(entry.name.as_str()) == target);
    if let Some(entry) = entry {
        entry.phase = Phase::Pending;
        entry.failure = Some(why);
    }
}
