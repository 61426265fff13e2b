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

/// By how much an operand is moved, relative to itself, in units in the last place of the type that sums are in.
const UNITS: f64 = 4.0;
/// The same in units of a 16-bit type, of operands of that type. More would hide an eighth of a sum.
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
    // Operands of 16 bits cannot be moved by less than a unit of theirs, which is what a kernel errs by only where
    // the reference rounds to 16 bits on the way. Otherwise it sums what it is given in `f32`, and the change is
    // scaled to what units of `f32` would have caused.
    let scaled = match rounds_on_the_way(graph, nodes, output) {
        true => [(1.0, DataType::F16), (1.0, DataType::BF16)],
        false => [DataType::F16, DataType::BF16]
            .map(|dtype| (UNITS * place(DataType::F32) / (UNITS_OF_16_BITS * place(dtype)), dtype)),
    };
    let change = |is_moved: &dyn Fn(DataType) -> bool| {
        let operand = |value: ValueId| {
            let tensor = lookup(value)?;
            if !is_moved(tensor.dtype()) {
                return Some(tensor);
            }
            // Seeded by the value, so that all readers see the same operand.
            let name = graph.values()[value].name.bytes();
            let seed =
                name.fold(1u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
            moved(&tensor, &mut Random::new(seed)).or(Some(tensor))
        };
        let other = recompute(graph, nodes, output, &operand, &mut |_, _| Some(()));
        other.map_or(0.0, |other| {
            let pairs = other.to_f64().into_iter().zip(want);
            scale(&pairs.map(|(other, want)| (other - want).abs()).collect::<Vec<f64>>())
        })
    };
    let is_read = |dtype: DataType| {
        let read = nodes.iter().flat_map(|node| graph.nodes()[*node].inputs.iter().flatten());
        read.into_iter().any(|value| graph.tensor_type(*value).dtype == dtype)
    };
    let mut off = change(&|dtype| !is_of_16_bits(dtype));
    for (factor, dtype) in scaled {
        if is_read(dtype) {
            off += factor * change(&|moved| moved == dtype);
        }
    }
    FACTOR * off
}

/// Whether the reference rounds values to 16 bits from which `output` is computed, which a kernel may keep as they are.
fn rounds_on_the_way(graph: &Graph, nodes: &[NodeId], output: ValueId) -> bool {
    let mut stored = nodes.iter().flat_map(|node| &graph.nodes()[*node].outputs);
    stored.any(|value| *value != output && is_of_16_bits(graph.tensor_type(*value).dtype))
}

fn is_of_16_bits(dtype: DataType) -> bool {
    matches!(dtype, DataType::F16 | DataType::BF16)
}

/// Distance of neighbouring numbers, relative to the smaller ones between powers of two.
fn place(dtype: DataType) -> f64 {
    match dtype {
        DataType::F64 => 2f64.powi(-52),
        DataType::F16 => 2f64.powi(-10),
        DataType::BF16 => 2f64.powi(-7),
        _ => 2f64.powi(-23),
    }
}

/// A tensor of real numbers with every element a few units in the last place larger or smaller.
fn moved(tensor: &Tensor, random: &mut Random) -> Option<Tensor> {
    let units = match tensor.dtype() {
        DataType::F32 | DataType::F64 => UNITS,
        dtype if is_of_16_bits(dtype) => UNITS_OF_16_BITS,
        _ => return None,
    };
    let distance = units * place(tensor.dtype());
    let turn = |value: f64| {
        let sign = if random.bits() & 1 == 0 { 1.0 } else { -1.0 };
        value * (1.0 + sign * distance)
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

    /// The difference of two operands of `bf16`, and where `further` is set its double.
    fn of_bf16(further: bool) -> f64 {
        let mut graph = Graph::new();
        let operand = TensorType::new(DataType::BF16, [3]);
        let (left, right) =
            (graph.add_input("x", operand.clone()), graph.add_input("y", operand.clone()));
        let op = Binary::new(BinaryFunction::Subtract).into();
        let mut output = graph.add_node("sub", op, &[Some(left), Some(right)]).unwrap()[0];
        if further {
            let op = Binary::new(BinaryFunction::Add).into();
            output = graph.add_node("add", op, &[Some(output), Some(output)]).unwrap()[0];
        }
        let nodes: Vec<NodeId> = graph.nodes().ids().collect();
        let lookup = |value: ValueId| {
            let elements = if value == left { [96.0, 200.0, 31.0] } else { [95.0, 199.0, 30.0] };
            Tensor::from_f64(DataType::BF16, [3], &elements).ok()
        };
        let want = recompute(&graph, &nodes, output, &lookup, &mut |_, _| Some(())).unwrap();
        sensitivity(&graph, &nodes, output, &want.to_f64(), &lookup)
    }

    #[test]
    fn sixteen_bits_explain_more_only_where_the_reference_rounds_to_them_on_the_way() {
        let (one, two) = (of_bf16(false), of_bf16(true));
        assert!(one > 1e-5 && one < 2e-3, "{one}");
        assert!(two > 1.0, "{two}");
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
