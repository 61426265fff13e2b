//! `TuningRun`: the kind is there, the fleet that tunes arrives in a later release. Until then
//! every run ends at once with a condition that says so, so that nobody waits in vain.

use std::sync::Arc;
use std::time::Duration;

use hone_crds::conditions::{FINISHED, READY, RECONCILING, STALLED, SUCCEEDED, State, set};
use hone_crds::{Phase, TuningRun, TuningRunStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use crate::children::names::MANAGER;
use crate::context::Context;
use crate::runtime::worker::{FailureClass, ReconcileFailure, class_of};

/// The controller's name in keys, metrics and logs.
pub const CONTROLLER: &str = "tuningrun";

/// Why the status could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the status of TuningRun '{name}'")]
pub struct TuningRunError {
    name: String,
    #[source]
    source: Box<kube::Error>,
}

impl ReconcileFailure for TuningRunError {
    fn class(&self) -> FailureClass {
        class_of(&self.source)
    }
}

/// The status of every run in this release.
pub fn plan(object: &TuningRun, now: &Time) -> TuningRunStatus {
    const REASON: &str = "NotImplemented";
    const MESSAGE: &str = "tuning arrives in a later release: delete this TuningRun; a \
        ModelCompilation without spec.tuning compiles with schedules that an analytic model chose";
    let mut status = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    status.observed_generation = generation;
    status.phase = Phase::Failed;
    for (kind, state) in [
        (READY, State::False),
        (RECONCILING, State::False),
        (STALLED, State::True),
        (FINISHED, State::True),
        (SUCCEEDED, State::False),
    ] {
        set(&mut status.conditions, kind, state, REASON, MESSAGE, generation, now);
    }
    status
}

/// Says that the run is refused.
///
/// # Errors
/// [`TuningRunError`] when the status cannot be written.
pub async fn reconcile(
    object: Arc<TuningRun>,
    context: Arc<Context>,
) -> Result<Option<Duration>, TuningRunError> {
    let status = plan(&object, &Time(jiff::Timestamp::now()));
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting || object.status.as_ref() == Some(&status) || !context.fence.leads() {
        return Ok(None);
    }
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<TuningRun> = Api::namespaced(context.client.clone(), &namespace);
    let patch = json!({
        "apiVersion": TuningRun::api_version(&()),
        "kind": TuningRun::kind(&()),
        "metadata": {"name": name, "resourceVersion": object.resource_version()},
        "status": status,
    });
    let params = PatchParams::apply(MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(&patch)).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(None),
        Err(source) => Err(TuningRunError { name, source: Box::new(source) }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_crds::conditions::is_true;

    #[test]
    fn a_run_is_refused_once() {
        let text = include_str!("../../../tests/specs/accepted/tuning-run.yaml");
        let mut run = TuningRun::from_yaml(text).unwrap();
        let now = Time(jiff::Timestamp::from_second(1).unwrap());
        let status = plan(&run, &now);
        assert!(is_true(&status.conditions, STALLED) && is_true(&status.conditions, FINISHED));
        run.status = Some(status.clone());
        let later = Time(jiff::Timestamp::from_second(99).unwrap());
        assert_eq!(plan(&run, &later), status);
    }
}
