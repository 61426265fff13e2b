//! Leaves to the runtime what it computes faster on a processor than a kernel: the order of long lines, and updates at
//! many places.
//!
//! A loop program takes the same way for all data. It compares every element with every other where a line is put in
//! order, and with every index where elements are updated. The runtime follows the data: it sorts by digits, or passes
//! over a line once and keeps what is above a bound, and it goes to the place of each update.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Graph, Op, ScatterElements, ScatterNd, TopK};
use hone_types::TensorType;

/// Marks every node that the runtime computes faster on a processor.
pub fn assign_to_runtime(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some(marked) = marked(graph, node) else {
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

/// The operator of a node as one of the runtime, where that is faster.
fn marked(graph: &Graph, node: &Node<Op>) -> Option<Op> {
    let operand = |number: usize| -> Option<&TensorType> {
        Some(graph.tensor_type(node.inputs.get(number).copied()??))
    };
    if let Some(top_k) = node.operation.downcast::<TopK>() {
        let marked = top_k.on_processors(operand(0)?.shape[top_k.axis]);
        return marked.by_runtime.then(|| marked.into());
    }
    if let Some(scatter) = node.operation.downcast::<ScatterElements>() {
        let marked = scatter.on_processors(operand(0)?, operand(2)?);
        return marked.by_runtime.then(|| marked.into());
    }
    let scatter = node.operation.downcast::<ScatterNd>()?;
    let (_, points) = operand(1)?.shape.split_last()?;
    let marked = scatter.on_processors(operand(0)?, operand(2)?, points.iter().product());
    marked.by_runtime.then(|| marked.into())
}
