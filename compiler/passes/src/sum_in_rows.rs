//! Has running sums along neighbours computed in rows, as processors do it: a row lies in a vector's lanes, and lanes are
//! exchanged in registers. Devices of many lanes compute them in parts.

use crate::{PassError, Rewriter};
use hone_graph::ValueId;
use hone_ops::{CumulativeSum, Graph};

/// Marks every running sum whose elements are neighbours, and more than a row of them.
pub fn sum_in_rows(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let input = node.inputs.first().copied().flatten();
        let Some((sum, input)) = node.operation.downcast::<CumulativeSum>().zip(input) else {
            rewriter.copy(node)?;
            continue;
        };
        let marked = sum.on_processors(&graph.tensor_type(input).shape);
        let inputs: Vec<Option<ValueId>> = vec![Some(rewriter.value(input))];
        let outputs = rewriter.add(&node.name, marked, &inputs)?;
        rewriter.replace(node.outputs[0], outputs[0]);
    }
    Ok(rewriter.finish())
}
