//! Shapes that a graph declares for its values, and what follows from them for others.

use super::importer::normal_domain;
use super::operators::{self, Import};
use super::proto::{
    NodeProto, ValueInfoProto, tensor_shape_proto::dimension::Value as Extent,
    type_proto::Value as TypeValue,
};
use crate::{Dimension, Signature};
use hone_types::TensorType;
use std::collections::HashMap;

/// Shapes by name of the value; an extent that is open is `None`.
pub(super) type Declared = HashMap<String, Vec<Option<usize>>>;

/// Extents by symbol, from the inputs of the model.
pub(super) fn symbols(signature: &Signature, types: &[TensorType]) -> HashMap<String, usize> {
    let mut symbols = HashMap::new();
    for (port, tensor_type) in signature.inputs.iter().zip(types) {
        for (dimension, extent) in port.shape.iter().flatten().zip(&tensor_type.shape) {
            if let Dimension::Symbol(symbol) = dimension {
                symbols.insert(symbol.clone(), *extent);
            }
        }
    }
    symbols
}

/// What `values` declare.
pub(super) fn declared<'a>(
    values: impl Iterator<Item = &'a ValueInfoProto>,
    symbols: &HashMap<String, usize>,
) -> Declared {
    let one = |value: &'a ValueInfoProto| Some((value.name.clone()?, shape_of(value, symbols)?));
    values.filter_map(one).collect()
}

fn shape_of(
    value: &ValueInfoProto,
    symbols: &HashMap<String, usize>,
) -> Option<Vec<Option<usize>>> {
    let Some(TypeValue::TensorType(tensor)) = value.r#type.as_ref()?.value.as_ref() else {
        return None;
    };
    let extents = tensor.shape.as_ref()?.dim.iter().map(|dim| match &dim.value {
        Some(Extent::DimValue(extent)) => usize::try_from(*extent).ok(),
        Some(Extent::DimParam(symbol)) => symbols.get(symbol).copied(),
        None => None,
    });
    Some(extents.collect())
}

/// Gives what is declared of a value to all that have the same shape by way of element-wise nodes, the first of them
/// included: where all that a value is computed of are one value and numbers without axes, its shape is that one's.
/// `nodes` are in the order in which they run; `scalar` says whether a value from elsewhere has no axes.
pub(super) fn spread(nodes: &[NodeProto], declared: &mut Declared, scalar: impl Fn(&str) -> bool) {
    // The value whose shape each has; nothing for numbers without axes.
    let mut origins: HashMap<&str, Option<&str>> = HashMap::new();
    for node in nodes {
        let Some(output) = node.output.first().filter(|name| !name.is_empty()) else { continue };
        let of = |place: usize| -> Option<&str> {
            let name = node.input[place].as_str();
            origins.get(name).copied().unwrap_or_else(|| (!scalar(name)).then_some(name))
        };
        let origin = match (role(node), node.input.len()) {
            (Role::First, 1..) => of(0),
            (Role::Both, 2) => match (of(0), of(1)) {
                (origin, None) | (None, origin) => origin,
                (one, other) if one == other => one,
                _ => Some(output.as_str()),
            },
            (Role::Scalar, _) => None,
            _ => Some(output.as_str()),
        };
        origins.insert(output, origin);
    }
    let known = declared.iter();
    let known = known.filter_map(|(name, shape)| Some(((*origins.get(name.as_str())?)?, shape)));
    let known: HashMap<&str, Vec<Option<usize>>> =
        known.map(|(origin, shape)| (origin, shape.clone())).collect();
    for (name, shape) in &known {
        declared.entry((*name).to_string()).or_insert_with(|| shape.clone());
    }
    for (name, origin) in &origins {
        if let Some(shape) = origin.and_then(|origin| known.get(origin)) {
            declared.entry((*name).to_string()).or_insert_with(|| shape.clone());
        }
    }
}

/// What a node's output has of the shapes of its inputs.
enum Role {
    /// That of the first.
    First,
    /// What both broadcast to.
    Both,
    /// It is a constant without axes.
    Scalar,
    /// Something else.
    None,
}

fn role(node: &NodeProto) -> Role {
    let domain = normal_domain(node.domain.as_deref().unwrap_or_default());
    let operator = node.op_type.as_deref().unwrap_or_default();
    match operators::find(domain, operator) {
        Some(Import::Unary(_)) => Role::First,
        Some(Import::Binary(_)) => Role::Both,
        _ if !domain.is_empty() => Role::None,
        _ => match operator {
            "Cast" | "CastLike" | "Clip" | "Dropout" | "Identity" => Role::First,
            "Constant" if is_scalar(node) => Role::Scalar,
            _ => Role::None,
        },
    }
}

fn is_scalar(constant: &NodeProto) -> bool {
    constant.attribute.iter().any(|attribute| match attribute.name.as_deref() {
        Some("value_float" | "value_int") => true,
        Some("value") => attribute.t.as_ref().is_some_and(|tensor| tensor.dims.is_empty()),
        _ => false,
    })
}
