//! Does what a plan says. Each action may be done again harmlessly.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::asked;
use super::model::{Action, Child, ChildPlan};
use super::resource::{CustomRun, GROUP, KIND};
use crate::children::steps::Refusal;
use crate::children::{names, owner};
use crate::context::Context;
use crate::runtime::worker::{FailureClass, ReconcileFailure, class_of};

/// Why a reconcile is tried again.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// This replica does not hold the lease any more, or cannot tell.
    #[error("this replica does not lead: nothing is written")]
    NotLeading,
    /// An object of ours cannot be written down.
    #[error("{what} has no form in JSON")]
    Form {
        /// Kind and name.
        what: String,
        /// What the encoder said.
        #[source]
        source: serde_json::Error,
    },
    /// The API server did not answer, or with an error that may pass.
    #[error("cannot {what}")]
    Kube {
        /// What was tried, on which object.
        what: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
}

impl ReconcileFailure for RunError {
    fn class(&self) -> FailureClass {
        match self {
            Self::NotLeading => FailureClass::NotLeading,
            Self::Form { .. } => FailureClass::Fault,
            Self::Kube { source, .. } => class_of(source),
        }
    }
}

/// The error of what was tried.
pub(super) fn failed(what: String) -> impl FnOnce(kube::Error) -> RunError {
    move |source| RunError::Kube { what, source: Box::new(source) }
}

/// Does `actions` in order, up to the first that the API server refuses; that refusal is returned.
///
/// # Errors
/// [`RunError`]; what was done before stands.
pub async fn apply(
    context: &Context,
    run: &CustomRun,
    actions: &[Action],
) -> Result<Option<Refusal>, RunError> {
    for action in actions {
        if !context.fence.leads() {
            return Err(RunError::NotLeading);
        }
        match action {
            Action::Create(plan) => {
                if let Some(refusal) = create(context, run, plan).await? {
                    return Ok(Some(refusal));
                }
            }
            Action::Suspend(child) => suspend(context, run, child).await?,
        }
    }
    Ok(None)
}

fn api(context: &Context, run: &CustomRun, child: &Child) -> Api<DynamicObject> {
    let namespace = run.namespace().unwrap_or_default();
    Api::namespaced_with(context.client.clone(), &namespace, &child.kind.resource())
}

async fn create(
    context: &Context,
    run: &CustomRun,
    plan: &ChildPlan,
) -> Result<Option<Refusal>, RunError> {
    let child = &plan.child;
    let what = || format!("make {} '{}'", child.kind.as_str(), child.name);
    let object: DynamicObject = serde_json::from_value(asked::object(plan))
        .map_err(|source| RunError::Form { what: child.name.clone(), source })?;
    let mut object = object;
    object.metadata.namespace = run.namespace();
    object.metadata.owner_references = Some(vec![owner::reference(run)]);
    let params =
        PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    let api = api(context, run, child);
    match api.create(&params, &object).await {
        Ok(_) => Ok(None),
        // Made already, by this reconcile cut short or by the replica before; or by somebody else.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = api.get_metadata_opt(&child.name).await.map_err(failed(what()))?;
            let ours = found.is_none_or(|found| {
                let controller = owner::controller(&found.metadata, GROUP, KIND);
                controller.is_some_and(|own| Some(&own.uid) == run.metadata.uid.as_ref())
            });
            let message = "another owns it".to_owned();
            Ok((!ours).then_some(Refusal { code: status.code, message }))
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Some(Refusal { code: status.code, message: status.message.clone() }))
        }
        Err(error) => Err(failed(what())(error)),
    }
}

async fn suspend(context: &Context, run: &CustomRun, child: &Child) -> Result<(), RunError> {
    let patch = json!({"spec": {"suspend": true}});
    let params =
        PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..Default::default() };
    match api(context, run, child).patch(&child.name, &params, &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => {
            let what = format!("suspend {} '{}'", child.kind.as_str(), child.name);
            Err(failed(what)(error))
        }
    }
}
