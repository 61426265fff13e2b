//! A model without what nothing reads and what only people read.

use std::collections::HashSet;

use hone_driver::onnx::edit::names_read;
use hone_driver::onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};

/// A model without the nodes, stored tensors, inputs, declarations and functions that its outputs do not need, and as
/// [`without_texts`]. Its nodes are in an order in which they run.
pub fn cleaned(mut model: ModelProto) -> ModelProto {
    if let Some(graph) = &mut model.graph {
        prune(graph);
        let called = called(&model);
        model
            .functions
            .retain(|entry| entry.name.as_ref().is_some_and(|name| called.contains(name)));
    }
    without_texts(model)
}

/// A model without texts for people: who made it, documentation, and entries that belong to no operator.
pub fn without_texts(mut model: ModelProto) -> ModelProto {
    model.producer_name = None;
    model.producer_version = None;
    model.domain = None;
    model.model_version = None;
    model.doc_string = None;
    model.metadata_props.clear();
    model.training_info.clear();
    model.configuration.clear();
    model.graph.iter_mut().for_each(plain_graph);
    for function in &mut model.functions {
        function.doc_string = None;
        function.metadata_props.clear();
        function.node.iter_mut().for_each(plain_node);
    }
    model
}

fn plain_graph(graph: &mut GraphProto) {
    graph.doc_string = None;
    graph.metadata_props.clear();
    graph.quantization_annotation.clear();
    for value in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
        value.doc_string = None;
        value.metadata_props.clear();
    }
    for tensor in &mut graph.initializer {
        tensor.doc_string = None;
        tensor.metadata_props.clear();
    }
    graph.node.iter_mut().for_each(plain_node);
}

fn plain_node(node: &mut NodeProto) {
    node.doc_string = None;
    node.metadata_props.clear();
    node.device_configurations.clear();
    for attribute in &mut node.attribute {
        attribute.doc_string = None;
        attribute.g.iter_mut().chain(&mut attribute.graphs).for_each(plain_graph);
    }
}

/// Leaves what the outputs of a graph need.
fn prune(graph: &mut GraphProto) {
    let mut read: HashSet<String> =
        graph.output.iter().filter_map(|output| output.name.clone()).collect();
    let mut live = vec![false; graph.node.len()];
    for (node, live) in graph.node.iter().zip(&mut live).rev() {
        *live = node.output.iter().any(|output| read.contains(output));
        if *live {
            read.extend(names_read(node).into_iter().map(str::to_owned));
        }
    }
    let mut live = live.into_iter();
    graph.node.retain(|_| live.next().unwrap_or(true));
    let is_read = |name: &Option<String>| name.as_ref().is_some_and(|name| read.contains(name));
    graph.initializer.retain(|tensor| is_read(&tensor.name));
    graph
        .sparse_initializer
        .retain(|entry| entry.values.as_ref().is_some_and(|entry| is_read(&entry.name)));
    graph.input.retain(|input| is_read(&input.name));
    let made: HashSet<&str> =
        graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str)).collect();
    graph.value_info.retain(|entry| entry.name.as_deref().is_some_and(|name| made.contains(name)));
}

/// Names of the functions that a model's nodes call, directly or through others.
fn called(model: &ModelProto) -> HashSet<String> {
    let mut called = HashSet::new();
    let mut pending: Vec<&NodeProto> = model.graph.iter().flat_map(|graph| &graph.node).collect();
    while let Some(node) = pending.pop() {
        pending.extend(node.attribute.iter().flat_map(inner_nodes));
        let Some(name) = &node.op_type else { continue };
        let functions = model.functions.iter().filter(|entry| entry.name.as_ref() == Some(name));
        if called.insert(name.clone()) {
            pending.extend(functions.flat_map(|function| &function.node));
        }
    }
    called
}

fn inner_nodes(attribute: &AttributeProto) -> impl Iterator<Item = &NodeProto> {
    attribute.g.iter().chain(&attribute.graphs).flat_map(|graph| &graph.node)
}
