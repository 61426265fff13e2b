//! Declared inputs and outputs, and the binding of open dimensions.

use super::proto::{
    GraphProto, ValueInfoProto, tensor_shape_proto::dimension::Value as Extent,
    type_proto::Value as TypeValue,
};
use super::tensor::{checked_bytes, element_type};
use crate::{Dimension, ImportError, InputBinding, Limits, PortSignature, Signature, UnboundInput};
use hone_types::TensorType;
use std::collections::{HashMap, HashSet};

/// Inputs (without those that initializers fill) and outputs as declared.
pub(super) fn signature(graph: &GraphProto, limits: &Limits) -> Result<Signature, ImportError> {
    let initialized: HashSet<&str> =
        graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
    let mut signature = Signature::default();
    for value in &graph.input {
        if !initialized.contains(value.name.as_deref().unwrap_or_default()) {
            signature.inputs.push(port("input", value, limits)?);
        }
    }
    for value in &graph.output {
        signature.outputs.push(port("output", value, limits)?);
    }
    unique("input", &signature.inputs)?;
    unique("output", &signature.outputs)?;
    Ok(signature)
}

fn unique(what: &'static str, ports: &[PortSignature]) -> Result<(), ImportError> {
    let mut seen = HashSet::new();
    match ports.iter().find(|port| !seen.insert(port.name.as_str())) {
        Some(port) => Err(ImportError::Duplicate { what, name: port.name.clone() }),
        None => Ok(()),
    }
}

fn port(
    kind: &'static str,
    value: &ValueInfoProto,
    limits: &Limits,
) -> Result<PortSignature, ImportError> {
    let name = value.name.clone().unwrap_or_default();
    let refuse = |reason: String| ImportError::Port { kind, name: name.clone(), reason };
    if name.is_empty() {
        return Err(refuse("it has no name".into()));
    }
    let tensor = match value.r#type.as_ref().and_then(|declared| declared.value.as_ref()) {
        Some(TypeValue::TensorType(tensor)) => tensor,
        None if kind == "output" => return Ok(PortSignature { name, dtype: None, shape: None }),
        None => return Err(refuse("its type is left out; export the model again".into())),
        Some(_) => {
            return Err(refuse("only tensors are supported, no sequences, maps or options".into()));
        }
    };
    let dtype = match element_type(tensor.elem_type.unwrap_or(0)) {
        Ok(dtype) => Some(dtype),
        Err(_) if kind == "output" && tensor.elem_type.unwrap_or(0) == 0 => None,
        Err(reason) => return Err(refuse(reason)),
    };
    let Some(shape) = &tensor.shape else { return Ok(PortSignature { name, dtype, shape: None }) };
    if shape.dim.len() > limits.rank {
        return Err(refuse(format!("it has more than {} axes", limits.rank)));
    }
    let shape = shape.dim.iter().map(|dim| match &dim.value {
        // Some exporters write -1 for a dimension that is open.
        Some(Extent::DimValue(extent)) => {
            usize::try_from(*extent).map_or(Dimension::Unknown, Dimension::Fixed)
        }
        Some(Extent::DimParam(symbol)) if !symbol.is_empty() => Dimension::Symbol(symbol.clone()),
        _ => Dimension::Unknown,
    });
    let shape = Some(shape.collect());
    Ok(PortSignature { name, dtype, shape })
}

/// Static types of all inputs.
pub(super) fn bind(
    signature: &Signature,
    bindings: &[InputBinding],
    limits: &Limits,
) -> Result<Vec<TensorType>, ImportError> {
    let bindings = by_name(signature, bindings)?;
    let mut symbols = HashMap::new();
    for port in &signature.inputs {
        if let Some(binding) = bindings.get(port.name.as_str()) {
            fit(port, binding, &mut symbols)
                .map_err(|reason| ImportError::Binding { input: port.name.clone(), reason })?;
        }
    }
    let mut unbound = Vec::new();
    let mut types = Vec::new();
    for port in &signature.inputs {
        match bindings.get(port.name.as_str()) {
            Some(binding) => types.push(typed(port, binding.shape.clone(), limits)?),
            None => match resolve(port, &symbols) {
                Ok(shape) => types.push(typed(port, shape, limits)?),
                Err(open) => unbound.push(UnboundInput { declared: port.clone(), open }),
            },
        }
    }
    if unbound.is_empty() { Ok(types) } else { Err(ImportError::Unbound(unbound)) }
}

fn by_name<'a>(
    signature: &Signature,
    bindings: &'a [InputBinding],
) -> Result<HashMap<&'a str, &'a InputBinding>, ImportError> {
    let mut found = HashMap::new();
    for binding in bindings {
        if !signature.inputs.iter().any(|port| port.name == binding.name) {
            let names: Vec<&str> =
                signature.inputs.iter().map(|port| port.name.as_str()).take(20).collect();
            return Err(ImportError::Binding {
                input: binding.name.clone(),
                reason: format!("the model has no such input, only {}", names.join(", ")),
            });
        }
        if found.insert(binding.name.as_str(), binding).is_some() {
            return Err(ImportError::Duplicate {
                what: "the shape of input",
                name: binding.name.clone(),
            });
        }
    }
    Ok(found)
}

/// Checks a binding against the declaration and learns what it says of symbols.
fn fit<'a>(
    port: &'a PortSignature,
    binding: &InputBinding,
    symbols: &mut HashMap<&'a str, usize>,
) -> Result<(), String> {
    if let (Some(declared), Some(given)) = (port.dtype, binding.dtype)
        && declared != given
    {
        return Err(format!("the model takes {declared}, not {given}"));
    }
    let Some(shape) = &port.shape else { return Ok(()) };
    let given = &binding.shape;
    if shape.len() != given.len() {
        return Err(format!("it is {port}, {} extents are given", given.len()));
    }
    for (axis, (dimension, extent)) in shape.iter().zip(given).enumerate() {
        let expected = match dimension {
            Dimension::Fixed(expected) => *expected,
            Dimension::Symbol(symbol) => *symbols.entry(symbol).or_insert(*extent),
            Dimension::Unknown => *extent,
        };
        if expected != *extent {
            return Err(format!(
                "axis {axis} ({dimension}) has extent {expected}, {extent} is given"
            ));
        }
    }
    Ok(())
}

/// The shape of an input that no binding names, or its open dimensions.
fn resolve(
    port: &PortSignature,
    symbols: &HashMap<&str, usize>,
) -> Result<Vec<usize>, Vec<String>> {
    let Some(shape) = &port.shape else { return Err(vec!["its rank".into()]) };
    let mut open = Vec::new();
    let mut extents = Vec::new();
    for (axis, dimension) in shape.iter().enumerate() {
        match dimension {
            Dimension::Fixed(extent) => extents.push(*extent),
            Dimension::Symbol(symbol) => match symbols.get(symbol.as_str()) {
                Some(extent) => extents.push(*extent),
                None => open.push(format!("axis {axis} ('{symbol}')")),
            },
            Dimension::Unknown => open.push(format!("axis {axis} (without a name)")),
        }
    }
    if open.is_empty() { Ok(extents) } else { Err(open) }
}

fn typed(
    port: &PortSignature,
    shape: Vec<usize>,
    limits: &Limits,
) -> Result<TensorType, ImportError> {
    let refuse =
        |reason: String| ImportError::Port { kind: "input", name: port.name.clone(), reason };
    let dtype = port.dtype.ok_or_else(|| refuse("its element type is left out".into()))?;
    let tensor_type = TensorType::new(dtype, shape);
    let fits = checked_bytes(&tensor_type).is_some_and(|bytes| bytes <= limits.tensor_bytes)
        && tensor_type.rank() <= limits.rank;
    if fits { Ok(tensor_type) } else { Err(refuse(format!("{tensor_type} is too large"))) }
}
