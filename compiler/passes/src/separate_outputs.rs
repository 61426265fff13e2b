//! Gives each output of the graph memory of its own: an output that is an input, a constant, or the
//! memory of another output is copied.

use crate::{PassError, Rewriter};
use hone_graph::{Definition, ValueId};
use hone_ops::{Cast, Graph, Reshape};
use std::collections::HashSet;

/// Adds a copy before each output that would share memory.
pub fn separate_outputs(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if rewriter.is_needed(id) {
            rewriter.copy(node)?;
        }
    }
    let mut taken: HashSet<ValueId> = HashSet::new();
    let mut outputs = Vec::with_capacity(graph.outputs().len());
    for port in graph.outputs() {
        let root = root(graph, port.value);
        let computed = matches!(graph.values()[root].definition, Definition::Output(..));
        let value = rewriter.value(port.value);
        let own = computed && taken.insert(root);
        outputs.push(if own {
            value
        } else {
            let to = graph.tensor_type(port.value).dtype;
            rewriter.add_simple(&port.name, Cast { to }, &[value])?
        });
    }
    Ok(rewriter.finish_with(&outputs))
}

/// The value whose memory a value is.
fn root(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some(node) = graph.producer(value) {
        let node = &graph.nodes()[node];
        match (node.operation.downcast::<Reshape>(), node.inputs[0]) {
            (Some(_), Some(input)) => value = input,
            _ => break,
        }
    }
    value
}
