//! Lets a concatenation read an earlier one that has its first or its last inputs: a layer of a dense block joins what
//! all layers before it gave, and so does the next one. Where each input is a contiguous part of the result, all then
//! lie in one place, and every value has a single reader that joins it ([`crate::alias_concatenations()`]).

use crate::alias_concatenations::SubBuffers;
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Concat, Graph, Op};
use std::collections::{HashMap, HashSet};

/// Rewrites concatenations whose inputs are contiguous parts of their results.
pub fn nest_concatenations(graph: &Graph, sub_buffers: SubBuffers) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    let outputs: HashSet<ValueId> = graph.outputs().iter().map(|port| port.value).collect();
    // The result of each concatenation that none reads yet in place of its inputs, by axis and inputs.
    let mut known: HashMap<(usize, Vec<ValueId>), ValueId> = HashMap::new();
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some((axis, inputs)) = joined(graph, node, sub_buffers) else {
            rewriter.copy(node)?;
            continue;
        };
        match shorter(&mut known, axis, &inputs) {
            None => rewriter.copy(node)?,
            Some(fewer) => {
                let fewer: Vec<ValueId> =
                    fewer.into_iter().map(|value| rewriter.value(value)).collect();
                let output = rewriter.add_simple(&node.name, Concat { axis }, &fewer)?;
                rewriter.replace(node.outputs[0], output);
            }
        }
        if !outputs.contains(&node.outputs[0]) {
            known.insert((axis, inputs), node.outputs[0]);
        }
    }
    Ok(rewriter.finish())
}

/// Axis and inputs of a concatenation of several contiguous parts.
fn joined(
    graph: &Graph,
    node: &Node<Op>,
    sub_buffers: SubBuffers,
) -> Option<(usize, Vec<ValueId>)> {
    let axis = node.operation.downcast::<Concat>()?.axis;
    let inputs: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
    (inputs.len() > 1 && sub_buffers.are_inputs_of(graph, node, axis)).then_some((axis, inputs))
}

/// Fewer inputs, of which one is the longest known concatenation of first or last ones; it is known no longer, because
/// a second reader would have to copy it.
fn shorter(
    known: &mut HashMap<(usize, Vec<ValueId>), ValueId>,
    axis: usize,
    inputs: &[ValueId],
) -> Option<Vec<ValueId>> {
    for length in (2..inputs.len()).rev() {
        let (first, behind) = inputs.split_at(length);
        if let Some(value) = known.remove(&(axis, first.to_vec())) {
            return Some([&[value], behind].concat());
        }
        let (before, last) = inputs.split_at(inputs.len() - length);
        if let Some(value) = known.remove(&(axis, last.to_vec())) {
            return Some([before, &[value]].concat());
        }
    }
    None
}
