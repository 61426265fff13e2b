//! The word of a node: 64 bits that hold all that a step down a tree needs but the node's value.

use crate::onnx::builder::{Builder, Operand};
use crate::onnx::shorthands::Step;
use hone_ops::BinaryFunction as B;
use hone_types::DataType;

/// Bits of a node's word, from `first` on.
#[derive(Clone, Copy)]
pub(super) struct Field {
    first: u32,
    pub(super) bits: u32,
}

/// The number of the node that follows where the test holds; of a leaf the leaf itself.
pub(super) const NEXT: Field = Field { first: 0, bits: 32 };
/// What is added to it where the test fails: 1, and 0 of a leaf.
pub(super) const STEP: Field = Field { first: 32, bits: 1 };
/// Whether the test holds for a feature that is not a number.
pub(super) const MISSING: Field = Field { first: 33, bits: 1 };
/// The mode, as a place in the table of modes.
pub(super) const MODE: Field = Field { first: 34, bits: 3 };
/// The feature that is tested.
pub(super) const FEATURE: Field = Field { first: 37, bits: 27 };

impl Field {
    /// A value where the field lies.
    pub(super) fn put(self, value: usize) -> u64 {
        (value as u64) << self.first
    }

    /// The field of words, as `i64`.
    pub(super) fn of(self, b: &mut Builder, words: Operand) -> Step {
        let lowest = match self.first {
            0 => words,
            first => b.with_scalar(B::Divide, words, (1_u64 << first) as f64)?,
        };
        let field = match self.first + self.bits {
            64 => lowest,
            _ => b.with_scalar(B::BitAnd, lowest, ((1_u64 << self.bits) - 1) as f64)?,
        };
        b.cast(field, DataType::I64)
    }
}
