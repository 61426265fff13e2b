//! Some of the nodes of a graph as a graph: what they read of the others becomes its inputs, and what the others read of
//! them its outputs.

use std::collections::{HashMap, HashSet};

use hone_driver::onnx::edit::names_read;
use hone_driver::onnx::proto::{GraphProto, NodeProto, ValueInfoProto};

/// Declarations of values by name.
pub type ValueTypes = HashMap<String, ValueInfoProto>;

/// The graph of those nodes for which `kept` is true; `None` where it would have no outputs, or inputs of unknown types.
pub fn subgraph(base: &GraphProto, kept: &[bool], types: &ValueTypes) -> Option<GraphProto> {
    let nodes = |wanted: bool| {
        let both = base.node.iter().zip(kept);
        both.filter(move |(_, kept)| **kept == wanted).map(|(node, _)| node)
    };
    let (inside, outside) = (made(nodes(true)), made(nodes(false)));
    let (read_inside, read_outside) = (read(nodes(true)), read(nodes(false)));
    let declared = |name: &str| types.get(name).cloned();
    let mut graph = GraphProto { node: nodes(true).cloned().collect(), ..base.clone() };
    for name in sorted(read_inside.intersection(&outside)) {
        graph.input.push(declared(name)?);
    }
    let is_outside =
        |entry: &ValueInfoProto| entry.name.as_deref().is_some_and(|name| outside.contains(name));
    graph.output.retain(|output| !is_outside(output));
    let outputs: HashSet<&str> =
        base.output.iter().filter_map(|output| output.name.as_deref()).collect();
    let ends = inside.iter().filter(|name| {
        read_outside.contains(*name) && !read_inside.contains(*name) && !outputs.contains(*name)
    });
    for name in sorted(ends) {
        let untyped = || ValueInfoProto { name: Some(name.to_owned()), ..Default::default() };
        graph.output.push(declared(name).unwrap_or_else(untyped));
    }
    (!graph.output.is_empty()).then_some(graph)
}

/// The same names in an order that does not change from run to run.
fn sorted<'a: 'b, 'b>(names: impl Iterator<Item = &'b &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.copied().collect();
    names.sort_unstable();
    names
}

fn made<'a>(nodes: impl Iterator<Item = &'a NodeProto>) -> HashSet<&'a str> {
    nodes
        .flat_map(|node| &node.output)
        .map(String::as_str)
        .filter(|entry| !entry.is_empty())
        .collect()
}

fn read<'a>(nodes: impl Iterator<Item = &'a NodeProto>) -> HashSet<&'a str> {
    nodes.flat_map(names_read).collect()
}
