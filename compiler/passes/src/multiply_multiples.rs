//! Products of bytes with constants that are multiples of a scale for each column, as quantizers leave them
//! ([`crate::multiples`]), become products of integers: `sum (x s) (w t) = s t * sum x w`, where the rows of x may have a
//! scale each. Here the values decide, once constants are folded, where [`crate::multiply_quantized`] reads how a model wrote
//! them: the weights of recurrent layers are parts of what the model holds, exchanged and cut.
//!
//! In the step of a recurrence the integers are laid out for the instructions that sum products of bytes
//! ([`crate::multiply_integers`]). The weights of a step are read from the second-level cache or beyond once for each step, and
//! bytes are a quarter of what `f32` are.

use crate::integer_products::{Bytes, column_offsets};
use crate::multiples::Multiples;
use crate::quantized::{MAX_SUMMED, Scaled};
use crate::recurrent_steps::change_steps;
use crate::{PassError, Rewriter, fold_constants, multiply_integers, shift_signed_bytes};
use hone_graph::Node;
use hone_ops::{Binary, BinaryFunction, Cast, Graph, MatMul, Op, products_of};
use hone_types::{DataType, Tensor};

/// Multiplies integers in place of numbers, for a machine that sums products of unsigned and signed bytes.
pub fn multiply_multiples(graph: &Graph) -> Result<Graph, PassError> {
    Ok(multiplied(graph)?.unwrap_or_else(|| graph.clone()))
}

/// The same in the steps of recurrences, by instructions on vectors of `lanes` elements of 32 bits.
pub fn multiply_recurrent_multiples(graph: &Graph, lanes: usize) -> Result<Graph, PassError> {
    change_steps(graph, &|step| {
        let shifted = shift_signed_bytes(step)?;
        let Some(integers) = multiplied(&shifted)? else { return Ok(None) };
        fold_constants(&multiply_integers(&integers, STEP_VECTORS * lanes)?).map(Some)
    })
}

/// Vectors of columns that lie side by side in a step: few rows share its weights, so that the sums of several vectors are
/// what hides the latency of an instruction.
const STEP_VECTORS: usize = 8;

/// A graph whose products of bytes are those of integers; `None` where there are none.
fn multiplied(graph: &Graph) -> Result<Option<Graph>, PassError> {
    let mut rewriter = Rewriter::new(graph);
    let mut changed = false;
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match Product::of(graph, node) {
            Some(product) => {
                product.write(graph, &mut rewriter, node)?;
                changed = true;
            }
            None => rewriter.copy(node)?,
        }
    }
    Ok(changed.then(|| rewriter.finish()))
}

/// A product of bytes and multiples.
struct Product {
    left: Scaled,
    /// Integers `[K, N]` in 32 bits, and their scales `[N]`.
    right: [Tensor; 2],
}

impl Product {
    fn of(graph: &Graph, node: &Node<Op>) -> Option<Self> {
        node.operation.downcast::<MatMul>()?;
        let (rows, right) = (node.inputs[0]?, node.inputs[1]?);
        let matrix = graph.constant(right)?;
        let [depth, _] = matrix.shape()[..] else { return None };
        let left = Scaled::of(graph, rows)?;
        let shape = &graph.tensor_type(rows).shape;
        let fits = left.are_bytes(graph, Bytes::Unsigned)
            && left.scale.is_none_or(|scale| is_by_row(&graph.tensor_type(scale).shape, shape))
            && depth.is_multiple_of(products_of(DataType::I8)?);
        let multiples = Some(matrix).filter(|_| fits).and_then(Multiples::of)?;
        let right = multiples.tensors(DataType::I32, matrix.dtype()).ok()?;
        let summed = depth.saturating_mul(multiples.largest());
        let is_narrow = column_offsets(&right[0], DataType::I8).is_some();
        (is_narrow && summed <= MAX_SUMMED).then_some(Self { left, right })
    }

    fn write(
        self,
        graph: &Graph,
        rewriter: &mut Rewriter<'_>,
        node: &Node<Op>,
    ) -> Result<(), PassError> {
        let (name, to) = (&node.name, graph.tensor_type(node.outputs[0]).dtype);
        let [integers, scales] = self.right.map(|tensor| rewriter.constant(name, tensor));
        let left = rewriter.value(self.left.integers);
        let sums = rewriter.add_simple(name, MatMul {}, &[left, integers])?;
        let mut product = rewriter.add_simple(name, Cast { to }, &[sums])?;
        let scale = self.left.scale.map(|scale| rewriter.value(scale));
        for factor in [Some(scales), scale].into_iter().flatten() {
            let times = Binary::new(BinaryFunction::Multiply);
            product = rewriter.add_simple(name, times, &[product, factor])?;
        }
        rewriter.replace(node.outputs[0], product);
        Ok(())
    }
}

/// Whether scales are one for all, or one for each row: what is summed has one scale.
fn is_by_row(scales: &[usize], rows: &[usize]) -> bool {
    let by_row = || match (scales.split_last(), rows.split_last()) {
        (Some((1, outer)), Some((_, rows))) => outer == rows,
        _ => false,
    };
    scales.iter().product::<usize>() == 1 && scales.len() <= rows.len() || by_row()
}
