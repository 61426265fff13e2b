//! Weights that every step of a recurrence reads, stored as integers where they are multiples of a scale for each
//! column, as a quantizer left them: `x (q s) = (x q) s`. Nothing is rounded: the integers times their scales equal the
//! weights.
//!
//! A step takes the time in which its weights come, once for each tile of rows, and bytes are a quarter of those of `f32`.
//! They must be converted each time: that costs more than it saves where the weights stay in the second-level cache as
//! they are (on a core with 2 MiB a layer of 256 units takes 4 % longer; one of 512 takes a quarter of the time for one
//! row, half for 8, two thirds for 64).

use crate::multiples::Multiples;
use crate::recurrent_steps::change_steps;
use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_ops::{Binary, BinaryFunction, Cast, Graph, MatMul, Op, OpError};
use hone_types::Tensor;

/// Stores the weights of products in recurrences as integers where nothing is lost, and those of a step take more than
/// `cache` bytes.
pub fn narrow_recurrent_weights(graph: &Graph, cache: usize) -> Result<Graph, PassError> {
    change_steps(graph, &|step| {
        let weights = step.nodes().iter().filter_map(|(_, node)| weights_of(step, node));
        let bytes: usize = weights.map(|weights| weights.tensor_type().bytes()).sum();
        if bytes <= cache { Ok(None) } else { narrow_products(step) }
    })
}

/// The constant matrix that a node multiplies its other operand by.
fn weights_of<'a>(step: &'a Graph, node: &Node<Op>) -> Option<&'a Tensor> {
    node.operation.downcast::<MatMul>()?;
    step.constant((*node.inputs.get(1)?)?)
}

/// A step whose products read integers; `None` where no weights are multiples of scales.
fn narrow_products(step: &Graph) -> Result<Option<Graph>, PassError> {
    let mut rewriter = Rewriter::new(step);
    let mut changed = false;
    for (_, node) in step.nodes().iter() {
        let Some(multiples) = weights_of(step, node).and_then(Multiples::of) else {
            rewriter.copy(node)?;
            continue;
        };
        changed = true;
        let name = &node.name;
        let to = step.tensor_type(node.outputs[0]).dtype;
        let tensors = multiples.tensors(multiples.narrowest(), to);
        let [integers, scales] = tensors.map_err(|error| PassError::Constant {
            node: name.clone(),
            source: OpError::from(error),
        })?;
        let integers = rewriter.constant(name, integers);
        let weights = rewriter.add_simple(name, Cast { to }, &[integers])?;
        let left = node.inputs[0].map(|left| rewriter.value(left));
        let sums = rewriter.add(name, MatMul {}, &[left, Some(weights)])?[0];
        let scales = rewriter.constant(name, scales);
        let product =
            rewriter.add_simple(name, Binary::new(BinaryFunction::Multiply), &[sums, scales])?;
        rewriter.replace(node.outputs[0], product);
    }
    Ok(changed.then(|| rewriter.finish()))
}
