//! Long sums in two stages. A sum of n terms, added one after another in `f32`, errs by up to n / 2 units in the last
//! place, one of partial sums by as many as the longer of both stages has terms (Higham, *Accuracy and Stability of
//! Numerical Algorithms*, chapter 4); and partial sums are work for several threads, where few results are not.

use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_ops::{Graph, Op, Reduce, ReduceFunction};
use hone_types::DataType;

/// Terms that are added one after another, up to which a sum is left whole.
const MAX_TERMS: usize = 4096;

/// Partial sums that a sum along the last axis has at least: the lanes of a vector of a common machine.
const LANES: usize = 8;

/// Splits sums and means over several axes with many terms: over the last of these axes first, then over the others.
pub fn split_reductions(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some((first, second)) = split(graph, node) else {
            rewriter.copy(node)?;
            continue;
        };
        let input = node.inputs[0].map(|value| rewriter.value(value));
        let partial = rewriter.add(&node.name, first, &[input])?[0];
        let sum = rewriter.add_simple(&node.name, second, &[partial])?;
        rewriter.replace(node.outputs[0], sum);
    }
    Ok(rewriter.finish())
}

/// The two stages of a long sum.
fn split(graph: &Graph, node: &Node<Op>) -> Option<(Reduce, Reduce)> {
    let reduce = node.operation.downcast::<Reduce>()?;
    let input = graph.tensor_type(node.inputs[0]?);
    let function = match reduce.function {
        ReduceFunction::Sum | ReduceFunction::L1 | ReduceFunction::SumSquare => ReduceFunction::Sum,
        ReduceFunction::Mean => ReduceFunction::Mean,
        _ => return None,
    };
    let mut axes = reduce.axes.clone();
    axes.sort_unstable();
    let terms = |axes: &[usize]| axes.iter().map(|axis| input.shape[*axis]).product::<usize>();
    let is_last = axes.last().is_some_and(|axis| axis + 1 == input.rank());
    let in_order = terms(&axes) / if is_last { LANES } else { 1 };
    if in_order <= MAX_TERMS || !matches!(input.dtype, DataType::F32 | DataType::F64) {
        return None;
    }
    let parts = (1..axes.len()).map(|count| axes.split_at(count));
    let parts = parts.filter(|(outer, inner)| terms(outer) > 1 && terms(inner) > 1);
    let (_, inner) = parts.min_by_key(|(outer, inner)| terms(outer).max(terms(inner)))?;
    let first = Reduce { function: reduce.function, axes: inner.to_vec(), keep_axes: true };
    // The axes of the first stage have extent 1 here, and go or stay as the node says.
    Some((first, Reduce { function, ..reduce.clone() }))
}
