//! Tuning runs that another kind owns: what planning sees of one, and how one is made and changed.

use std::collections::BTreeMap;

use hone_crds::status::Failure;
use hone_crds::tuning_run::{Best, TuningRunSpec};
use hone_crds::{Phase, TuningRun};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::apply::{ApplyError, Owner, kube_error};
use super::names;
use super::owner;
use super::steps::Refusal;
use crate::context::Context;

/// A run as its owner wants it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPlan {
    /// Its name.
    pub name: String,
    /// The target that it is for.
    pub target: String,
    /// What it is to do.
    pub spec: TuningRunSpec,
    /// The owner's [`names::RETRY_ANNOTATION`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
}

/// A run that is there.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunView {
    /// Its name.
    pub name: String,
    /// Whether it is being deleted.
    #[serde(default)]
    pub deleting: bool,
    /// What it does.
    pub spec: TuningRunSpec,
    /// Its [`names::RETRY_ANNOTATION`].
    #[serde(default)]
    pub retry: Option<String>,
    /// Where it stands with this spec; Pending where its status speaks of an earlier one.
    #[serde(default)]
    pub phase: Phase,
    /// Why it failed, or what it waits for.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// SHA-256 of the last segment of its log.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// What it found.
    #[serde(default)]
    pub best: Option<Best>,
}

impl RunView {
    /// What planning sees of `run`.
    pub fn of(run: &TuningRun) -> Self {
        let status = run.status.as_ref();
        let status = status.filter(|own| own.observed_generation == run.metadata.generation);
        let checkpoint = status.and_then(|status| status.checkpoint.as_ref());
        Self {
            name: run.name_any(),
            deleting: run.metadata.deletion_timestamp.is_some(),
            spec: run.spec.clone(),
            retry: run.annotations().get(names::RETRY_ANNOTATION).cloned(),
            phase: status.map(|status| status.phase).unwrap_or_default(),
            failure: status.and_then(|status| status.failure.clone()),
            checkpoint: checkpoint.map(|checkpoint| checkpoint.digest.clone()),
            best: status.and_then(|status| status.best.clone()),
        }
    }
}

pub(super) fn api<K: Owner>(context: &Context, object: &K) -> Api<TuningRun> {
    Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default())
}

/// Makes the run of a plan, or changes it. What the API server refuses is returned.
///
/// # Errors
/// [`ApplyError`] where it is worth trying again.
pub(super) async fn apply<K: Owner>(
    context: &Context,
    object: &K,
    plan: &RunPlan,
) -> Result<Option<Refusal>, ApplyError> {
    let run = manifest(object, plan);
    let params = PatchParams::apply(names::MANAGER).force();
    // A run of this name that another controls cannot get a second controller: that is refused, too.
    match api(context, object).patch(&plan.name, &params, &Patch::Apply(&run)).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Some(Refusal { code: status.code, message: status.message.clone() }))
        }
        Err(error) => Err(kube_error(format!("make TuningRun '{}'", plan.name))(error)),
    }
}

/// The run of `plan` for `object`.
fn manifest<K: Owner>(object: &K, plan: &RunPlan) -> serde_json::Value {
    let copied = object.labels().iter().filter(|(key, _)| key.starts_with(names::COPIED_LABELS));
    let mut labels: BTreeMap<_, _> = copied.map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut label = |key: &str, value: &str| {
        labels.insert(key.to_owned(), super::bounds::label(value));
    };
    label(names::MANAGED_BY, names::MANAGER);
    label(names::UID_LABEL, object.meta().uid.as_deref().unwrap_or_default());
    label(names::NAME_LABEL, &object.name_any());
    label(names::TARGET_LABEL, &plan.target);
    let retry = plan.retry.iter();
    let metadata = ObjectMeta {
        name: Some(plan.name.clone()),
        namespace: object.namespace(),
        labels: Some(labels),
        annotations: Some(
            retry.map(|own| (names::RETRY_ANNOTATION.to_owned(), own.clone())).collect(),
        ),
        owner_references: Some(vec![owner::reference(object)]),
        ..ObjectMeta::default()
    };
    json!({
        "apiVersion": <TuningRun as kube::Resource>::api_version(&()),
        "kind": <TuningRun as kube::Resource>::kind(&()),
        "metadata": metadata,
        "spec": plan.spec,
    })
}
