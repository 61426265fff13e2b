//! The sizes that the kernels of a graph may stop at: that of a dimension with room for a bound, which is an input, and counts
//! that the graph computes itself, of what it has room for (`NonZero`, `Range` and what follows from them).

use super::{Need, Positions, positions_in};
use crate::kernels::Pending;
use crate::storage::Roots;
use hone_artifact::{PaddedDimension, PaddedLength};
use hone_graph::{Definition, Node, Port, ValueId};
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
    let counts = counts(graph, items, roots);
    let Some(padded) = padded.filter(|padded| is_padded(graph, padded)) else { return counts };
    let size = padded_size(graph, padded);
    let mut found: Vec<Size> = size.into_iter().collect();
    found.extend(output_lengths(graph, padded, items, roots));
    // What is counted for an output is one of the counts as well.
    let is_new =
        |count: &Size| found.iter().all(|own| roots.of(own.value) != roots.of(count.value));
    let counts: Vec<Size> = counts.into_iter().filter(is_new).collect();
    found.extend(counts);
    found
}

/// Whether the last input of a graph is the size of a dimension.
fn is_padded(graph: &Graph, padded: &PaddedDimension) -> bool {
    let inputs = graph.inputs().split_last();
    inputs.is_some_and(|(size, given)| {
        is_count(graph, size.value) && given.len() == padded.inputs.len()
    })
}

/// What is needed of the outputs of which positions before a length count, where `counts` says of which.
fn outputs_before(
    graph: &Graph,
    padded: &PaddedDimension,
    counts: &dyn Fn(usize) -> bool,
) -> Vec<Need> {
    let need = |(place, port): (usize, &Port)| {
        let axis = padded.outputs.get(place).copied().flatten().filter(|_| counts(place));
        let shape = &graph.tensor_type(port.value).shape;
        let along = axis.and_then(|axis| Positions::along(shape, axis as usize));
        Need::before(along.into_iter().collect())
    };
    graph.outputs().iter().enumerate().map(need).collect()
}

/// That of a padded dimension.
fn padded_size(graph: &Graph, padded: &PaddedDimension) -> Option<Size> {
    let (size, given) = graph.inputs().split_last()?;
    let outputs = graph.outputs().iter().zip(&padded.outputs).enumerate();
    let outputs = outputs.filter(|(place, _)| padded.length(*place).is_none());
    let extents = given.iter().zip(&padded.inputs).chain(outputs.map(|(_, output)| output));
    let extents = extents.filter_map(|(port, axis)| {
        graph.tensor_type(port.value).shape.get((*axis)? as usize).copied()
    });
    let outputs = outputs_before(graph, padded, &|place| padded.length(place).is_none());
    Some(Size { value: size.value, bound: extents.max()?, known_from: 0, outputs })
}

/// Those of outputs that have other lengths, where the graph counts them.
fn output_lengths(
    graph: &Graph,
    padded: &PaddedDimension,
    items: &[Pending<'_>],
    roots: &Roots,
) -> Vec<Size> {
    let mut lengths: Vec<(PaddedLength, usize)> = Vec::new();
    for (place, port) in graph.outputs().iter().enumerate() {
        let axis = padded.outputs.get(place).copied().flatten();
        let shape = &graph.tensor_type(port.value).shape;
        let extent = axis.and_then(|axis| shape.get(axis as usize));
        if let (Some(length), Some(extent)) = (padded.length(place), extent)
            && lengths.iter().all(|known| known.0 != length)
        {
            lengths.push((length, *extent));
        }
    }
    let size = |(length, bound): (PaddedLength, usize)| {
        let mut scalars = graph.nodes().iter().flat_map(|(_, node)| node.outputs.iter().copied());
        let value =
            scalars.find(|value| is_count(graph, *value) && counts_to(graph, *value, length))?;
        let known_from = known_from(graph, items, roots.of(value))?;
        let outputs = outputs_before(graph, padded, &|place| padded.length(place) == Some(length));
        Some(Size { value, bound, known_from, outputs })
    };
    lengths.into_iter().filter_map(size).collect()
}

/// Whether a scalar that a graph computes from its last input is a length: at all remainders of the divisor, and so at every
/// size.
fn counts_to(graph: &Graph, value: ValueId, length: PaddedLength) -> bool {
    let sizes = (0..=2 * u64::try_from(length.divisor).unwrap_or(0)).map(|more| {
        // From here on no length is below zero.
        more + length.extra.unsigned_abs() * length.divisor.unsigned_abs()
    });
    let at = |size: u64| number(graph, value, i64::try_from(size).ok()?, MOST_STEPS);
    let mut pairs = sizes.map(|size| (at(size), i64::try_from(length.at(size)).ok()));
    pairs.all(|(found, wanted)| found.is_some() && found == wanted)
}

/// Most operations between the size and a length.
const MOST_STEPS: usize = 8;

/// The number that a scalar is at a size, where it is computed of it and of constants.
fn number(graph: &Graph, value: ValueId, size: i64, steps: usize) -> Option<i64> {
    if graph.inputs().last().is_some_and(|port| port.value == value) {
        return Some(size);
    }
    if let Some(constant) = graph.constant(value) {
        return constant.to_i64().first().copied();
    }
    let node = &graph.nodes()[graph.producer(value)?];
    let function = node.operation.downcast::<Binary>()?.function;
    let [Some(left), Some(right)] = node.inputs[..] else { return None };
    let steps = steps.checked_sub(1)?;
    let (left, right) = (number(graph, left, size, steps)?, number(graph, right, size, steps)?);
    match function {
        BinaryFunction::Add => left.checked_add(right),
        BinaryFunction::Subtract => left.checked_sub(right),
        BinaryFunction::Multiply => left.checked_mul(right),
        BinaryFunction::Divide => left.checked_div_euclid(right),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_types::{Tensor, TensorType};

    #[test]
    fn a_scalar_is_the_length_that_it_is_at_every_size() {
        let mut graph = Graph::new();
        let mut value = graph.add_input("size", TensorType::new(DataType::I64, []));
        let functions = [BinaryFunction::Add, BinaryFunction::Divide, BinaryFunction::Multiply];
        for (function, number) in functions.into_iter().zip([240i64, 320, 2]) {
            let number = graph.add_constant("", Tensor::scalar(number));
            let binary = Op::new(Binary::new(function));
            value = graph.add_node("size", binary, &[Some(value), Some(number)]).unwrap()[0];
        }
        graph.add_output("length", value);
        let length = PaddedLength { multiplier: 2, shift: 240, divisor: 320, extra: 0 };
        assert!(counts_to(&graph, value, length));
        for other in [
            PaddedLength { shift: 239, ..length },
            PaddedLength { multiplier: 1, ..length },
            PaddedLength { extra: -2, ..length },
        ] {
            assert!(!counts_to(&graph, value, other), "{other:?}");
        }
    }
}
