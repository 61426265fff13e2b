//! Groups of a convolution whose weights a run computes, as convolutions of their own: a network that makes the weights of
//! another one, for each sample those of a group. Known weights are merged or divided when they are packed; computed
//! ones would have to be in every run.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Concat, Convolution, Graph, Op, Slice};

/// Channels of a group that fill blocks of every size.
const WHOLE_BLOCKS: usize = 16;

/// Most groups that are separated: each is a kernel of its own.
const MOST_GROUPS: usize = 32;

/// Separates the groups of convolutions with computed weights, where they fill no blocks of channels.
pub fn separate_groups(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let convolution = node.operation.downcast::<Convolution>();
        match convolution.filter(|convolution| is_separated(graph, node, convolution)) {
            Some(convolution) => {
                let output = separated(graph, &mut rewriter, node, convolution)?;
                rewriter.replace(node.outputs[0], output);
            }
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

fn is_separated(graph: &Graph, node: &Node<Op>, convolution: &Convolution) -> bool {
    let Some(weights) = node.inputs.get(1).copied().flatten() else { return false };
    let of = graph.tensor_type(weights);
    let groups = convolution.groups;
    if graph.constant(weights).is_some() || !of.dtype.is_float() || of.rank() < 3 {
        return false;
    }
    let each = [of.shape[1], of.shape[0].checked_div(groups).unwrap_or(0)];
    let is_depthwise = each == [1, 1];
    let fills = each.iter().all(|channels| channels.is_multiple_of(WHOLE_BLOCKS));
    (2..=MOST_GROUPS).contains(&groups) && !is_depthwise && !fills
}

fn separated(
    graph: &Graph,
    rewriter: &mut Rewriter,
    node: &Node<Op>,
    convolution: &Convolution,
) -> Result<ValueId, PassError> {
    let one = Convolution { groups: 1, ..convolution.clone() };
    let mut parts = Vec::with_capacity(convolution.groups);
    for group in 0..convolution.groups {
        let mut inputs = Vec::with_capacity(3);
        // Channels of the input, filters, elements of the bias.
        for (value, axis) in node.inputs.iter().flatten().zip([1, 0, 0]) {
            let shape = &graph.tensor_type(*value).shape;
            let mut extents = shape.clone();
            extents[axis] /= convolution.groups;
            let mut starts = vec![0; shape.len()];
            starts[axis] = group * extents[axis];
            let slice = Slice { starts, steps: vec![1; shape.len()], extents };
            let whole = rewriter.value(*value);
            inputs.push(rewriter.add_simple(&node.name, slice, &[whole])?);
        }
        parts.push(rewriter.add_simple(&node.name, one.clone(), &inputs)?);
    }
    rewriter.add_simple(&node.name, Concat { axis: 1 }, &parts)
}
