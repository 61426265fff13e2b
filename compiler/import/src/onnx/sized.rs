//! Operands of which a run decides how much is there.

use super::builder::{Builder, Operand};
use crate::NodeError;
use hone_ops::BinaryFunction;
use hone_types::{Tensor, TensorType};

impl Builder {
    /// Says that of an operand's axis only as many are there as `actual` says when the model runs.
    pub fn set_extent(&mut self, operand: Operand, axis: usize, actual: Operand) {
        self.extents.insert(operand, (axis, actual));
    }

    /// An operand of which only `count` are there along an axis, its elements the first ones: cut now where it is a
    /// constant, else when the model runs.
    ///
    /// # Errors
    /// A count that does not fit.
    pub fn cut(
        &mut self,
        operand: Operand,
        axis: usize,
        count: Operand,
    ) -> Result<Operand, NodeError> {
        let (Some(tensor), Some(known)) = (self.tensor(operand), self.tensor(count)) else {
            self.set_extent(operand, axis, count);
            return Ok(operand);
        };
        let mut shape = tensor.shape().to_vec();
        let known = known.to_i64().first().and_then(|known| usize::try_from(*known).ok());
        if let (Some(extent), Some(known)) = (shape.get_mut(axis), known) {
            *extent = known.min(*extent);
        }
        let actual = TensorType::new(tensor.dtype(), shape);
        let bytes = tensor.bytes()[..actual.bytes()].to_vec();
        let tensor = Tensor::from_bytes(actual, bytes)?;
        Ok(self.constant(tensor))
    }

    /// Notes what the model declares of the shape of an operand whose size is decided at run time.
    pub fn declare(&mut self, operand: Operand, shape: Vec<usize>) {
        if self.extents.contains_key(&operand) {
            self.declared.insert(operand, shape);
        }
    }

    /// Before `what` reads an operand of which only a part may be there: where the model declares that all of it is, a
    /// run is held to that.
    ///
    /// # Errors
    /// An operand of which nothing is declared.
    pub fn settle(&mut self, operand: Operand, what: &str) -> Result<(), NodeError> {
        let Some((axis, actual)) = self.extents.get(&operand).copied() else { return Ok(()) };
        let shape = self.shape(operand);
        // In a branch, the condition would be looked at in that branch alone.
        if self.declared.get(&operand) != Some(&shape) || self.own_value(operand).is_none() {
            return self.check_extent(operand, what);
        }
        let all = self.with_scalar(BinaryFunction::Equal, actual, shape[axis] as f64)?;
        self.require(all, format!("a result has not the shape {shape:?}, as the model declares"))?;
        self.extents.remove(&operand);
        Ok(())
    }

    /// Refuses an operand of which only a part is there; `what` reads it.
    pub fn check_extent(&self, operand: Operand, what: &str) -> Result<(), NodeError> {
        match self.extents.contains_key(&operand) {
            true => Err(NodeError::UndecidedSize { what: what.to_string() }),
            false => Ok(()),
        }
    }
}
