//! Which nodes matter, and whether names are defined as they must be.

use super::gradient::named_values;
use super::proto::{GraphProto, NodeProto};
use crate::ImportError;
use hone_graph::{Definition, ValueId};
use hone_ops::Graph;
use hone_types::Id;
use std::collections::{HashMap, HashSet};

/// A graph without the nodes that nothing depends on.
pub(super) fn pruned(graph: &Graph) -> Result<Graph, ImportError> {
    let needed = graph.needed(|operation| operation.is_required());
    let mut left = Graph::new();
    let mut values: HashMap<ValueId, ValueId> = HashMap::new();
    for port in graph.inputs() {
        let value = left.add_input(&port.name, graph.tensor_type(port.value).clone());
        left.name_value(value, &graph.values()[port.value].name);
        values.insert(port.value, value);
    }
    let constant = |left: &mut Graph, values: &mut HashMap<ValueId, ValueId>, value: ValueId| {
        let stated = &graph.values()[value];
        if let Definition::Constant(tensor) = &stated.definition {
            let add = || left.add_constant(&stated.name, tensor.clone());
            values.entry(value).or_insert_with(add);
        }
    };
    for (id, node) in graph.nodes().iter().filter(|(id, _)| needed[id.index()]) {
        for value in node.inputs.iter().flatten() {
            constant(&mut left, &mut values, *value);
        }
        let inputs: Vec<Option<ValueId>> =
            node.inputs.iter().map(|input| values.get(&(*input)?).copied()).collect();
        let outputs = left.add_node(&node.name, node.operation.clone(), &inputs);
        let outputs = outputs.map_err(|error| ImportError::Node {
            node: node.name.clone(),
            operator: graph.nodes()[id].operation.name().to_owned(),
            opset: 0,
            source: crate::NodeError::Infer(error),
        })?;
        for (from, to) in node.outputs.iter().zip(outputs) {
            left.name_value(to, &graph.values()[*from].name);
            values.insert(*from, to);
        }
    }
    let ends = graph.outputs().iter().map(|port| port.value);
    for value in ends.chain(graph.extents().iter().map(|extent| extent.value)) {
        constant(&mut left, &mut values, value);
    }
    // All of them are inputs, constants, or made by nodes that are needed.
    for port in graph.outputs() {
        left.add_output(&port.name, values.get(&port.value).copied().unwrap_or(port.value));
    }
    for extent in graph.extents() {
        let value = values.get(&extent.value).copied().unwrap_or(extent.value);
        left.add_extent(hone_graph::OutputExtent { value, ..*extent });
    }
    left.set_interface(graph.interface().clone());
    Ok(left)
}

/// Checks that each value has one definition and that nodes read only what is defined before them.
/// `defined` says which names are defined outside the list.
pub(super) fn check_names(
    nodes: &[NodeProto],
    defined: impl Fn(&str) -> bool,
    taken: impl Fn(&str) -> bool,
) -> Result<(), ImportError> {
    let mut own: HashSet<&str> = HashSet::new();
    for node in nodes {
        for input in node.input.iter().filter(|input| !input.is_empty()) {
            if !own.contains(input.as_str()) && !defined(input) {
                let reader = format!("node '{}'", label(node));
                return Err(ImportError::Undefined { reader, value: input.clone() });
            }
        }
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            if taken(output) || !own.insert(output) {
                return Err(ImportError::Duplicate { what: "value", name: output.clone() });
            }
        }
    }
    Ok(())
}

/// A node's name, or one made from its operator and first output.
pub(super) fn label(node: &NodeProto) -> String {
    match node.name.as_deref() {
        Some(name) if !name.is_empty() => name.to_string(),
        _ => {
            let operator = node.op_type.as_deref().unwrap_or_default();
            let output = node.output.first().map_or("", String::as_str);
            format!("{operator} of {output}")
        }
    }
}

/// The names that are read on the way to `outputs`, and for each node whether it is on that way.
pub(super) fn live<'a>(
    nodes: &'a [NodeProto],
    outputs: impl Iterator<Item = &'a str>,
) -> (HashSet<String>, Vec<bool>) {
    let mut read: HashSet<&str> = outputs.collect();
    let mut live = vec![false; nodes.len()];
    for (place, node) in nodes.iter().enumerate().rev() {
        live[place] = node.output.iter().any(|output| read.contains(output.as_str()));
        if live[place] {
            read.extend(node.input.iter().map(String::as_str));
            read.extend(named_values(node));
            let inner = node.attribute.iter();
            inner
                .flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
                .for_each(|graph| names_read(graph, &mut read));
        }
    }
    read.remove("");
    (read.into_iter().map(str::to_string).collect(), live)
}

/// Every name that a nested graph reads, its own ones included.
fn names_read<'a>(graph: &'a GraphProto, read: &mut HashSet<&'a str>) {
    read.extend(graph.output.iter().filter_map(|output| output.name.as_deref()));
    for node in &graph.node {
        read.extend(node.input.iter().map(String::as_str));
        read.extend(named_values(node));
        for attribute in &node.attribute {
            let inner = attribute.g.iter().chain(&attribute.graphs);
            inner.for_each(|graph| names_read(graph, read));
        }
    }
}
