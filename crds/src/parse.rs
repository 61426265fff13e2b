//! Reads one object from YAML text as strictly as the API server does: no unknown field, the
//! schema, the CEL rules, then the type.

use std::fmt;

use kube::core::cel::{Validator, apply_defaults};
use kube::{CustomResourceExt, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::schema_check::{self, Fault};
use crate::{API_VERSION, DevicePool, ModelCompilation, TuningRun, generate};

/// Why a text is not the object that it should be.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It is not YAML.
    #[error("the file is not valid YAML: correct the place named")]
    Yaml(#[source] serde_yaml::Error),
    /// It holds no object, or several.
    #[error("the file holds {0} objects of YAML: it must hold exactly one")]
    Count(usize),
    /// It is another kind or version.
    #[error("the file holds {found}: it must be {expected}")]
    Kind {
        /// What `apiVersion` and `kind` say.
        found: String,
        /// What they must say.
        expected: String,
    },
    /// Fields are wrong: all of them, a line each.
    #[error("{object} is refused:{}", Lines(.faults))]
    Invalid {
        /// Kind and name.
        object: String,
        /// Every fault.
        faults: Vec<Fault>,
    },
    /// Schema and types disagree; our bug.
    #[error("{object} passes the schema but cannot be read: please report this file")]
    Decode {
        /// Kind and name.
        object: String,
        /// What the decoder said.
        #[source]
        source: serde_json::Error,
    },
}

/// Faults, each on its own line.
struct Lines<'a>(&'a [Fault]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in self.0 {
            write!(f, "\n  {}: {}", fault.path, fault.message)?;
        }
        Ok(())
    }
}

impl ModelCompilation {
    /// Reads a `ModelCompilation` from the text of a YAML (or JSON) file.
    ///
    /// # Errors
    /// [`SpecError`], naming the object, each faulty field's path, and what to do.
    pub fn from_yaml(text: &str) -> Result<Self, SpecError> {
        from_yaml(text)
    }
}

impl TuningRun {
    /// Reads a `TuningRun` from YAML; errors as for [`ModelCompilation::from_yaml`].
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn from_yaml(text: &str) -> Result<Self, SpecError> {
        from_yaml(text)
    }
}

impl DevicePool {
    /// Reads a `DevicePool` from YAML; errors as for [`ModelCompilation::from_yaml`].
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn from_yaml(text: &str) -> Result<Self, SpecError> {
        from_yaml(text)
    }
}

/// Reads one object of kind `K`.
///
/// # Errors
/// [`SpecError`].
pub fn from_yaml<K>(text: &str) -> Result<K, SpecError>
where
    K: Resource<DynamicType = ()> + CustomResourceExt + DeserializeOwned,
{
    from_value(single_document(text)?)
}

/// As [`from_yaml`], of an object that was read already.
///
/// # Errors
/// [`SpecError`].
pub fn from_value<K>(value: Value) -> Result<K, SpecError>
where
    K: Resource<DynamicType = ()> + CustomResourceExt + DeserializeOwned,
{
    check_kind(&value, K::kind(&()).as_ref())?;
    let object = name_of::<K>(&value);
    let value = validate::<K>(value, None)
        .map_err(|faults| SpecError::Invalid { object: object.clone(), faults })?;
    serde_json::from_value(value).map_err(|source| SpecError::Decode { object, source })
}

/// Checks the change from the object in `old` to that in `new` as the API server does on update.
///
/// # Errors
/// [`SpecError`] for the first text that cannot be read, or for rules that forbid the change.
pub fn check_update<K>(old: &str, new: &str) -> Result<K, SpecError>
where
    K: Resource<DynamicType = ()> + CustomResourceExt + DeserializeOwned,
{
    let old = apply_defaults(&generate::schema_of::<K>(), &single_document(old)?);
    let value = single_document(new)?;
    check_kind(&value, K::kind(&()).as_ref())?;
    let object = name_of::<K>(&value);
    let value = validate::<K>(value, Some(&old))
        .map_err(|faults| SpecError::Invalid { object: object.clone(), faults })?;
    serde_json::from_value(value).map_err(|source| SpecError::Decode { object, source })
}

/// Kind and name, as errors say them.
fn name_of<K: Resource<DynamicType = ()>>(value: &Value) -> String {
    let name = value["metadata"]["name"].as_str();
    format!("{} '{}'", K::kind(&()), name.unwrap_or("?"))
}

fn single_document(text: &str) -> Result<Value, SpecError> {
    let mut documents = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(SpecError::Yaml)?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    match documents.len() {
        1 => Ok(documents.remove(0)),
        count => Err(SpecError::Count(count)),
    }
}

fn check_kind(value: &Value, kind: &str) -> Result<(), SpecError> {
    let text = |name: &str| value[name].as_str().unwrap_or("?").to_owned();
    let (version, found) = (text("apiVersion"), text("kind"));
    if version == API_VERSION && found == kind {
        return Ok(());
    }
    Err(SpecError::Kind {
        found: format!("{version} {found}"),
        expected: format!("{API_VERSION} {kind}"),
    })
}

/// `value` with the schema's defaults, or its faults: those of the schema, else those of the rules.
fn validate<K: CustomResourceExt>(value: Value, old: Option<&Value>) -> Result<Value, Vec<Fault>> {
    let schema = generate::schema_of::<K>();
    let value = apply_defaults(&schema, &value);
    let mut faults = check_head(&value);
    faults.extend(schema_check::check(&schema["properties"]["spec"], &value["spec"], "spec"));
    if !faults.is_empty() {
        return Err(faults);
    }
    match Validator::new().validate(&schema, &value, old) {
        Ok(()) => Ok(value),
        Err(errors) => Err(errors
            .into_vec()
            .into_iter()
            .map(|error| Fault { path: error.field_path, message: error.message })
            .collect()),
    }
}

/// Faults at the object's root: unknown fields and the name.
fn check_head(value: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |path: &str, message: String| {
        faults.push(Fault { path: path.to_owned(), message });
    };
    for name in value.as_object().into_iter().flat_map(|map| map.keys()) {
        if !["apiVersion", "kind", "metadata", "spec", "status"].contains(&name.as_str()) {
            fault(name, "is an unknown field: known are metadata and spec".to_owned());
        }
    }
    match value["metadata"]["name"].as_str() {
        None => fault("metadata.name", "is missing: it must be set to a text".to_owned()),
        Some(name) if !is_object_name(name) => fault(
            "metadata.name",
            format!("'{name}' is no name: use lower-case letters, digits, '-' and '.'"),
        ),
        Some(_) => {}
    }
    faults
}

/// Whether `name` is a DNS subdomain, as object names must be.
fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
