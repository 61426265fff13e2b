//! Drops nodes that change nothing and joins nodes that undo or repeat one another.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Cast, Concat, Expand, Graph, Op, Pad, Reshape, Slice, Transpose, Unpack};
use hone_types::TensorType;
use std::collections::HashMap;

/// Drops nodes that give their input back, joins chains of reshapes and of transpositions, and
/// computes equal nodes once.
pub fn simplify(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    let mut known: HashMap<Computation, Vec<ValueId>> = HashMap::new();
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        if let Some(same) = unchanged(graph, node) {
            let value = rewriter.value(same);
            rewriter.replace(node.outputs[0], value);
        } else if let Some((operation, input)) = joined(&mut rewriter, graph, node) {
            let before = rewriter.target().tensor_type(input);
            let value = match gives_back(&operation, before, graph.tensor_type(node.outputs[0])) {
                true => input,
                false => rewriter.add_simple(&node.name, operation, &[input])?,
            };
            rewriter.replace(node.outputs[0], value);
        } else {
            copy_once(&mut rewriter, node, &mut known)?;
        }
    }
    Ok(rewriter.finish())
}

/// What makes two nodes give equal results: operator, attributes as JSON text, and inputs.
#[derive(PartialEq, Eq, Hash)]
struct Computation {
    operator: &'static str,
    attributes: String,
    inputs: Vec<Option<ValueId>>,
}

/// Copies a node, or takes the outputs of an equal one on the same inputs.
fn copy_once(
    rewriter: &mut Rewriter,
    node: &Node<Op>,
    known: &mut HashMap<Computation, Vec<ValueId>>,
) -> Result<(), PassError> {
    let inputs: Vec<Option<ValueId>> =
        node.inputs.iter().map(|input| input.map(|value| rewriter.value(value))).collect();
    // Regions are not compared.
    if !node.operation.regions().is_empty() {
        return rewriter.copy(node);
    }
    let operator = hone_graph::Operation::name(&node.operation);
    let attributes = hone_graph::Operation::attributes(&node.operation).to_string();
    let computation = Computation { operator, attributes, inputs };
    if let Some(outputs) = known.get(&computation) {
        for (old, new) in node.outputs.iter().zip(outputs) {
            rewriter.replace(*old, *new);
        }
        return Ok(());
    }
    rewriter.copy(node)?;
    let outputs = node.outputs.iter().map(|value| rewriter.value(*value)).collect();
    known.insert(computation, outputs);
    Ok(())
}

/// The input that a node gives back as it is, if it does.
fn unchanged(graph: &Graph, node: &Node<Op>) -> Option<ValueId> {
    let input = node.inputs.first().copied().flatten()?;
    let (before, after) = (graph.tensor_type(input), graph.tensor_type(*node.outputs.first()?));
    let alone = node.operation.downcast::<Concat>().is_none() || node.inputs.len() == 1;
    (alone && gives_back(&node.operation, before, after)).then_some(input)
}

/// Whether an operation gives its first input back as it is.
fn gives_back(operation: &Op, before: &TensorType, after: &TensorType) -> bool {
    let same = operation.downcast::<Reshape>().is_some()
        || operation.downcast::<Cast>().is_some()
        || operation.downcast::<Expand>().is_some()
        || operation.downcast::<Concat>().is_some()
        || operation
            .downcast::<Pad>()
            .is_some_and(|pad| pad.begin.iter().chain(&pad.end).all(|amount| *amount == 0))
        || operation
            .downcast::<Slice>()
            .is_some_and(|slice| slice.steps.iter().all(|step| *step == 1))
        || operation.downcast::<Transpose>().is_some_and(|transpose| {
            transpose.permutation.iter().enumerate().all(|(position, axis)| position == *axis)
        });
    same && before == after
}

/// One operation that replaces this node and the one before it (in the graph being built).
fn joined(rewriter: &mut Rewriter, graph: &Graph, node: &Node<Op>) -> Option<(Op, ValueId)> {
    let input = node.inputs.first().copied().flatten()?;
    if graph.constant(input).is_some() {
        return None;
    }
    let new = rewriter.value(input);
    let target = rewriter.target();
    if node.operation.downcast::<Unpack>().is_some() {
        return unpack_as_reshape(graph, node).map(|shape| (Reshape { shape }.into(), new));
    }
    if let Some(shape) = transpose_as_reshape(graph, node) {
        return Some((Reshape { shape }.into(), new));
    }
    let before = &target.nodes()[target.producer(new)?];
    let source = before.inputs.first().copied().flatten()?;
    if let (Some(_), Some(reshape)) =
        (before.operation.downcast::<Reshape>(), node.operation.downcast::<Reshape>())
    {
        return Some((reshape.clone().into(), source));
    }
    let first = before.operation.downcast::<Transpose>()?;
    let second = node.operation.downcast::<Transpose>()?;
    let permutation = second.permutation.iter().map(|axis| first.permutation[*axis]).collect();
    Some((Transpose { permutation }.into(), source))
}

/// The shape of a transposition that moves nothing: the axes longer than one keep their order.
fn transpose_as_reshape(graph: &Graph, node: &Node<Op>) -> Option<Vec<usize>> {
    let transpose = node.operation.downcast::<Transpose>()?;
    let shape = &graph.tensor_type(node.inputs.first().copied().flatten()?).shape;
    let long = transpose.permutation.iter().filter(|axis| shape[**axis] > 1);
    long.is_sorted().then(|| graph.tensor_type(node.outputs[0]).shape.clone())
}

/// The shape of an unpacking that moves nothing: full blocks, and nothing between the cut axis and
/// the axis within its blocks.
fn unpack_as_reshape(graph: &Graph, node: &Node<Op>) -> Option<Vec<usize>> {
    let unpack = node.operation.downcast::<Unpack>()?;
    let packed = &graph.tensor_type(node.inputs.first().copied().flatten()?).shape;
    let between = &packed[unpack.axis + 1..packed.len() - 1];
    let full = packed[unpack.axis] * packed[packed.len() - 1] == unpack.extent;
    (full && between.iter().all(|extent| *extent == 1))
        .then(|| graph.tensor_type(node.outputs[0]).shape.clone())
}
