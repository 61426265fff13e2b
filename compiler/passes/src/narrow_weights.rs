//! Weights of products stored as 16-bit floats where nothing is lost: those of a model that was converted to `f16` or
//! `bf16`, after they were packed. Kernels widen them as they read them ([`crate::fuse()`] repeats a conversion from 16 bits
//! in front of each reader), so that an artifact, its memory, and what a product reads are half as large.
//!
//! Nothing but the values decides what is narrowed: where a pass computed others of a model's weights (Winograd's
//! filters, those with a normalization in them), they are no numbers of 16 bits any more and stay in `f32`.
//!
//! Where few rows share a weight, a product takes the time in which memory brings it, and widening is hidden there. Where many
//! rows do, it would come on top: those weights stay in `f32`.

use crate::recurrent_steps::change_plain_steps;
use crate::{PassError, Rewriter, fold_constants};
use hone_graph::{Node, ValueId};
use hone_machine::Rates;
use hone_ops::{Cast, DotProducts, Graph, MatMul, Op, PackedConvolution, PackedMatMul, node_flops};
use hone_types::{DataType, Element, Id, Tensor, TensorType};
use std::collections::HashMap;

/// What the target says of narrow weights.
#[derive(Clone, Copy, Debug)]
pub struct NarrowWeightOptions<'a> {
    /// Types of 16 bits that kernels widen quickly: the first one that can hold some weights is taken.
    pub types: &'a [DataType],
    /// Rates by which it is decided whether widening is hidden behind memory.
    pub rates: Rates,
    /// Bytes that stay in the second-level cache: weights of a whole graph that are no more stay in `f32`, and so do those of
    /// a step that is repeated.
    pub cache: usize,
}

/// Bytes of a constant from which half of it is worth a conversion: a page.
const MIN_BYTES: usize = 4 << 10;

/// Rows that share a weight after it was widened: a tile of products has that many at least where there are as many.
const TILE_ROWS: usize = 4;

/// What widening a vector costs, in operations for each element: two instructions, each in the place of a multiply-add,
/// which is two operations. Assumed; with it 14 rows are the most on Zen 4, and there a product of 12 rows, one of 2048 x 2048 and
/// `f16`, was measured at 0.98 of the time with weights of `f32`, and one of 1024 x 1024 in the third-level cache at 1.00.
const WIDENING_OPERATIONS: usize = 4;

/// Stores the weights of products as 16-bit floats where they are such numbers and memory bounds the products.
pub fn narrow_weights(graph: &Graph, options: NarrowWeightOptions<'_>) -> Result<Graph, PassError> {
    if options.types.is_empty() {
        return Ok(graph.clone());
    }
    let steps = change_plain_steps(graph, &|step| narrow_step(step, options))?;
    Ok(narrow_products(&steps, options)?.unwrap_or(steps))
}

/// The step of a recurrence; one whose weights are integers already stays as it is.
fn narrow_step(step: &Graph, options: NarrowWeightOptions<'_>) -> Result<Option<Graph>, PassError> {
    let is_cast = |node: &Node<Op>| node.operation.downcast::<Cast>().is_some();
    match step.nodes().iter().any(|(_, node)| is_cast(node)) {
        true => Ok(None),
        false => narrow_products(&fold_constants(step)?, options),
    }
}

/// A graph whose products read narrow weights; `None` where none do.
fn narrow_products(
    graph: &Graph,
    options: NarrowWeightOptions<'_>,
) -> Result<Option<Graph>, PassError> {
    let narrow = narrow_constants(graph, options);
    if narrow.is_empty() {
        return Ok(None);
    }
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        // A constant is widened in front of the first node that reads it.
        for input in node.inputs.iter().flatten() {
            if let Some(tensor) = narrow.get(input)
                && !rewriter.is_known(*input)
            {
                let stored = rewriter.constant(&graph.values()[*input].name, tensor.clone());
                let cast = Cast { to: graph.tensor_type(*input).dtype };
                let converted = rewriter.add_simple(&node.name, cast, &[stored])?;
                rewriter.replace(*input, converted);
            }
        }
        rewriter.copy(node)?;
    }
    Ok(Some(rewriter.finish()))
}

/// The constants that are stored narrow, and what is stored.
fn narrow_constants(graph: &Graph, options: NarrowWeightOptions<'_>) -> HashMap<ValueId, Tensor> {
    let readers = graph.consumers();
    let weights = || {
        graph.values().ids().filter_map(|value| Some((value, graph.constant(value)?))).filter(
            |(value, tensor)| tensor.dtype() == DataType::F32 && !readers[value.index()].is_empty(),
        )
    };
    let all: usize = weights().map(|(_, tensor)| tensor.tensor_type().bytes()).sum();
    if all <= options.cache {
        return HashMap::new();
    }
    let is_output = |value: ValueId| graph.outputs().iter().any(|port| port.value == value);
    let hides = |value: ValueId, tensor: &Tensor| {
        readers[value.index()].iter().all(|reader| {
            let node = &graph.nodes()[*reader];
            multiplies(node, value)
                && is_hidden(uses(graph, node, tensor.tensor_type().elements()), options.rates)
        })
    };
    weights()
        .filter(|(value, tensor)| {
            tensor.tensor_type().bytes() >= MIN_BYTES && hides(*value, tensor) && !is_output(*value)
        })
        .filter_map(|(value, tensor)| {
            let narrow = options.types.iter().find_map(|dtype| in_16_bits(tensor, *dtype))?;
            Some((value, narrow))
        })
        .collect()
}

/// Whether a node multiplies by the elements of a value in whole vectors. Elements that are broadcast would be widened one by one.
fn multiplies(node: &Node<Op>, value: ValueId) -> bool {
    let operation = &node.operation;
    let by_vectors = match operation.downcast::<DotProducts>().is_some() {
        true => &[0, 1][..],
        false => &[1],
    };
    let is_product = operation.downcast::<MatMul>().is_some()
        || operation.downcast::<PackedMatMul>().is_some()
        || operation.downcast::<DotProducts>().is_some()
        || operation.downcast::<PackedConvolution>().is_some();
    let mut positions = (0..).zip(&node.inputs).filter(|(_, input)| **input == Some(value));
    is_product && positions.all(|(position, _)| by_vectors.contains(&position))
}

/// How many products each of a node's weights is in.
fn uses(graph: &Graph, node: &Node<Op>, weights: usize) -> usize {
    usize::try_from(node_flops(graph, node) / 2).unwrap_or(usize::MAX) / weights.max(1)
}

/// Whether multiplying and widening a weight takes no longer than it takes in `f32` to come from memory.
fn is_hidden(uses: usize, rates: Rates) -> bool {
    let widening = uses.div_ceil(TILE_ROWS).saturating_mul(WIDENING_OPERATIONS);
    let computing = uses.saturating_mul(2).saturating_add(widening) as f64 / rates.flops_per_ns;
    computing <= size_of::<f32>() as f64 / rates.memory_bytes_per_ns
}

/// A tensor of `f32` in a floating-point type of 16 bits; `None` where that does not hold every element, bit by bit.
fn in_16_bits(tensor: &Tensor, dtype: DataType) -> Option<Tensor> {
    let narrow: fn(f32) -> (u16, f32) = match dtype {
        DataType::F16 => |value| {
            let narrow = half::f16::from_f32(value);
            (narrow.to_bits(), narrow.to_f32())
        },
        DataType::BF16 => |value| {
            let narrow = half::bf16::from_f32(value);
            (narrow.to_bits(), narrow.to_f32())
        },
        _ => return None,
    };
    let mut bytes = Vec::new();
    for element in tensor.bytes().chunks_exact(size_of::<f32>()) {
        let element = f32::take(element);
        let (bits, converted) = narrow(element);
        if converted.to_bits() != element.to_bits() {
            return None;
        }
        // Most tensors of other numbers end at their first element.
        if bytes.is_empty() {
            bytes.reserve_exact(tensor.tensor_type().elements() * dtype.bytes());
        }
        bytes.extend(bits.to_le_bytes());
    }
    Tensor::from_bytes(TensorType::new(dtype, tensor.shape()), bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_rows_for_which_widening_is_hidden_follow_from_the_rates() {
        let rates = |flops_per_ns| Rates {
            flops_per_ns,
            memory_bytes_per_ns: 10.0,
            cache_bytes_per_ns: 80.0,
        };
        let most = |flops_per_ns| {
            (1..1000).take_while(|uses| is_hidden(*uses, rates(flops_per_ns))).count()
        };
        assert_eq!([56.0, 112.0, 224.0].map(most), [7, 14, 28]);
    }

    #[test]
    fn what_is_stored_in_16_bits_is_the_same_in_32() {
        let kept = |values: &[f32], dtype| {
            let tensor = Tensor::from_elements([values.len()], values).unwrap();
            in_16_bits(&tensor, dtype).map(|narrow| {
                assert_eq!(narrow.dtype(), dtype);
                let converted: Vec<f32> =
                    narrow.to_f64().into_iter().map(|value| value as f32).collect();
                let bits = |values: &[f32]| -> Vec<u32> {
                    values.iter().map(|value| value.to_bits()).collect()
                };
                assert_eq!(bits(&converted), bits(values));
            })
        };
        let (least, most) = (2f32.powi(-24), 65504.0);
        let halves = [1.0, -0.0, 0.333_251_95, least, -3.0 * least, most, f32::NEG_INFINITY];
        assert!(kept(&halves, DataType::F16).is_some());
        assert!(kept(&halves, DataType::BF16).is_none());
        assert!(kept(&[1.0, -1e30, 3.39e38], DataType::BF16).is_none());
        assert!(kept(&[2f32.powi(100), -129.0, 0.0], DataType::BF16).is_some());
        assert!(kept(&[2f32.powi(100)], DataType::F16).is_none());
        assert!(kept(&[0.5, 0.5 * least], DataType::F16).is_none());
        assert!(kept(&[1.0 + 2f32.powi(-11)], DataType::F16).is_none());
    }
}
