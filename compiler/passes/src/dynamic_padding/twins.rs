//! A model at several sizes: which value of one graph is which of the others, and which axes are the dimension.

use super::NotPadded;
use crate::independence::same_attributes;
use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{Graph, Op, Slice};
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

    /// The largest size.
    pub fn bound(&self) -> usize {
        self.sizes[0]
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
            // Where a slice starts is looked at by its rule.
            let is_slice = name == Slice::NAME && found == name;
            let is_same = is_slice || (name == found && same_attributes(node, other));
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

    /// The axes of a value that are the dimension.
    pub fn axes_of(&self, value: ValueId) -> Result<Vec<Axis>, String> {
        let twins = self.known[value.index()].as_deref().unwrap_or_default();
        let others =
            self.graphs[1..].iter().zip(twins).map(|(graph, twin)| graph.tensor_type(*twin));
        let types: Vec<&TensorType> =
            [self.graphs[0].tensor_type(value)].into_iter().chain(others).collect();
        axes(&types, &self.sizes)
    }
}

/// An axis whose extent is `factor · (size + extra)` at every size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub axis: usize,
    /// Positions more than the size, or less.
    pub extra: i64,
    /// Elements of what the dimension is joined with in this axis; 1 where the axis is the dimension alone.
    pub factor: usize,
}

/// The axes that are the dimension in a tensor that has `types` at `sizes`.
pub(super) fn axes(types: &[&TensorType], sizes: &[usize]) -> Result<Vec<Axis>, String> {
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
        match multiple(&extents, sizes) {
            Some((factor, extra)) => found.push(Axis { axis, extra, factor }),
            None => {
                return Err(format!(
                    "has extents {extents:?} along axis {axis} at sizes {sizes:?}: not the size, or a constant more or less"
                ));
            }
        }
    }
    Ok(found)
}

/// Factor and summand with which extents are `factor · (size + extra)`.
fn multiple(extents: &[usize], sizes: &[usize]) -> Option<(usize, i64)> {
    let rise = extents.first()?.checked_sub(*extents.get(1)?)?;
    let more = sizes.first()?.checked_sub(*sizes.get(1)?)?;
    let factor = rise.checked_div(more).filter(|factor| *factor > 0)?;
    let signed = |number: usize| i64::try_from(number).ok();
    let extra = signed(extents[0] / factor)?.checked_sub(signed(sizes[0])?)?;
    let mut pairs = extents.iter().zip(sizes);
    let follows = pairs.all(|(extent, size)| {
        let sum = signed(*size).and_then(|size| usize::try_from(size.checked_add(extra)?).ok());
        sum.and_then(|sum| sum.checked_mul(factor)) == Some(*extent)
    });
    follows.then_some((factor, extra))
}
