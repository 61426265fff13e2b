//! Tekton's `CustomRun`, as much of it as is read and written here. The kind is Tekton's, and so are its CRD and its
//! rules: `docs/customruns.md` of tektoncd/pipeline is the contract.
//!
//! A field that cannot be read counts as absent: one object that an older Tekton let pass must not end the watch of all.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::seen;

/// The API group of Tekton's kinds.
pub const GROUP: &str = "tekton.dev";
/// `kind` of a [`CustomRun`].
pub const KIND: &str = "CustomRun";
/// Value of `spec.status` that asks for cancellation.
const CANCELLED: &str = "RunCancelled";

/// One execution of a task that Tekton leaves to another controller.
#[derive(Clone, Debug, Deserialize)]
pub struct CustomRun {
    /// Its head, without managed fields.
    #[serde(deserialize_with = "seen::metadata")]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: CustomRunSpec,
    /// What was said of it.
    #[serde(default, deserialize_with = "lenient")]
    pub status: CustomRunStatus,
}

impl Resource for CustomRun {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1beta1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "customruns".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomRunSpec {
    /// The kind that runs it, and an object of that kind where one is named.
    #[serde(deserialize_with = "lenient")]
    pub custom_ref: Option<CustomRef>,
    /// The kind that runs it, with the whole spec.
    #[serde(deserialize_with = "lenient")]
    pub custom_spec: Option<CustomSpec>,
    /// Parameters.
    #[serde(deserialize_with = "lenient")]
    pub params: Vec<Param>,
    /// `RunCancelled` once it is to be cancelled.
    #[serde(deserialize_with = "lenient")]
    pub status: String,
    /// Why it is to be cancelled.
    #[serde(deserialize_with = "lenient")]
    pub status_message: String,
    /// How often a failed attempt is followed by another.
    #[serde(deserialize_with = "lenient")]
    pub retries: usize,
    /// The service account of what runs.
    #[serde(deserialize_with = "lenient")]
    pub service_account_name: String,
    /// Longest time of one attempt as Go writes it, such as `1h0m0s`; zero for none.
    #[serde(deserialize_with = "lenient")]
    pub timeout: Option<String>,
    /// Volumes.
    #[serde(deserialize_with = "lenient")]
    pub workspaces: Vec<Value>,
}

/// A kind, and an object of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomRef {
    /// Group and version.
    #[serde(deserialize_with = "lenient")]
    pub api_version: String,
    /// The kind.
    #[serde(deserialize_with = "lenient")]
    pub kind: String,
    /// The object's name; may be empty.
    #[serde(deserialize_with = "lenient")]
    pub name: String,
}

/// A kind, and what an object of it is to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomSpec {
    /// Group and version.
    #[serde(deserialize_with = "lenient")]
    pub api_version: String,
    /// The kind.
    #[serde(deserialize_with = "lenient")]
    pub kind: String,
    /// Its labels and annotations.
    #[serde(deserialize_with = "lenient")]
    pub metadata: Head,
    /// Its spec.
    pub spec: Value,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Head {
    /// Labels.
    #[serde(deserialize_with = "lenient")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "lenient")]
    pub annotations: BTreeMap<String, String>,
}

/// A parameter.
#[derive(Clone, Debug, Deserialize)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// A text, a list of texts, or a map of texts.
    pub value: Value,
}

/// What is said of a run. Absent fields are written as `null`, which removes them in a merge patch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomRunStatus {
    /// The spec's generation that it speaks of.
    pub observed_generation: Option<i64>,
    /// `Succeeded`, which is Unknown until the run has ended.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
    /// When the attempt began.
    #[serde(deserialize_with = "lenient")]
    pub start_time: Option<Time>,
    /// When the run ended.
    #[serde(deserialize_with = "lenient")]
    pub completion_time: Option<Time>,
    /// What later tasks of a pipeline may use.
    #[serde(deserialize_with = "lenient")]
    pub results: Option<Vec<RunResult>>,
    /// What was said of earlier attempts, in order.
    #[serde(deserialize_with = "lenient")]
    pub retries_status: Option<Vec<Value>>,
    /// What Tekton does not know.
    #[serde(deserialize_with = "lenient")]
    pub extra_fields: Option<ExtraFields>,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What Tekton does not know of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraFields {
    /// The object that was made for the attempt.
    pub object: Made,
}

/// An object that was made for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}

impl CustomRun {
    /// Group and version, and kind, of what is to run it.
    pub fn runner(&self) -> (&str, &str) {
        match (&self.spec.custom_spec, &self.spec.custom_ref) {
            (Some(spec), _) => (&spec.api_version, &spec.kind),
            (None, Some(reference)) => (&reference.api_version, &reference.kind),
            (None, None) => ("", ""),
        }
    }

    /// Whether it is this operator's: of any version and kind of our group, so that somebody says what is wrong with one
    /// that does not exist.
    pub fn is_ours(&self) -> bool {
        self.runner().0.split('/').next() == Some(hone_crds::GROUP)
    }

    /// Whether it is to be cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.spec.status == CANCELLED
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|own| own.type_ == SUCCEEDED && matches!(&*own.status, "True" | "False"))
    }
}

impl CustomRunStatus {
    /// How many attempts have ended before the one at hand.
    pub fn attempts(&self) -> usize {
        self.retries_status.as_ref().map_or(0, Vec::len)
    }
}

/// The only condition of a run.
pub const SUCCEEDED: &str = hone_crds::conditions::SUCCEEDED;

/// A value, or its default where it cannot be read.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_read_counts_as_absent() {
        let run: CustomRun = serde_json::from_value(json!({
            "metadata": {"name": "x"},
            "spec": {"customRef": {"apiVersion": "hone.dev/v1alpha1", "kind": "TuningRun"},
                "retries": "many", "timeout": 3, "params": "none"},
            "status": {"conditions": [{"type": 1}]}
        }))
        .unwrap();
        assert!(run.is_ours() && !run.is_done());
        assert_eq!((run.spec.retries, run.spec.timeout), (0, None));
        let bare: CustomRun = serde_json::from_value(json!({"metadata": {"name": "x"}})).unwrap();
        assert!(!bare.is_ours());
        let other = json!({"metadata": {"name": "x"}, "spec": {"customRef": {"apiVersion": "hone.dev.example/v1"}}});
        assert!(!serde_json::from_value::<CustomRun>(other).unwrap().is_ours());
    }
}
