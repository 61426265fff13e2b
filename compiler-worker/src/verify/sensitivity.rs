//! How far the operands' own last bits move a kernel's results.
//!
//! A sum whose terms cancel errs relative to its terms, not to itself: the difference of two images, a filter
//! without a mean, the last transformation of Winograd's convolution. A kernel is right where what it gives is
//! the exact answer for operands that differ in their last bits (backward stability: Higham, *Accuracy and
//! Stability of Numerical Algorithms*, chapter 1). So the kernel's nodes are computed again by the reference on
//! operands that are moved by a few units in the last place, each in a direction of its own.

use hone_driver::{DataType, Graph, NodeId, Tensor, ValueId};

use super::decisions::recompute;
use super::tolerance::scale;
use crate::random::Random;

/// By how much an operand is moved, relative to itself, in units in the last place of its type.
const UNITS: f64 = 4.0;
/// The same of 16-bit types. A kernel takes them as they are and sums in `f32`, so only what it rounds to them on the
/// way may differ from the reference; more would hide an eighth of a sum.
const UNITS_OF_16_BITS: f64 = 1.0;

/// How many times what the operands' last bits move results by a kernel's rounding may: partial sums are
/// rounded as often as operands, and the largest of many is further out than the one that was drawn.
const FACTOR: f64 = 4.0;

/// What the results of `nodes`, `want`, may be off by because their terms cancel, in the output's unit; 0 where
/// they cannot be computed again.
pub fn sensitivity(
    graph: &Graph,
    nodes: &[NodeId],
    output: ValueId,
    want: &[f64],
    lookup: &dyn Fn(ValueId) -> Option<Tensor>,
) -> f64 {
    let moved = |value: ValueId| {
        let tensor = lookup(value)?;
        // Seeded by the value, so that all readers see the same operand.
        let name = graph.values()[value].name.bytes();
        let seed = name.fold(1u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        moved(&tensor, &mut Random::new(seed)).or(Some(tensor))
    };
    let Some(other) = recompute(graph, nodes, output, &moved, &mut |_, _| Some(())) else {
        return 0.0;
    };
    let changes: Vec<f64> =
        other.to_f64().iter().zip(want).map(|(other, want)| (other - want).abs()).collect();
    FACTOR * scale(&changes)
}

/// A tensor of real numbers with every element a few units in the last place larger or smaller.
fn moved(tensor: &Tensor, random: &mut Random) -> Option<Tensor> {
    let (units, place) = match tensor.dtype() {
        DataType::F32 => (UNITS, 2f64.powi(-23)),
        DataType::F64 => (UNITS, 2f64.powi(-52)),
        DataType::F16 => (UNITS_OF_16_BITS, 2f64.powi(-10)),
        DataType::BF16 => (UNITS_OF_16_BITS, 2f64.powi(-7)),
        _ => return None,
    };
    let turn = |value: f64| {
        let sign = if random.bits() & 1 == 0 { 1.0 } else { -1.0 };
        value * (1.0 + sign * units * place)
    };
    let values: Vec<f64> = tensor.to_f64().into_iter().map(turn).collect();
    Tensor::from_f64(tensor.dtype(), tensor.shape(), &values).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_driver::TensorType;
    use hone_driver::ops::{Binary, BinaryFunction};

    fn of(function: BinaryFunction, x: [f32; 3], y: [f32; 3]) -> f64 {
        let mut graph = Graph::new();
        let left = graph.add_input("x", TensorType::new(DataType::F32, [3]));
        let right = graph.add_input("y", TensorType::new(DataType::F32, [3]));
        let op = Binary::new(function).into();
        let output = graph.add_node("op", op, &[Some(left), Some(right)]).unwrap()[0];
        let nodes: Vec<NodeId> = graph.nodes().ids().collect();
        let lookup = |value: ValueId| {
            let elements = if value == left { x } else { y };
            Tensor::from_elements([3], &elements).ok()
        };
        let want = recompute(&graph, &nodes, output, &lookup, &mut |_, _| Some(())).unwrap();
        sensitivity(&graph, &nodes, output, &want.to_f64(), &lookup)
    }

    #[test]
    fn terms_that_cancel_explain_more_than_those_that_do_not() {
        let (x, y) = ([1000.5f32, 2000.25, 3000.0], [1000.0f32, 2000.0, 2999.0]);
        let cancelling = of(BinaryFunction::Subtract, x, y);
        assert!(cancelling > 1e-4 && cancelling < 1e-1, "{cancelling}");
        let plain = of(BinaryFunction::Add, [1.0, 2.0, 3.0], [0.5, 0.25, 0.125]);
        assert!(plain > 0.0 && plain < 1e-5, "{plain}");
    }
}
