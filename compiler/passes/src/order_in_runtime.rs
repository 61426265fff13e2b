//! Leaves the order of long lines to the runtime.
//!
//! A loop program takes the same way for all data: it compares every element with every other. The runtime sorts
//! by digits, or passes over a line once and keeps what is above a bound, which follows the data.

use crate::{PassError, Rewriter};
use hone_graph::ValueId;
use hone_ops::{Graph, TopK};

/// Marks every [`TopK`] that the runtime computes faster on a processor.
pub fn order_in_runtime(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let marked = node.operation.downcast::<TopK>().zip(node.inputs.first().copied().flatten());
        let marked = marked
            .map(|(top_k, input)| top_k.on_processors(graph.tensor_type(input).shape[top_k.axis]))
            .filter(|top_k| top_k.by_runtime);
        let Some(marked) = marked else {
            rewriter.copy(node)?;
            continue;
        };
        let inputs: Vec<Option<ValueId>> =
            node.inputs.iter().map(|input| input.map(|value| rewriter.value(value))).collect();
        let outputs = rewriter.add(&node.name, marked, &inputs)?;
        for (old, new) in node.outputs.iter().zip(outputs) {
            rewriter.replace(*old, new);
        }
    }
    Ok(rewriter.finish())
}
