//! The sizes that the kernels of a graph may stop at: that of a dimension with room for a bound, which is an input, and counts
//! that the graph computes itself, of what it has room for (`NonZero`, `Range` and what follows from them).

use super::{Need, Positions, positions_in};
use crate::kernels::Pending;
use crate::storage::Roots;
use hone_artifact::PaddedDimension;
use hone_graph::{Definition, Node, ValueId};
use hone_ops::{Binary, BinaryFunction, Graph, Op};
use hone_tensor::Role;
use hone_types::DataType;
use std::collections::HashMap;

/// Counts that are looked at, at most; those that masks compare with most often. Each takes a walk over all kernels.
const MOST_COUNTS: usize = 8;

/// One of the sizes.
#[derive(Debug)]
pub(super) struct Size {
    /// A scalar of `i64`.
    pub(super) value: ValueId,
    /// The most that it is.
    pub(super) bound: usize,
    /// Items before this one run before the size is known.
    pub(super) known_from: usize,
    /// What is needed of each output of the graph.
    pub(super) outputs: Vec<Need>,
}

/// The sizes of a graph, in the order in which kernels are limited by them.
pub(super) fn sizes(
    graph: &Graph,
    padded: Option<&PaddedDimension>,
    items: &[Pending<'_>],
    roots: &Roots,
) -> Vec<Size> {
    let padded = padded.and_then(|padded| padded_size(graph, padded));
    padded.into_iter().chain(counts(graph, items, roots)).collect()
}

/// That of a padded dimension: `None` where the graph's last input is no size of it.
fn padded_size(graph: &Graph, padded: &PaddedDimension) -> Option<Size> {
    let (size, given) = graph.inputs().split_last()?;
    if !is_count(graph, size.value) || given.len() != padded.inputs.len() {
        return None;
    }
    let ports = given.iter().zip(&padded.inputs);
    let extents = ports.chain(graph.outputs().iter().zip(&padded.outputs));
    let extents = extents.filter_map(|(port, axis)| {
        graph.tensor_type(port.value).shape.get((*axis)? as usize).copied()
    });
    let bound = extents.max()?;
    let outputs = graph.outputs().iter().enumerate().map(|(place, port)| {
        let axis = padded.outputs.get(place).copied().flatten();
        let shape = &graph.tensor_type(port.value).shape;
        let along = axis.and_then(|axis| Positions::along(shape, axis as usize));
        Need::before(along.into_iter().collect())
    });
    let outputs = outputs.collect();
    Some(Size { value: size.value, bound, known_from: 0, outputs })
}

/// The counts that positions are compared with to mask what is not there.
fn counts(graph: &Graph, items: &[Pending<'_>], roots: &Roots) -> Vec<Size> {
    let mut found: Vec<(Size, usize)> = Vec::new();
    let mut place_of: HashMap<(ValueId, usize), usize> = HashMap::new();
    for (count, bound) in graph.nodes().iter().filter_map(|(_, node)| mask(graph, node)) {
        let root = roots.of(count);
        if let Some(place) = place_of.get(&(root, bound)) {
            found[*place].1 += 1;
            continue;
        }
        let Some(known_from) = known_from(graph, items, root) else { continue };
        place_of.insert((root, bound), found.len());
        let outputs = vec![Need::Everything; graph.outputs().len()];
        found.push((Size { value: count, bound, known_from, outputs }, 1));
    }
    found.sort_by_key(|(_, masks)| std::cmp::Reverse(*masks));
    found.truncate(MOST_COUNTS);
    found.into_iter().map(|(size, _)| size).collect()
}

/// The count that a node compares positions with, and how many positions there are.
fn mask(graph: &Graph, node: &Node<Op>) -> Option<(ValueId, usize)> {
    let less = node.operation.downcast::<Binary>()?;
    let [Some(places), Some(count)] = node.inputs[..] else { return None };
    let is_mask = less.function == BinaryFunction::Less && is_count(graph, count);
    is_mask.then_some((count, counted_places(graph, places)?))
}

fn is_count(graph: &Graph, value: ValueId) -> bool {
    let tensor_type = graph.tensor_type(value);
    let is_constant = matches!(graph.values()[value].definition, Definition::Constant(_));
    tensor_type.dtype == DataType::I64 && tensor_type.rank() == 0 && !is_constant
}

/// How many positions a constant counts along its first axis.
fn counted_places(graph: &Graph, places: ValueId) -> Option<usize> {
    let Definition::Constant(tensor) = &graph.values()[places].definition else { return None };
    let extent = *tensor.shape().first().filter(|extent| **extent > 1)?;
    positions_in(tensor, extent).map(|_| extent)
}

/// The first item at which a value can be read: after the one that computes it; `None` where none stores it.
fn known_from(graph: &Graph, items: &[Pending<'_>], root: ValueId) -> Option<usize> {
    if graph.inputs().iter().any(|port| port.value == root) {
        return Some(0);
    }
    let stores = |item: &Pending<'_>| match item {
        Pending::Call { program, parameters, .. } | Pending::Joined { program, parameters, .. } => {
            let mut pairs = parameters.iter().zip(program.parameters());
            pairs.any(|(value, buffer)| {
                *value == root && matches!(program.buffers[buffer].role, Role::Output(_))
            })
        }
        Pending::Regions(node, _) => graph.nodes()[*node].outputs.contains(&root),
    };
    items.iter().position(stores).map(|place| place + 1)
}
