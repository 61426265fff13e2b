//! Broadcasts as late as possible: what is computed element by element of broadcast values alone is computed before the
//! broadcast, once for all the elements that are alike. A scatter by an index that is broadcast over whole slices of its
//! data, as exporters write assignments to rows, becomes a scatter of slices, which reads one index for each.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, Cast, Expand, Graph, Op, Reshape, ScatterElements, ScatterNd, Select, Unary,
    broadcast_shapes,
};
use std::collections::{HashMap, HashSet};

/// Moves broadcasts behind element-wise operators, and takes them from the indices of scatters.
///
/// # Errors
/// What the rewriter refuses.
pub fn delay_broadcasts(graph: &Graph) -> Result<Graph, PassError> {
    let rewriter = Rewriter::new(graph);
    let mut pass = Pass { graph, rewriter, delayed: HashMap::new(), broadcast: HashSet::new() };
    for (id, node) in graph.nodes().iter() {
        if pass.rewriter.is_needed(id) {
            pass.node(node)?;
        }
    }
    let outputs = graph.outputs().iter().map(|port| port.value);
    let ends: Vec<ValueId> =
        outputs.chain(graph.extents().iter().map(|extent| extent.value)).collect();
    ends.into_iter().try_for_each(|value| pass.broadcast(value))?;
    Ok(pass.rewriter.finish())
}

struct Pass<'a> {
    graph: &'a Graph,
    rewriter: Rewriter<'a>,
    /// Values of the old graph that are broadcasts: the name of the node, and what is broadcast, in the new graph.
    delayed: HashMap<ValueId, (&'a str, ValueId)>,
    /// Those of them that somebody needs broadcast.
    broadcast: HashSet<ValueId>,
}

impl<'a> Pass<'a> {
    fn node(&mut self, node: &'a Node<Op>) -> Result<(), PassError> {
        if node.operation.downcast::<Expand>().is_some()
            && let Some(input) = node.inputs[0]
        {
            let source = self.narrow(input);
            self.delayed.insert(node.outputs[0], (&node.name, source));
            return Ok(());
        }
        if is_element_wise(&node.operation) && self.compute_before(node)? {
            return Ok(());
        }
        if let Some(rows) = self.rows(node)? {
            self.rewriter.replace(node.outputs[0], rows);
            return Ok(());
        }
        node.inputs.iter().flatten().try_for_each(|input| self.broadcast(*input))?;
        self.rewriter.copy(node)
    }

    /// A value before it is broadcast, or as it is.
    fn narrow(&mut self, value: ValueId) -> ValueId {
        match self.delayed.get(&value) {
            Some((_, source)) => *source,
            None => self.rewriter.value(value),
        }
    }

    /// Broadcasts a value that is needed so.
    fn broadcast(&mut self, value: ValueId) -> Result<(), PassError> {
        let Some((name, source)) = self.delayed.get(&value).copied() else { return Ok(()) };
        if !self.broadcast.insert(value) {
            return Ok(());
        }
        let expand = Expand { shape: self.graph.tensor_type(value).shape.clone() };
        let whole = self.rewriter.add_simple(name, expand, &[source])?;
        self.rewriter.replace(value, whole);
        Ok(())
    }

    /// Computes a node of the operands before they are broadcast, where these have fewer elements.
    fn compute_before(&mut self, node: &'a Node<Op>) -> Result<bool, PassError> {
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        if !operands.iter().any(|operand| self.delayed.contains_key(operand)) {
            return Ok(false);
        }
        let sources: Vec<ValueId> = operands.iter().map(|operand| self.narrow(*operand)).collect();
        let mut shape = Vec::new();
        for source in &sources {
            match broadcast_shapes(&shape, &self.rewriter.target().tensor_type(*source).shape) {
                Some(both) => shape = both,
                None => return Ok(false),
            }
        }
        let whole = self.graph.tensor_type(node.outputs[0]).elements();
        if shape.iter().product::<usize>() >= whole {
            return Ok(false);
        }
        let computed = self.rewriter.add_simple(&node.name, node.operation.clone(), &sources)?;
        self.delayed.insert(node.outputs[0], (&node.name, computed));
        Ok(true)
    }

    /// A scatter along the first axis whose index is the same for all elements of a slice, as one of slices.
    fn rows(&mut self, node: &Node<Op>) -> Result<Option<ValueId>, PassError> {
        let Some(scatter) = node.operation.downcast::<ScatterElements>() else { return Ok(None) };
        let [Some(data), Some(indices), Some(updates)] = node.inputs[..] else { return Ok(None) };
        let Some((_, source)) = self.delayed.get(&indices).copied() else { return Ok(None) };
        let (all, part) =
            (&self.graph.tensor_type(data).shape, &self.graph.tensor_type(indices).shape);
        let index = &self.rewriter.target().tensor_type(source).shape;
        let is_whole = all.len() == part.len() && all.get(1..) == part.get(1..);
        let is_row = index.len() == part.len() && index.iter().skip(1).all(|extent| *extent == 1);
        let count = part.first().copied().unwrap_or(0);
        if scatter.axis != 0 || !is_whole || !is_row || index.first() != Some(&count) {
            return Ok(None);
        }
        let name = &node.name;
        let rows = self.rewriter.add_simple(name, Reshape { shape: vec![count, 1] }, &[source])?;
        self.broadcast(data)?;
        self.broadcast(updates)?;
        let inputs = [self.rewriter.value(data), rows, self.rewriter.value(updates)];
        self.rewriter.add_simple(name, ScatterNd::new(scatter.reduction), &inputs).map(Some)
    }
}

/// Whether an operator computes each element of its broadcast operands by itself.
fn is_element_wise(operation: &Op) -> bool {
    operation.downcast::<Binary>().is_some()
        || operation.downcast::<Unary>().is_some()
        || operation.downcast::<Select>().is_some()
        || operation.downcast::<Cast>().is_some()
}
