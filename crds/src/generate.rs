//! The CRDs as YAML, from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{DevicePool, ModelCompilation, TuningRun};

/// Every CRD: the file's name and its text, ready for `kubectl apply`.
///
/// # Errors
/// When a schema cannot be written as YAML, which a test rules out.
pub fn crds() -> Result<Vec<(&'static str, String)>, serde_yaml::Error> {
    [
        ("hone.dev_devicepools.yaml", DevicePool::crd()),
        ("hone.dev_modelcompilations.yaml", ModelCompilation::crd()),
        ("hone.dev_tuningruns.yaml", TuningRun::crd()),
    ]
    .into_iter()
    .map(|(name, mut crd)| {
        shorten_conditions(&mut crd);
        for version in &mut crd.spec.versions {
            let schema = version.schema.as_mut();
            schema
                .and_then(|own| own.open_api_v3_schema.as_mut())
                .into_iter()
                .for_each(plain_integers);
        }
        let text = serde_yaml::to_string(&crd)?;
        let head = "# Generated from the types by `cargo xtask generate`: do not edit.\n";
        Ok((name, format!("{head}{text}")))
    })
    .collect()
}

/// What the fields of a condition are. Kubernetes' descriptions of them are a kilobyte in each CRD, which every client
/// of the cluster reads.
const CONDITION: [(&str, &str); 6] = [
    ("lastTransitionTime", "When the status changed last."),
    ("message", "The reason in words; may be empty."),
    ("observedGeneration", "The spec's generation that it speaks of."),
    ("reason", "Why, as one CamelCase word."),
    ("status", "True, False or Unknown."),
    ("type", "What it says, in CamelCase."),
];

/// Describes the fields of `status.conditions` in a few words each.
fn shorten_conditions(crd: &mut CustomResourceDefinition) {
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|own| own.open_api_v3_schema.as_mut());
        let status = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("status"));
        let conditions =
            status.and_then(|status| status.properties.as_mut()?.get_mut("conditions"));
        let Some(JSONSchemaPropsOrArray::Schema(condition)) =
            conditions.and_then(|conditions| conditions.items.as_mut())
        else {
            continue;
        };
        condition.description = Some("One aspect of the state.".to_owned());
        for (name, description) in CONDITION {
            if let Some(field) = condition.properties.as_mut().and_then(|own| own.get_mut(name)) {
                field.description = Some(description.to_owned());
            }
        }
    }
}

/// Leaves out the format of integers of 64 bits, which every integer is where nothing is said: half a kilobyte and more that
/// every client of the cluster reads.
fn plain_integers(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref() == Some("int64") {
        schema.format = None;
    }
    let fields = schema.properties.iter_mut().flat_map(|fields| fields.values_mut());
    fields.for_each(plain_integers);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        plain_integers(items);
    }
}

/// The OpenAPI schema of a kind, as the API server applies it.
pub fn schema_of<K: CustomResourceExt>() -> Value {
    let crd = K::crd();
    crd.spec
        .versions
        .first()
        .and_then(|version| version.schema.as_ref())
        .and_then(|schema| schema.open_api_v3_schema.as_ref())
        .and_then(|schema| serde_json::to_value(schema).ok())
        .unwrap_or(Value::Null)
}
