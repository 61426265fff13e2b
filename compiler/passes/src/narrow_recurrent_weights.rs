//! Weights that every step of a recurrence reads, stored as integers where they are multiples of a scale for each
//! column, as a quantizer left them: `x (q s) = (x q) s`. Nothing is rounded: the integers times their scales equal the
//! weights.
//!
//! A step takes the time in which its weights come, once for each tile of rows, and bytes are a quarter of those of `f32`.
//! They must be converted each time: that costs more than it saves where the weights stay in the second-level cache as
//! they are (on a core with 2 MiB a layer of 256 units takes 4 % longer; one of 512 takes a quarter of the time for one
//! row, half for 8, two thirds for 64).

use crate::recurrent_steps::change_steps;
use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_ops::{Binary, BinaryFunction, Cast, Graph, MatMul, Op, OpError};
use hone_types::{DataType, Tensor, TensorError};

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
        let [integers, scales] = multiples.tensors(to).map_err(|error| PassError::Constant {
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

/// A matrix `[K, N]` as integers times a scale for each column.
struct Multiples {
    rows: usize,
    /// `[K, N]`
    integers: Vec<f64>,
    /// `[N]`
    scales: Vec<f64>,
}

impl Multiples {
    /// `None` where a column is not a scale times integers of at most [`LARGEST`].
    fn of(matrix: &Tensor) -> Option<Self> {
        let [rows, columns] = matrix.shape()[..] else { return None };
        let rounding = Rounding::of(matrix.dtype())?;
        let values = matrix.to_f64();
        let mut integers = vec![0.0; values.len()];
        let mut scales = Vec::with_capacity(columns);
        for column in 0..columns {
            let elements = || values.iter().skip(column).step_by(columns).copied();
            let scale = scale_of(elements, &rounding)?;
            for (integer, value) in
                integers.iter_mut().skip(column).step_by(columns).zip(elements())
            {
                *integer = (value / scale).round();
            }
            scales.push(scale);
        }
        Some(Self { rows, integers, scales })
    }

    /// The integers, of the narrowest type for them, and the scales.
    fn tensors(&self, working: DataType) -> Result<[Tensor; 2], TensorError> {
        let columns = self.scales.len();
        let is_byte = |value: &f64| (f64::from(i8::MIN)..=f64::from(i8::MAX)).contains(value);
        let dtype = if self.integers.iter().all(is_byte) { DataType::I8 } else { DataType::I16 };
        Ok([
            Tensor::from_f64(dtype, [self.rows, columns], &self.integers)?,
            Tensor::from_f64(working, [columns], &self.scales)?,
        ])
    }
}

/// Largest magnitude of the integers: that of a byte without a sign less a zero point.
const LARGEST: f64 = 255.0;

/// How the numbers of a type are rounded.
struct Rounding {
    round: fn(f64) -> f64,
    /// Distance of the numbers next to 1.
    epsilon: f64,
}

impl Rounding {
    fn of(dtype: DataType) -> Option<Self> {
        match dtype {
            DataType::F32 => Some(Self {
                round: |value| f64::from(value as f32),
                epsilon: f64::from(f32::EPSILON),
            }),
            DataType::F64 => Some(Self { round: |value| value, epsilon: f64::EPSILON }),
            _ => None,
        }
    }
}

/// The scale of which every element of a column is a multiple, exactly; `None` where there is none.
fn scale_of<I: Iterator<Item = f64>>(elements: impl Fn() -> I, rounding: &Rounding) -> Option<f64> {
    if !elements().all(f64::is_finite) {
        return None;
    }
    let magnitudes = || elements().map(f64::abs).filter(|value| *value != 0.0);
    let largest = magnitudes().fold(0.0, f64::max);
    let smallest = magnitudes().fold(f64::INFINITY, f64::min);
    if largest == 0.0 {
        return Some(1.0);
    }
    // The smallest element is some integer times the scale; divided by it, it is the scale but for the last bit.
    let integers = 1..=(LARGEST * smallest / largest).floor() as u32;
    let candidates = integers.flat_map(|integer| {
        let near = smallest / f64::from(integer);
        let last_bit = near * rounding.epsilon;
        [near, near - last_bit, near + last_bit].map(rounding.round)
    });
    let is_multiple =
        |value: f64, scale: f64| (rounding.round)((value / scale).round() * scale) == value;
    candidates
        .into_iter()
        .filter(|scale| *scale > 0.0)
        .find(|scale| elements().all(|value| is_multiple(value, *scale)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The scales and integers of one column of `f32`, where it is of multiples.
    fn column(values: &[f32]) -> Option<(f64, Vec<f64>)> {
        let matrix = Tensor::from_elements([values.len(), 1], values).unwrap();
        Multiples::of(&matrix).map(|multiples| (multiples.scales[0], multiples.integers))
    }

    #[test]
    fn quantized_columns_are_multiples_bit_by_bit() {
        for scale in [0.1f32, 0.003_921_569, 1.7e-5] {
            // Their smallest magnitude is one, three or seven times the scale.
            for integers in [&[-128i16, 1, 90, 0][..], &[127, -3, 88], &[-7, 250, 33]] {
                let values: Vec<f32> =
                    integers.iter().map(|integer| f32::from(*integer) * scale).collect();
                let (found, multiples) = column(&values).unwrap();
                let again: Vec<f32> =
                    multiples.iter().map(|integer| *integer as f32 * found as f32).collect();
                assert_eq!(again, values);
            }
        }
        assert_eq!(column(&[0.0, 0.0]), Some((1.0, vec![0.0, 0.0])));
    }

    #[test]
    fn other_columns_are_not() {
        assert_eq!(column(&[1.0, 256.0]), None);
        assert_eq!(column(&[1.0, 3.3, 0.71]), None);
        assert_eq!(column(&[1.0, f32::INFINITY]), None);
        assert_eq!(column(&[1.0, f32::NAN]), None);
        assert_eq!(column(&[0.0, f32::NAN]), None);
    }
}
