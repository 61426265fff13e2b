//! Long sums in two stages. A sum of n terms, added one after another in `f32`, errs by up to n / 2 units in the last
//! place, one of partial sums by as many as the longer of both stages has terms (Higham, *Accuracy and Stability of
//! Numerical Algorithms*, chapter 4); and partial sums are work for several threads, where few results are not.

use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_ops::{Graph, Op, Reduce, ReduceFunction, Reshape};
use hone_types::DataType;

/// Terms that are added one after another, up to which a sum is left whole.
const MAX_TERMS: usize = 4096;

/// Partial sums that a sum along the last axis has at least: the lanes of a vector of a common machine.
const LANES: usize = 8;

/// Splits sums and means with many terms: over the last of several axes first, then over the others; over one axis that is not
/// the last, over parts of it first, whose number is the divisor of its extent that is nearest to the square root.
pub fn split_reductions(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some(Split { shape, first, second }) = split(graph, node) else {
            rewriter.copy(node)?;
            continue;
        };
        let Some(mut input) = node.inputs[0].map(|value| rewriter.value(value)) else { continue };
        if let Some(shape) = shape {
            input = rewriter.add_simple(&node.name, Reshape { shape }, &[input])?;
        }
        let partial = rewriter.add_simple(&node.name, first, &[input])?;
        let sum = rewriter.add_simple(&node.name, second, &[partial])?;
        rewriter.replace(node.outputs[0], sum);
    }
    Ok(rewriter.finish())
}

/// The two stages of a long sum.
struct Split {
    /// Of the operand, where its one summed axis becomes two.
    shape: Option<Vec<usize>>,
    /// The partial results.
    first: Reduce,
    /// The result of them.
    second: Reduce,
}

fn split(graph: &Graph, node: &Node<Op>) -> Option<Split> {
    let reduce = node.operation.downcast::<Reduce>()?;
    let input = graph.tensor_type(node.inputs[0]?);
    let function = match reduce.function {
        ReduceFunction::Sum | ReduceFunction::L1 | ReduceFunction::SumSquare => ReduceFunction::Sum,
        ReduceFunction::Mean => ReduceFunction::Mean,
        ReduceFunction::L2 => ReduceFunction::L2,
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
    let second = Reduce { function, ..reduce.clone() };
    if let ([axis], false) = (&axes[..], is_last) {
        let parts = parts(input.shape[*axis])?;
        let mut shape = input.shape.clone();
        shape.splice(axis..=axis, [parts, input.shape[*axis] / parts]);
        let first = Reduce { function: reduce.function, axes: vec![axis + 1], keep_axes: false };
        return Some(Split { shape: Some(shape), first, second });
    }
    let parts = (1..axes.len()).map(|count| axes.split_at(count));
    let parts = parts.filter(|(outer, inner)| terms(outer) > 1 && terms(inner) > 1);
    let (_, inner) = parts.min_by_key(|(outer, inner)| terms(outer).max(terms(inner)))?;
    let first = Reduce { function: reduce.function, axes: inner.to_vec(), keep_axes: true };
    // The axes of the first stage have extent 1 here, and go or stay as the node says.
    Some(Split { shape: None, first, second })
}

/// In how many equal parts an axis is summed: the largest divisor of its extent up to the square root, if there is one.
fn parts(extent: usize) -> Option<usize> {
    (2..=extent.isqrt()).rev().find(|parts| extent.is_multiple_of(*parts))
}
