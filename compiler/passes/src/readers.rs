//! Who makes and who reads the values of a graph, as rewriting of small patterns asks it.

use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{Binary, BinaryFunction, Graph, Op};
use hone_types::{Id, Tensor};
use std::collections::HashSet;

/// A graph and the readers of its values.
pub(crate) struct Readers<'a> {
    pub(crate) graph: &'a Graph,
    /// Nodes that read each value, by its index.
    nodes: Vec<Vec<NodeId>>,
    /// What is read outside of the graph.
    escapes: HashSet<ValueId>,
}

impl<'a> Readers<'a> {
    pub(crate) fn of(graph: &'a Graph) -> Self {
        let outputs = graph.outputs().iter().map(|port| port.value);
        let extents = graph.extents().iter().map(|extent| extent.value);
        Self { graph, nodes: graph.consumers(), escapes: outputs.chain(extents).collect() }
    }

    /// The node that makes a value.
    pub(crate) fn producer(&self, value: ValueId) -> Option<&'a Node<Op>> {
        self.graph.producer(value).map(|id| &self.graph.nodes()[id])
    }

    /// The only node that reads a value which nothing outside of the graph reads.
    pub(crate) fn reader_of(&self, value: ValueId) -> Option<&'a Node<Op>> {
        let [reader] = self.nodes[value.index()][..] else { return None };
        (!self.escapes.contains(&value)).then(|| &self.graph.nodes()[reader])
    }

    /// The node that makes a value which one node alone reads, and nothing outside of the graph.
    pub(crate) fn producer_for_one(&self, value: ValueId) -> Option<&'a Node<Op>> {
        let once = self.nodes[value.index()].len() == 1 && !self.escapes.contains(&value);
        self.producer(value).filter(|_| once)
    }
}

/// The operand that is not constant, and the one that is, of a binary operator that keeps the former's shape. A constant
/// that is subtracted from, or divided, is none.
pub(crate) fn by_constant<'a>(
    graph: &'a Graph,
    node: &Node<Op>,
    function: BinaryFunction,
) -> Option<(ValueId, &'a Tensor)> {
    node.operation.downcast::<Binary>().filter(|binary| binary.function == function)?;
    let (left, right) = (node.inputs[0]?, node.inputs[1]?);
    let commutes = matches!(function, BinaryFunction::Add | BinaryFunction::Multiply);
    let (value, constant) = match graph.constant(right) {
        Some(constant) => (left, constant),
        None if commutes => (right, graph.constant(left)?),
        None => return None,
    };
    let shape = |value| &graph.tensor_type(value).shape;
    (shape(value) == shape(node.outputs[0]) && graph.constant(value).is_none())
        .then_some((value, constant))
}
