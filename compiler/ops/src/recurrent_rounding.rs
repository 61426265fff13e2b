//! Operands of recurrent layers as bytes, so that quantized weights multiply bytes: each row (the last axis: one sample at
//! one time) is rounded to multiples of its largest magnitude over 127. Zero stays zero.
//!
//! A row has a scale of its own, so that no sample's answer depends on others or on what is padded.

use crate::recurrent_nodes::Nodes;
use crate::{BinaryFunction as B, Cast, Reduce, ReduceFunction, UnaryFunction as U};
use hone_graph::{InferError, ValueId};
use hone_types::DataType;

/// What a row's largest magnitude is rounded to.
const LARGEST: f64 = 127.0;

/// The least magnitude that a row is divided by: rows of less are zeros. Its reciprocal times [`LARGEST`] is a finite `f32`.
const SMALLEST: f64 = 1.0 / (1u128 << 100) as f64;

/// A row that is rounded.
pub(crate) fn rounded_row(row: &[f64]) -> Vec<f64> {
    let largest = row.iter().fold(SMALLEST, |largest, value| largest.max(value.abs()));
    let (inverse, scale) = (LARGEST / largest, largest / LARGEST);
    row.iter().map(|value| (value * inverse).round_ties_even() * scale).collect()
}

impl Nodes<'_> {
    /// Rows that are rounded: signed bytes times a scale for each row.
    pub fn rounded_rows(&mut self, x: ValueId) -> Result<ValueId, InferError> {
        let last = self.graph.tensor_type(x).rank().saturating_sub(1);
        let magnitudes = self.unary(U::Abs, x)?;
        let function = ReduceFunction::Maximum;
        let reduce = Reduce { function, axes: vec![last], keep_axes: true };
        let largest = self.add(reduce, &[magnitudes])?;
        let smallest = self.number(SMALLEST)?;
        let largest = self.binary(B::Maximum, largest, smallest)?;
        let steps = self.number(LARGEST)?;
        let inverse = self.binary(B::Divide, steps, largest)?;
        let scale = self.binary(B::Divide, largest, steps)?;
        let multiples = self.binary(B::Multiply, x, inverse)?;
        let multiples = self.unary(U::Round, multiples)?;
        let bytes = self.add(Cast { to: DataType::I8 }, &[multiples])?;
        let integers = self.add(Cast { to: DataType::I32 }, &[bytes])?;
        let numbers = self.add(Cast { to: self.dtype }, &[integers])?;
        self.binary(B::Multiply, numbers, scale)
    }
}
