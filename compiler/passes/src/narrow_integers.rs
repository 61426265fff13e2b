//! Bytes minus their zero point as integers of 16 bits, for machines whose instructions sum pairs of products of such:
//! `x - z` is from -255 to 255. The narrow form is what is stored, computed once by what makes the bytes; everything
//! that reads the difference reads it from there.

use crate::integer_convolution::filter_offsets;
use crate::integer_products::{
    BYTES, Bytes, NarrowFactor, column_offsets, extended_from, minus_zero_point,
};
use crate::quantized::sums_channels;
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Cast, Convolution, Graph, MatMul, Op, products_of};
use hone_types::DataType;
use std::collections::BTreeSet;

/// Rows of a product from which the left operand is stored in 16 bits, although its bytes could be multiplied. Fewer share
/// too little of what is read of the weights, which take twice the memory of bytes: one row by 1,024 x 1,024 takes 23 us
/// in bytes on Zen 3.
const MIN_ROWS: usize = 8;

/// Narrows what convolutions and products of matrices by constant bytes minus a zero point read.
pub fn narrow_integers(graph: &Graph) -> Result<Graph, PassError> {
    let factors = graph.nodes().iter().filter_map(|(_, node)| factor(graph, node));
    let factors: BTreeSet<ValueId> = factors.collect();
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        rewriter.copy(node)?;
        for output in node.outputs.iter().filter(|output| factors.contains(output)) {
            let whole = rewriter.value(*output);
            let narrow = Cast { to: DataType::I16 };
            let narrow = rewriter.add_simple(&node.name, narrow, &[whole])?;
            let extend = Cast { to: DataType::I32 };
            let extended = rewriter.add_simple(&node.name, extend, &[narrow])?;
            rewriter.replace(*output, extended);
        }
    }
    Ok(rewriter.finish())
}

/// The left operand of a node that multiplies narrow integers by constant ones.
fn factor(graph: &Graph, node: &Node<Op>) -> Option<ValueId> {
    let (left, right) = (node.inputs.first().copied()??, node.inputs.get(1).copied()??);
    let weights = graph.constant(right).filter(|weights| weights.dtype() == DataType::I32)?;
    let fits = match (node.operation.downcast::<Convolution>(), weights.shape()) {
        (Some(convolution), _) => {
            sums_channels(weights.shape(), convolution.groups, Bytes::Unsigned)
                && node.inputs.get(2).is_none_or(Option::is_none)
                && filter_offsets(weights, DataType::I16).is_some()
        }
        (None, [depth, columns]) => {
            let rows = graph.tensor_type(node.outputs[0]).elements() / (*columns).max(1);
            let of_bytes = NarrowFactor::of(graph, left, Bytes::Unsigned)
                .filter(|factor| column_offsets(weights, factor.weights).is_some())
                .and_then(|factor| products_of(factor.weights))
                .is_some_and(|whole| depth.is_multiple_of(whole));
            node.operation.downcast::<MatMul>().is_some()
                && (rows >= MIN_ROWS || !of_bytes)
                && depth.is_multiple_of(products_of(DataType::I16)?)
                && weights.to_i64().iter().all(|weight| weight.abs() <= BYTES)
        }
        _ => false,
    };
    (fits && are_narrow(graph, left)).then_some(left)
}

/// Whether a value is bytes in 32 bits, perhaps minus a zero point that is a byte itself.
pub(crate) fn are_narrow(graph: &Graph, value: ValueId) -> bool {
    let (extended, zero) = minus_zero_point(graph, value);
    let is_byte = |value: ValueId| {
        [DataType::U8, DataType::I8]
            .into_iter()
            .any(|byte| extended_from(graph, value, byte).is_some())
    };
    // Constants are bytes that were extended, too, or else they are not taken.
    let fits = |integer: &i64| (i64::from(i8::MIN)..=i64::from(u8::MAX)).contains(integer);
    let is_constant =
        |zero: ValueId| graph.constant(zero).is_some_and(|zero| zero.to_i64().iter().all(fits));
    is_byte(extended) && zero.is_none_or(|zero| is_constant(zero) || is_byte(zero))
}
