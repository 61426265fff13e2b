//! What tools that rewrite ONNX models need to know of them, such as the one that reduces a model to what a failure
//! needs.

use super::external::ExternalFiles;
use super::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use super::{order, scan, tensor};
use crate::{ImportError, ImportOptions, Limits};
use bytes::Bytes;
use prost::Message;

/// The model that a file holds. The tensors that it stores are parts of `bytes`, and are not copied.
///
/// # Errors
/// Where the bytes are no model, or decoding them would take more than the limits allow.
pub fn decode(bytes: &Bytes) -> Result<ModelProto, ImportError> {
    scan::check(bytes, &Limits::default())?;
    ModelProto::decode(bytes.clone()).map_err(ImportError::Decode)
}

/// Names that a node reads, those that graphs inside of it take from around it included; in no order, without empty
/// ones, and one may occur several times.
pub fn names_read(node: &NodeProto) -> Vec<&str> {
    let mut names = order::names_read(node);
    names.retain(|name| !name.is_empty());
    names
}

/// Nodes in an order in which each follows those whose results it reads: the file's where that is one, and where there
/// is none.
pub fn sorted(nodes: Vec<NodeProto>) -> Vec<NodeProto> {
    order::sorted(nodes.clone(), |_| false).unwrap_or(nodes)
}

/// Brings the tensors that are stored outside of a model's file into it, from the folder of `options`.
///
/// # Errors
/// Where one cannot be read, or is larger than the limits of `options`.
pub fn bring_data_inside(
    model: &mut ModelProto,
    options: &ImportOptions,
) -> Result<(), ImportError> {
    let mut files = ExternalFiles::new(options);
    let mut result = Ok(());
    for_each_tensor(model, &mut |tensor| {
        if result.is_ok() {
            result = tensor::bring_inside(tensor, &mut files, &options.limits);
        }
    });
    result
}

/// Visits every dense tensor that a model stores: initializers, attributes, and those of functions and of graphs inside
/// of nodes; always in the same order.
pub fn for_each_tensor(model: &mut ModelProto, visit: &mut dyn FnMut(&mut TensorProto)) {
    if let Some(graph) = &mut model.graph {
        of_graph(graph, visit);
    }
    for node in model.functions.iter_mut().flat_map(|function| &mut function.node) {
        node.attribute.iter_mut().for_each(|attribute| of_attribute(attribute, visit));
    }
}

fn of_graph(graph: &mut GraphProto, visit: &mut dyn FnMut(&mut TensorProto)) {
    graph.initializer.iter_mut().for_each(&mut *visit);
    for node in &mut graph.node {
        node.attribute.iter_mut().for_each(|attribute| of_attribute(attribute, visit));
    }
}

fn of_attribute(attribute: &mut AttributeProto, visit: &mut dyn FnMut(&mut TensorProto)) {
    attribute.t.iter_mut().chain(&mut attribute.tensors).for_each(&mut *visit);
    attribute.g.iter_mut().chain(&mut attribute.graphs).for_each(|graph| of_graph(graph, visit));
}
