//! A model at several sizes: which value of one graph is which of the others, and which axes are the dimension.

use super::NotPadded;
use super::length::Length;
use super::lengths::{Candidates, Made};
use crate::independence::same_attributes;
use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{Graph, Op, Pool, Slice};
use hone_types::{Id, Tensor, TensorType};

/// The graphs of one model at several sizes, the bound's first.
pub(super) struct Twins<'a> {
    graphs: Vec<&'a Graph>,
    sizes: Vec<usize>,
    /// For each value of the first graph, which is no constant, the values of the others.
    known: Vec<Option<Vec<ValueId>>>,
}

impl<'a> Twins<'a> {
    /// The graphs, with their inputs joined.
    pub fn new(
        at_bound: &'a Graph,
        bound: usize,
        witnesses: &[(&'a Graph, usize)],
    ) -> Result<Self, NotPadded> {
        for (graph, size) in witnesses {
            let differs = |why: String| NotPadded::Size { size: *size, of: bound, why };
            let counts = [
                ("inputs", at_bound.inputs().len(), graph.inputs().len()),
                ("outputs", at_bound.outputs().len(), graph.outputs().len()),
                ("nodes", at_bound.nodes().len(), graph.nodes().len()),
            ];
            for (what, known, found) in counts {
                if known != found {
                    return Err(differs(format!("it has {found} {what}, not {known}")));
                }
            }
            if !graph.extents().is_empty() || at_bound.interface() != graph.interface() {
                return Err(differs("its inputs and outputs are others".to_owned()));
            }
        }
        let graphs = [at_bound].into_iter().chain(witnesses.iter().map(|(graph, _)| *graph));
        let sizes = [bound].into_iter().chain(witnesses.iter().map(|(_, size)| *size));
        let known = vec![None; at_bound.values().len()];
        let mut twins = Self { graphs: graphs.collect(), sizes: sizes.collect(), known };
        for (position, port) in at_bound.inputs().iter().enumerate() {
            let others = twins.graphs[1..].iter().map(|graph| graph.inputs()[position].value);
            twins.known[port.value.index()] = Some(others.collect());
        }
        Ok(twins)
    }

    /// The graph at the bound.
    pub fn at_bound(&self) -> &'a Graph {
        self.graphs[0]
    }

    /// All sizes, the bound first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The node in the other graphs that is this one in the first.
    pub fn others(&self, id: NodeId) -> Result<Vec<&'a Node<Op>>, String> {
        let node = &self.graphs[0].nodes()[id];
        let mut others = Vec::with_capacity(self.graphs.len() - 1);
        for (graph, size) in self.graphs[1..].iter().zip(&self.sizes[1..]) {
            let other = &graph.nodes()[id];
            let (name, found) = (node.operation.name(), other.operation.name());
            if name == found && node.operation.regions() != other.operation.regions() {
                return Err("has graphs inside that depend on the size".to_owned());
            }
            // Where a slice starts, and how far windows of a pool reach, is looked at by their rules.
            let is_same = name == found
                && (name == Slice::NAME || same_pools(node, other) || same_attributes(node, other));
            if !is_same {
                return Err(format!("is another operation at {size} ({found})"));
            }
            let absent = |node: &Node<Op>| -> Vec<bool> {
                node.inputs.iter().map(Option::is_none).collect()
            };
            if absent(node) != absent(other) || node.outputs.len() != other.outputs.len() {
                return Err(format!("has another number of operands at {size}"));
            }
            others.push(other);
        }
        Ok(others)
    }

    /// Takes down that the results of nodes are one another's.
    pub fn join(&mut self, node: &Node<Op>, others: &[&Node<Op>]) {
        for (position, output) in node.outputs.iter().enumerate() {
            let twins = others.iter().map(|other| other.outputs[position]).collect();
            self.known[output.index()] = Some(twins);
        }
    }

    /// Whether `twins` are a value of the first graph at the other sizes.
    pub fn is_known(&self, value: ValueId, twins: &[ValueId]) -> bool {
        self.known[value.index()].as_deref() == Some(twins)
    }

    /// The values at the other sizes of the output at a place.
    pub fn outputs(&self, position: usize) -> Vec<ValueId> {
        self.graphs[1..].iter().map(|graph| graph.outputs()[position].value).collect()
    }

    /// A constant at all sizes, the bound first; `None` where one is no constant.
    pub fn constants<'t>(
        &'t self,
        first: &'t Tensor,
        twins: &[ValueId],
    ) -> Option<Vec<&'t Tensor>> {
        let others = self.graphs[1..].iter().zip(twins).map(|(graph, twin)| graph.constant(*twin));
        [Some(first)].into_iter().chain(others).collect()
    }

    /// The axes of a value that are the dimension, with lengths among candidates.
    pub fn axes_of(&self, value: ValueId, candidates: Candidates<'_>) -> Result<Vec<Axis>, String> {
        let twins = self.known[value.index()].as_deref().unwrap_or_default();
        let others =
            self.graphs[1..].iter().zip(twins).map(|(graph, twin)| graph.tensor_type(*twin));
        let types: Vec<&TensorType> =
            [self.graphs[0].tensor_type(value)].into_iter().chain(others).collect();
        axes(&types, &self.sizes, candidates)
    }
}

/// Whether two nodes are pools that differ at most in what is added at the end.
fn same_pools(node: &Node<Op>, other: &Node<Op>) -> bool {
    let without_end = |node: &Node<Op>| {
        let mut pool = node.operation.downcast::<Pool>()?.clone();
        pool.window.pads_end.clear();
        Some(Op::new(pool))
    };
    without_end(node).is_some_and(|pool| Some(pool) == without_end(other))
}

/// An axis whose extent follows from the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its place.
    pub axis: usize,
    /// Its extent at every size.
    pub length: Length,
}

/// The axes that are the dimension in a tensor that has `types` at `sizes`, the bound first.
///
/// A length is taken that is among the candidates and has all the extents. Where several have, they have to be the same at
/// every size.
pub(super) fn axes(
    types: &[&TensorType],
    sizes: &[usize],
    candidates: Candidates<'_>,
) -> Result<Vec<Axis>, String> {
    let [first, others @ ..] = types else { return Ok(Vec::new()) };
    for (other, size) in others.iter().zip(&sizes[1..]) {
        if other.dtype != first.dtype || other.rank() != first.rank() {
            return Err(format!("gives {other} and not {first} at {size}"));
        }
    }
    let mut found = Vec::new();
    for axis in 0..first.rank() {
        let extents: Vec<usize> = types.iter().map(|entry| entry.shape[axis]).collect();
        if extents.iter().all(|extent| *extent == extents[0]) {
            continue;
        }
        let mut lengths = fitting(axis, &extents, sizes, candidates).into_iter();
        let Some(length) = lengths.next() else {
            return Err(format!(
                "has extents {extents:?} along axis {axis} at sizes {sizes:?}, which do not follow from those that it reads"
            ));
        };
        if lengths.any(|other| !other.agrees(length, (1, sizes[0]))) {
            return Err(format!(
                "has extents {extents:?} along axis {axis} at sizes {sizes:?}, from which its extent at other sizes cannot be told"
            ));
        }
        found.push(Axis { axis, length });
    }
    Ok(found)
}

/// The candidates for an axis that have its extents.
fn fitting(
    axis: usize,
    extents: &[usize],
    sizes: &[usize],
    Candidates { made, steps, divided }: Candidates<'_>,
) -> Vec<Length> {
    let made: Vec<&Made> = made.iter().filter(|made| made.axis == axis).collect();
    if !made.is_empty() {
        let lengths = made.into_iter().filter_map(|made| {
            let found = Length::fitting(made.length, extents, sizes)?;
            (!made.is_exact || found == made.length).then_some(found)
        });
        return lengths.collect();
    }
    let of = |steps: &[Length]| -> Vec<Length> {
        steps.iter().filter_map(|length| Length::fitting(*length, extents, sizes)).collect()
    };
    let found = of(steps);
    // No block of several positions grows as fast as they do.
    if found.is_empty() { of(divided) } else { found }
}
