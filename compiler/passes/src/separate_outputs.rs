//! Gives each output of the graph separate memory: an output that is an input, a constant, or the
//! memory of another output is copied.

use crate::{PassError, Rewriter};
use hone_graph::{Definition, ValueId};
use hone_ops::{Cast, Graph};
use hone_types::Id;
use std::collections::HashSet;

/// Adds a copy before each output that would share memory.
pub fn separate_outputs(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if rewriter.is_needed(id) {
            rewriter.copy(node)?;
        }
    }
    let roots = view_roots(graph);
    let mut taken: HashSet<ValueId> = HashSet::new();
    let mut outputs = Vec::with_capacity(graph.outputs().len());
    for port in graph.outputs() {
        let root = roots[port.value.index()];
        let computed = matches!(graph.values()[root].definition, Definition::Output(..));
        let value = rewriter.value(port.value);
        let unshared = computed && taken.insert(root);
        outputs.push(if unshared {
            value
        } else {
            let to = graph.tensor_type(port.value).dtype;
            rewriter.add_simple(&port.name, Cast { to }, &[value])?
        });
    }
    Ok(rewriter.finish_with(&outputs))
}

/// For each value (by index), the value whose memory it is.
pub(crate) fn view_roots(graph: &Graph) -> Vec<ValueId> {
    let mut roots: Vec<ValueId> = graph.values().ids().collect();
    for (_, node) in graph.nodes().iter() {
        if node.operation.is_view()
            && let Some(input) = node.inputs[0]
        {
            roots[node.outputs[0].index()] = roots[input.index()];
        }
    }
    roots
}
