//! Which values lie inside of others: the inputs of joins, where whoever computes them can write them there.
//!
//! `alias_concatenations` makes joins where that pays. Whether it can be done is asked here, of the groups that fusion made;
//! a join of which it cannot be is a kernel that copies.

use crate::storage::{Roots, SubBuffer};
use hone_artifact::BUFFER_ALIGNMENT;
use hone_graph::{Definition, NodeId, ValueId};
use hone_ops::{Graph, Join};
use std::collections::HashSet;

/// The search for such values, join by join in topological order.
pub(crate) struct SubBuffers<'a> {
    graph: &'a Graph,
    roots: &'a Roots,
    /// Whether the graph is inside of a node.
    is_inside: bool,
    outputs: HashSet<ValueId>,
    /// Values that already lie inside of others.
    placed: HashSet<ValueId>,
}

impl<'a> SubBuffers<'a> {
    pub(crate) fn new(graph: &'a Graph, roots: &'a Roots, is_inside: bool) -> Self {
        let outputs = graph.outputs().iter().map(|port| roots.of(port.value)).collect();
        Self { graph, roots, is_inside, outputs, placed: HashSet::new() }
    }

    /// Where the inputs lie in the result of a join that is a group of its own; `None` of every other group, and where
    /// something must be copied.
    pub(crate) fn of(&mut self, nodes: &[NodeId]) -> Option<Vec<SubBuffer>> {
        let [id] = nodes else { return None };
        let node = &self.graph.nodes()[*id];
        node.operation.downcast::<Join>()?;
        let whole = node.outputs[0];
        // The runtime exchanges the buffers of what a loop carries, and knows them by where they begin.
        if self.is_inside && self.outputs.contains(&whole) {
            return None;
        }
        let inputs: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
        let types = inputs.iter().map(|input| self.graph.tensor_type(*input));
        let places = inputs.iter().zip(Join::offsets(types));
        let mut sub_buffers = Vec::with_capacity(inputs.len());
        let mut own: HashSet<ValueId> = HashSet::new();
        for (input, offset) in places {
            if self.graph.tensor_type(*input).bytes() == 0 {
                continue;
            }
            let (part, offset) = (self.roots.of(*input), offset as u64);
            let fits = self.is_free(part) && offset.is_multiple_of(BUFFER_ALIGNMENT);
            if !fits || !own.insert(part) {
                return None;
            }
            sub_buffers.push(SubBuffer { part, whole, offset });
        }
        self.placed.extend(own);
        Some(sub_buffers)
    }

    /// Whether a value is computed, and has no place yet.
    fn is_free(&self, part: ValueId) -> bool {
        let computed = matches!(self.graph.values()[part].definition, Definition::Output(..));
        computed && !self.outputs.contains(&part) && !self.placed.contains(&part)
    }
}
