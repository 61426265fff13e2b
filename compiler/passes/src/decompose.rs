//! Takes apart operators that are made of others, such as recurrent layers into one step per time.

use crate::{PassError, Rewriter};
use hone_graph::ValueId;
use hone_ops::Graph;

/// Replaces every operator that says how it is made of others.
pub fn decompose(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let inputs: Vec<Option<ValueId>> =
            node.inputs.iter().map(|input| input.map(|value| rewriter.value(value))).collect();
        match rewriter.decompose(&node.name, &node.operation, &inputs)? {
            None => rewriter.copy(node)?,
            Some(outputs) => {
                for (old, new) in node.outputs.iter().zip(outputs) {
                    rewriter.replace(*old, new);
                }
            }
        }
    }
    Ok(rewriter.finish())
}
