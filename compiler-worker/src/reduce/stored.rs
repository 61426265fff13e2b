//! Reducing the bytes of stored tensors: large ones become inputs, or one number for all elements.

use std::collections::HashSet;

use hone_driver::onnx::proto::{
    AttributeProto, GraphProto, NodeProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto,
    attribute_proto::AttributeType,
    tensor_proto::DataType,
    tensor_shape_proto::{Dimension, dimension::Value as Extent},
    type_proto,
};
use prost::Message;

use super::minimize::minimize;
use super::trials::Trials;
use crate::failure::Result;

/// Tensors of fewer bytes stay: they are shapes, axes and scales.
const LARGE: usize = 1024;
/// The oldest version of ONNX's operators that has `ConstantOfShape`.
const CONSTANT_OF_SHAPE: i64 = 9;

/// Makes large stored tensors inputs, all at once.
///
/// # Errors
/// As for [`Trials::is_alike`], here and below.
pub fn all_to_inputs(trials: &mut Trials<'_>) -> Result<bool> {
    let base = trials.graph();
    let large: HashSet<usize> = large(&base).into_iter().collect();
    match large.is_empty() {
        true => Ok(true),
        false => trials.is_graph_alike(Some(with_inputs(&base, &large))),
    }
}

/// Makes as many large stored tensors inputs as possible.
pub fn to_inputs(trials: &mut Trials<'_>) -> Result<()> {
    replace(trials, with_inputs)
}

/// Makes as many large stored tensors as possible constants of one number.
pub fn to_one_number(trials: &mut Trials<'_>) -> Result<()> {
    let entry = trials
        .best()
        .opset_import
        .iter()
        .find(|entry| matches!(entry.domain.as_deref(), None | Some("" | "ai.onnx")));
    let version = entry.and_then(|entry| entry.version).unwrap_or(0);
    match version >= CONSTANT_OF_SHAPE {
        true => replace(trials, with_one_number),
        false => Ok(()),
    }
}

/// Tries to replace all large stored tensors but as few as possible.
fn replace(
    trials: &mut Trials<'_>,
    replaced: impl Fn(&GraphProto, &HashSet<usize>) -> GraphProto,
) -> Result<()> {
    let base = trials.graph();
    let large = large(&base);
    minimize(large.clone(), &mut |kept| {
        let others = large.iter().filter(|index| !kept.contains(index)).copied().collect();
        trials.is_graph_alike(Some(replaced(&base, &others)))
    })?;
    Ok(())
}

/// Places of the large stored tensors of a graph.
fn large(graph: &GraphProto) -> Vec<usize> {
    let all = graph.initializer.iter().enumerate();
    all.filter(|(_, tensor)| tensor.encoded_len() > LARGE).map(|(index, _)| index).collect()
}

/// The graph with inputs in place of some stored tensors.
fn with_inputs(base: &GraphProto, indices: &HashSet<usize>) -> GraphProto {
    let (taken, initializer) = taken(base, indices);
    let mut graph = GraphProto { initializer, ..base.clone() };
    for tensor in taken {
        let name = &tensor.name;
        graph.input.retain(|input| input.name != *name);
        graph.input.push(declared(&tensor));
    }
    graph
}

/// The stored tensors at some places, and the others.
fn taken(base: &GraphProto, indices: &HashSet<usize>) -> (Vec<TensorProto>, Vec<TensorProto>) {
    let all = base.initializer.iter().cloned().enumerate();
    let (taken, others): (Vec<_>, Vec<_>) = all.partition(|(index, _)| indices.contains(index));
    let tensors =
        |list: Vec<(usize, TensorProto)>| list.into_iter().map(|(_, entry)| entry).collect();
    (tensors(taken), tensors(others))
}

/// The declaration of a stored tensor.
fn declared(tensor: &TensorProto) -> ValueInfoProto {
    let dim = tensor
        .dims
        .iter()
        .map(|extent| Dimension { value: Some(Extent::DimValue(*extent)), denotation: None });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let value = type_proto::Tensor { elem_type: tensor.data_type, shape };
    let value = Some(type_proto::Value::TensorType(value));
    let r#type = Some(TypeProto { value, denotation: None });
    ValueInfoProto { name: tensor.name.clone(), r#type, ..ValueInfoProto::default() }
}

/// The graph with a `ConstantOfShape` in place of those stored tensors whose elements have a number for it.
fn with_one_number(base: &GraphProto, indices: &HashSet<usize>) -> GraphProto {
    let possible = |index: &usize| number(&base.initializer[*index]).is_some();
    let indices = indices.iter().filter(|index| possible(index)).copied().collect();
    let (taken, initializer) = taken(base, &indices);
    let mut graph = GraphProto { initializer, ..base.clone() };
    let mut nodes = Vec::new();
    for tensor in taken {
        let name = tensor.name.clone().unwrap_or_default();
        let shape = format!("{name}.shape");
        graph.input.retain(|input| input.name.as_ref() != Some(&name));
        graph.initializer.push(TensorProto {
            name: Some(shape.clone()),
            dims: vec![tensor.dims.len() as i64],
            data_type: Some(DataType::Int64 as i32),
            int64_data: tensor.dims.clone(),
            ..TensorProto::default()
        });
        nodes.push(NodeProto {
            name: Some(name.clone()),
            op_type: Some("ConstantOfShape".to_owned()),
            input: vec![shape],
            output: vec![name],
            attribute: vec![AttributeProto {
                name: Some("value".to_owned()),
                r#type: Some(AttributeType::Tensor as i32),
                t: number(&tensor),
                ..AttributeProto::default()
            }],
            ..NodeProto::default()
        });
    }
    nodes.append(&mut graph.node);
    GraphProto { node: nodes, ..graph }
}

/// A tensor of one element of the same type: a half of real numbers, one of whole ones.
fn number(tensor: &TensorProto) -> Option<TensorProto> {
    let kind = tensor.data_type.and_then(|number| DataType::try_from(number).ok())?;
    let one = TensorProto { dims: vec![1], data_type: tensor.data_type, ..TensorProto::default() };
    Some(match kind {
        DataType::Float => TensorProto { float_data: vec![0.5], ..one },
        DataType::Double => TensorProto { double_data: vec![0.5], ..one },
        DataType::Float16 => {
            TensorProto { int32_data: vec![half::f16::from_f32(0.5).to_bits().into()], ..one }
        }
        DataType::Bfloat16 => {
            TensorProto { int32_data: vec![half::bf16::from_f32(0.5).to_bits().into()], ..one }
        }
        DataType::Int64 => TensorProto { int64_data: vec![1], ..one },
        DataType::Uint32 | DataType::Uint64 => TensorProto { uint64_data: vec![1], ..one },
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Uint8
        | DataType::Uint16
        | DataType::Bool => TensorProto { int32_data: vec![1], ..one },
        _ => return None,
    })
}
