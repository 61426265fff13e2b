//! Types of inner values of a model, so that they can become inputs. They are found by importing the model, in a process of
//! its own: importing it may be what fails.

use std::io::Write;
use std::path::Path;

use hone_artifact::exit_code::Reason;
use hone_driver::onnx::proto::{ModelProto, ValueInfoProto, type_proto::Value as TypeValue};
use hone_driver::onnx::{self, edit};
use hone_driver::{Bytes, ImportOptions};
use prost::Message;

use super::attempt::Attempts;
use super::subgraph::ValueTypes;
use crate::failure::{Failure, Result};
use crate::storage::local;

/// The types of the values of a model whose sizes are fixed, as far as they can be known.
///
/// # Errors
/// `Interrupted`; what hinders writing temporary files or starting a process.
pub fn value_types(attempts: &Attempts, model: &ModelProto) -> Result<ValueTypes> {
    let path = attempts.candidate();
    let unwritten = |error| Failure::io("temporary files cannot be written", error);
    std::fs::write(&path, model.encode_to_vec()).map_err(unwritten)?;
    let reported = attempts.value_types(&path)?;
    let graph = model.graph.iter();
    let declared =
        graph.flat_map(|entry| entry.value_info.iter().chain(&entry.output).chain(&entry.input));
    let mut types = ValueTypes::new();
    for value in read(&reported) {
        types.insert(value.name.clone().unwrap_or_default(), value);
    }
    for value in declared.filter(|entry| is_fixed(entry)) {
        let name = value.name.clone().unwrap_or_default();
        // An element type that is declared otherwise was guessed.
        if types.get(&name).is_none_or(|entry| element_type(entry) != element_type(value)) {
            types.insert(name, value.clone());
        }
    }
    Ok(types)
}

/// The number of a tensor's element type.
fn element_type(value: &ValueInfoProto) -> Option<i32> {
    match value.r#type.as_ref()?.value.as_ref()? {
        TypeValue::TensorType(tensor) => tensor.elem_type,
        _ => None,
    }
}

/// Declarations as [`tell`] wrote them; the last may be cut short.
fn read(mut reported: &[u8]) -> Vec<ValueInfoProto> {
    let mut values = Vec::new();
    while !reported.is_empty() {
        match ValueInfoProto::decode_length_delimited(&mut reported) {
            Ok(value) => values.push(value),
            Err(_) => break,
        }
    }
    values
}

/// Whether a declaration is of a tensor and says every extent.
fn is_fixed(value: &ValueInfoProto) -> bool {
    use onnx::proto::tensor_shape_proto::dimension::Value as Extent;
    let Some(TypeValue::TensorType(tensor)) =
        value.r#type.as_ref().and_then(|entry| entry.value.as_ref())
    else {
        return false;
    };
    let is_known = |extent: &Option<Extent>| matches!(extent, Some(Extent::DimValue(0..)));
    tensor.shape.as_ref().is_some_and(|entry| entry.dim.iter().all(|dim| is_known(&dim.value)))
}

/// Writes the types of a model's values to standard output while they are found, each as its length and a `ValueInfoProto`.
///
/// # Errors
/// Where the model cannot be read, or its inputs are open.
pub fn tell(path: &Path) -> Result<()> {
    let bytes = Bytes::from(local::read(path, u64::MAX)?);
    let unusable = |error| {
        let message = format!("model '{}' cannot be imported", path.display());
        Failure::because(Reason::InvalidModel, message, error)
    };
    let model = edit::decode(&bytes).map_err(unusable)?;
    let mut out = std::io::stdout().lock();
    let mut written = Ok(());
    let found = onnx::value_types(model, &ImportOptions::default(), &mut |value| {
        // What was told counts even where the next node ends the process.
        let bytes = value.encode_length_delimited_to_vec();
        if written.is_ok() {
            written = out.write_all(&bytes).and_then(|()| out.flush());
        }
    });
    written.map_err(|error| Failure::io("standard output cannot be written", error))?;
    found.map_err(unusable)
}
