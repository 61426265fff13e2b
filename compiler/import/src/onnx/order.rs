//! Nodes in an order in which each follows those whose results it reads.
//!
//! ONNX asks files for such an order, and some converters do not keep it: they append the casts that
//! they insert at the end.

use super::gradient::named_values;
use super::liveness::label;
use super::proto::{GraphProto, NodeProto};
use crate::ImportError;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// Sorts `nodes` topologically; those that could stand in several orders keep the file's. Names for
/// which `defined` holds come from outside the list.
///
/// # Errors
/// [`ImportError::Cycle`] with the nodes of one cycle.
pub(super) fn sorted(
    nodes: Vec<NodeProto>,
    defined: impl Fn(&str) -> bool,
) -> Result<Vec<NodeProto>, ImportError> {
    let reads = dependencies(&nodes, defined);
    let in_order =
        reads.iter().enumerate().all(|(node, reads)| reads.iter().all(|producer| *producer < node));
    if in_order {
        return Ok(nodes);
    }
    let order = order(&reads).map_err(|cycle| ImportError::Cycle {
        nodes: cycle.into_iter().map(|node| label(&nodes[node])).collect(),
    })?;
    let mut nodes: Vec<Option<NodeProto>> = nodes.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|node| nodes[node].take()).collect())
}

/// For each node, the nodes whose results it or a graph inside it reads; one may occur several times.
fn dependencies(nodes: &[NodeProto], defined: impl Fn(&str) -> bool) -> Vec<Vec<usize>> {
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|name| !name.is_empty() && !defined(name)) {
            producers.entry(output).or_insert(index);
        }
    }
    let reads = nodes.iter().map(|node| {
        names_read(node).iter().filter_map(|name| producers.get(name).copied()).collect()
    });
    reads.collect()
}

/// Names that a node or a graph inside of it reads of those around it; one may occur several times.
pub(super) fn names_read(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> = node.input.iter().map(String::as_str).collect();
    names.extend(named_values(node));
    inner_graphs(node).for_each(|graph| names.extend(captured(graph)));
    names
}

fn inner_graphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// Names that a nested graph reads and does not define.
fn captured(graph: &GraphProto) -> HashSet<&str> {
    let outputs = graph.output.iter().filter_map(|output| output.name.as_deref());
    let mut read: HashSet<&str> = outputs.collect();
    for node in &graph.node {
        read.extend(node.input.iter().map(String::as_str));
        inner_graphs(node).for_each(|inner| read.extend(captured(inner)));
    }
    let inputs = graph.input.iter().filter_map(|input| input.name.as_deref());
    let stored = graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref());
    let made = graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str));
    for name in inputs.chain(stored).chain(made) {
        read.remove(name);
    }
    read
}

/// Kahn's algorithm, the smallest index first; or the nodes of a cycle.
fn order(reads: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut readers = vec![Vec::new(); reads.len()];
    for (node, reads) in reads.iter().enumerate() {
        reads.iter().for_each(|producer| readers[*producer].push(node));
    }
    let mut missing: Vec<usize> = reads.iter().map(Vec::len).collect();
    let free = (0..reads.len()).filter(|node| missing[*node] == 0);
    let mut ready: BinaryHeap<Reverse<usize>> = free.map(Reverse).collect();
    let mut order = Vec::with_capacity(reads.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for reader in &readers[node] {
            missing[*reader] -= 1;
            if missing[*reader] == 0 {
                ready.push(Reverse(*reader));
            }
        }
    }
    match missing.iter().position(|missing| *missing > 0) {
        None => Ok(order),
        Some(first) => Err(cycle(first, reads, &missing)),
    }
}

/// A cycle, found by walking from a node that waits to nodes that it waits for.
fn cycle(first: usize, reads: &[Vec<usize>], missing: &[usize]) -> Vec<usize> {
    let mut path = Vec::new();
    let mut position: HashMap<usize, usize> = HashMap::new();
    let mut node = first;
    loop {
        if let Some(start) = position.insert(node, path.len()) {
            let mut cycle = path.split_off(start);
            // The walk goes from readers to producers; people read it the other way.
            cycle.reverse();
            return cycle;
        }
        path.push(node);
        match reads[node].iter().find(|producer| missing[**producer] > 0) {
            Some(producer) => node = *producer,
            None => return path,
        }
    }
}
