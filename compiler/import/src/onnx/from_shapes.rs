//! Constants that follow from the shapes of inputs, as the positions of new tokens do from the length of the past.
//!
//! What is taken out of a table by them stays a node: its result alone would not say what it is at other sizes of an
//! input, while a table and the positions in it do. The pass that folds constants computes it where one size is compiled.

use super::builder::Operand;
use hone_ops::{Gather, Op, Slice};
use hone_types::TensorType;
use std::collections::HashSet;

/// Which operands follow from shapes.
#[derive(Debug, Default)]
pub(super) struct FromShapes {
    operands: HashSet<Operand>,
    /// Whether the node that is imported reads one.
    is_read: bool,
}

impl FromShapes {
    /// Goes over to a node with these inputs.
    pub fn begin(&mut self, inputs: &[Option<Operand>]) {
        self.is_read = inputs.iter().flatten().any(|input| self.operands.contains(input));
    }

    /// Takes down what a node gives that measures its input, or reads what follows from shapes.
    pub fn end(&mut self, inputs: &[Option<Operand>], measures: bool, outputs: &[Operand]) {
        self.begin(inputs);
        if measures || self.is_read {
            self.operands.extend(outputs);
        }
    }

    /// Whether an operation of constants takes elements of a table at what follows from shapes.
    pub fn keep(&self, operation: &Op, inputs: &[Option<&TensorType>]) -> bool {
        // The first rows of a table say what they are at every size by themselves.
        let is_moved = |slice: &Slice| slice.starts.iter().any(|start| *start > 0);
        let takes = operation.downcast::<Gather>().is_some()
            || operation.downcast::<Slice>().is_some_and(is_moved);
        let is_table = |table: &TensorType| table.dtype.is_float() && table.rank() > 1;
        self.is_read && takes && inputs.first().copied().flatten().is_some_and(is_table)
    }
}
