//! Writes the status, at exactly the version that was planned for: a replica that was deposed
//! meanwhile, or that looked at old state, gets a conflict and looks again.

use hone_crds::{ModelCompilation, ModelCompilationStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::CONTROLLER;
use crate::children::apply::{Applied, ApplyError};
use crate::children::jobs::JobView;
use crate::children::names;
use crate::context::Context;
use crate::runtime::queue::Key;

/// Writes the status of what was applied, if it changed. `jobs` are those that it was planned from.
///
/// # Errors
/// [`ApplyError`], a conflict included.
pub async fn write(
    context: &Context,
    object: &ModelCompilation,
    jobs: &[JobView],
    status: Option<ModelCompilationStatus>,
    applied: Applied,
) -> Result<(), ApplyError> {
    let Applied { resource_version, pools, refusals: _, gone } = applied;
    let Some(mut status) = status.filter(|_| !gone) else { return Ok(()) };
    for target in &mut status.targets {
        let pool = target.job_ref.as_ref().and_then(|job| pools.get(&job.name));
        target.pool = pool.cloned().or(target.pool.take());
    }
    if !context.fence.leads() {
        return Err(ApplyError::NotLeading);
    }
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<ModelCompilation> = Api::namespaced(context.client.clone(), &namespace);
    let params =
        PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    // Replaced and not applied: nobody else writes it, and merging field by field costs the API server more.
    let replaced = ModelCompilation {
        metadata: ObjectMeta { resource_version, ..object.metadata.clone() },
        spec: object.spec.clone(),
        status: Some(status.clone()),
    };
    match api.replace_status(&name, &params, &replaced).await {
        Ok(written) => {
            let key = Key::of(CONTROLLER, object);
            context.queue.wrote(&key, written.resource_version().as_deref());
            context.metrics.transition(object.status.as_ref(), &status);
            context.traces.transition(object, jobs, &status);
            context.cloud_events.transition(object, &status);
            Ok(())
        }
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        Err(source) => Err(ApplyError::Kube {
            what: format!("write the status of ModelCompilation '{namespace}/{name}'"),
            source: Box::new(source),
        }),
    }
}
