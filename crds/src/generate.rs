//! The CRDs as YAML, from the types.

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
    .map(|(name, crd)| {
        let text = serde_yaml::to_string(&crd)?;
        let head = "# Generated from the types by `cargo xtask generate`: do not edit.\n";
        Ok((name, format!("{head}{text}")))
    })
    .collect()
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
