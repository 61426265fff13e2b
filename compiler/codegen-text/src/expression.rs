//! Expressions to text.

use crate::dialect::Element;
use crate::{Dialect, EmitError};
use hone_tensor::{BinaryOp, BufferId, Domain, Expr, Program};
use hone_types::DataType;

/// Writes the expressions of one block, which speak of loop variables only.
pub(crate) struct Writer<'a> {
    pub(crate) program: &'a Program,
    pub(crate) dialect: &'a dyn Dialect,
    pub(crate) domain: &'a Domain,
    /// The block's name, for messages.
    pub(crate) block: &'a str,
}

impl Writer<'_> {
    pub(crate) fn expression(&self, expr: &Expr) -> Result<String, EmitError> {
        let dtype = expr.dtype(self.program);
        Ok(match expr {
            Expr::Integer(value) => self.dialect.integer(*value),
            Expr::Constant(value, dtype) => self
                .dialect
                .constant(*value, *dtype)
                .ok_or_else(|| self.missing("a constant", *dtype))?,
            Expr::Var(var) => var.to_string(),
            Expr::Load(buffer, indices) => {
                let index = self.index(*buffer, indices)?;
                self.dialect.load(self.element(*buffer, &buffer.to_string(), &index))
            }
            Expr::Unary(op, operand) => {
                let dtype = operand.dtype(self.program);
                let operand = self.expression(operand)?;
                let text = self.dialect.unary(*op, dtype, &operand);
                text.ok_or_else(|| self.missing(&format!("{op:?}"), dtype))?
            }
            Expr::Binary(op, left, right) => {
                let dtype = left.dtype(self.program);
                let natural = self.is_natural(*op, left, right);
                let (left, right) = (self.expression(left)?, self.expression(right)?);
                let text = self.dialect.binary(*op, dtype, (&left, &right), natural);
                text.ok_or_else(|| self.missing(&format!("{op:?}"), dtype))?
            }
            Expr::Select(condition, then, otherwise) => self.dialect.select(
                &self.expression(condition)?,
                &self.expression(then)?,
                &self.expression(otherwise)?,
            ),
            Expr::Cast(_, operand) => {
                let from = operand.dtype(self.program);
                let operand = self.expression(operand)?;
                let text = self.dialect.cast(from, dtype, &operand);
                text.ok_or_else(|| self.missing(&format!("a cast to {dtype}"), from))?
            }
        })
    }

    fn missing(&self, operation: &str, dtype: DataType) -> EmitError {
        let operation = operation.to_string();
        EmitError::Operation {
            block: self.block.to_string(),
            operation,
            dtype,
            dialect: self.dialect.name(),
        }
    }

    /// Whether an index is divided that is not negative, by a positive one: then rounding down is cutting.
    fn is_natural(&self, op: BinaryOp, left: &Expr, right: &Expr) -> bool {
        if matches!(op, BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply) {
            // What has a range does not leave 64 bits.
            let whole = Expr::Binary(op, Box::new(left.clone()), Box::new(right.clone()));
            return self.domain.bounds(&whole).is_some();
        }
        let divides = matches!(op, BinaryOp::FloorDivide | BinaryOp::Modulo);
        let positive = right.as_integer().is_some_and(|divisor| divisor > 0);
        divides && positive && self.domain.bounds(left).is_some_and(|range| range.min >= 0)
    }

    /// The number of an element in its row-major buffer.
    pub(crate) fn index(&self, buffer: BufferId, indices: &[Expr]) -> Result<String, EmitError> {
        let shape = &self.program.buffers[buffer].shape;
        let mut index = Expr::Integer(0);
        for (axis_index, extent) in indices.iter().zip(shape) {
            index = index * *extent + axis_index.clone();
        }
        self.expression(&self.domain.simplify(&index))
    }

    pub(crate) fn element<'b>(
        &self,
        buffer: BufferId,
        name: &'b str,
        index: &'b str,
    ) -> Element<'b> {
        let entry = &self.program.buffers[buffer];
        Element { buffer: name, dtype: entry.dtype, scope: entry.scope, index }
    }
}
