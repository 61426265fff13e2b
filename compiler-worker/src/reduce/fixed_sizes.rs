//! A model with open dimensions as one whose sizes are fixed.

use std::collections::HashMap;

use hone_artifact::Extent;
use hone_artifact::request::Input;
use hone_driver::onnx::proto::{
    GraphProto, ModelProto, TensorShapeProto, ValueInfoProto,
    tensor_shape_proto::{Dimension, dimension::Value},
    type_proto::{Tensor, Value as TypeValue},
};
use hone_driver::{Bytes, PortSignature, propose_shape, signature};
use prost::Message;

/// The model with the sizes that `given` names for inputs and dimensions, the first of several, and proposed ones for
/// others; `None` where nothing is open.
pub fn with_fixed_sizes(model: &ModelProto, given: &[Input]) -> Option<ModelProto> {
    let graph = model.graph.as_ref()?;
    let ports = signature(&interface(model, graph)).ok()?.inputs;
    let mut symbols: HashMap<String, usize> = HashMap::new();
    let is_input = |name: &str| ports.iter().any(|port| port.name == name);
    for dimension in given.iter().filter(|entry| !is_input(&entry.name)) {
        if let Some(size) = dimension.shape.first().and_then(size) {
            symbols.insert(dimension.name.clone(), size);
        }
    }
    let mut graph = graph.clone();
    let mut is_open = false;
    for port in
        ports.iter().filter(|entry| !entry.sequence && !entry.optional && entry.map.is_none())
    {
        let shape = shape(port, given, &mut symbols);
        let input = graph.input.iter_mut().find(|entry| entry.name.as_ref() == Some(&port.name));
        let Some(tensor) = input.and_then(tensor_of) else { continue };
        let fixed = TensorShapeProto { dim: shape.into_iter().map(fixed).collect() };
        is_open |= tensor.shape.as_ref() != Some(&fixed);
        tensor.shape = Some(fixed);
    }
    for value in graph.output.iter_mut().chain(&mut graph.value_info) {
        let dims = tensor_of(value).and_then(|tensor| tensor.shape.as_mut());
        for dim in dims.into_iter().flat_map(|shape| &mut shape.dim) {
            if let Some(Value::DimParam(symbol)) = &dim.value {
                *dim = symbols.get(symbol).map_or_else(Dimension::default, |size| fixed(*size));
            }
        }
    }
    is_open.then(|| ModelProto { graph: Some(graph), ..model.clone() })
}

/// The bytes of a model that declares the same inputs and holds nothing else.
fn interface(model: &ModelProto, graph: &GraphProto) -> Bytes {
    let stored: Vec<&str> =
        graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
    let is_given =
        |entry: &&ValueInfoProto| !stored.contains(&entry.name.as_deref().unwrap_or_default());
    let input = graph.input.iter().filter(is_given).cloned().collect();
    let graph = GraphProto { input, name: Some("interface".to_owned()), ..GraphProto::default() };
    let ModelProto { ir_version, opset_import, .. } = model;
    let (ir_version, opset_import) = (*ir_version, opset_import.clone());
    ModelProto { ir_version, opset_import, graph: Some(graph), ..ModelProto::default() }
        .encode_to_vec()
        .into()
}

/// The shape of an input: the given one, or one that is proposed.
fn shape(
    port: &PortSignature,
    given: &[Input],
    symbols: &mut HashMap<String, usize>,
) -> Vec<usize> {
    let entry = given.iter().find(|entry| entry.name == port.name);
    let sizes =
        entry.and_then(|entry| entry.shape.iter().map(size).collect::<Option<Vec<usize>>>());
    let is_rank =
        |shape: &Vec<usize>| port.shape.as_ref().is_none_or(|entry| entry.len() == shape.len());
    sizes.filter(is_rank).unwrap_or_else(|| propose_shape(port, symbols))
}

/// The first of the sizes of an axis.
fn size(extent: &Extent) -> Option<usize> {
    let first = match extent {
        Extent::One(size) => *size,
        Extent::Sizes(sizes) => *sizes.first()?,
        Extent::Range { min, .. } | Extent::From { min } => *min,
    };
    usize::try_from(first).ok()
}

fn tensor_of(value: &mut ValueInfoProto) -> Option<&mut Tensor> {
    match value.r#type.as_mut()?.value.as_mut()? {
        TypeValue::TensorType(tensor) => Some(tensor),
        _ => None,
    }
}

fn fixed(size: usize) -> Dimension {
    Dimension { value: Some(Value::DimValue(size as i64)), denotation: None }
}
