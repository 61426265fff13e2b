//! Expressions to text.

use crate::dialect::Element;
use crate::values::{Table, referred};
use crate::{Dialect, EmitError};
use hone_tensor::{BinaryOp, BufferId, Domain, Expr, Launch, Program};
use hone_types::DataType;

/// Writes the expressions of one block, which speak of loop variables only.
///
/// Where a language counts indices in `i32`, an expression of `i64` that is known to fit is computed in `i32`, and
/// converted where its value meets others of 64 bits.
pub(crate) struct Writer<'a> {
    pub(crate) program: &'a Program,
    pub(crate) dialect: &'a dyn Dialect,
    pub(crate) launch: &'a Launch<'a>,
    /// The kernel's name.
    pub(crate) kernel: &'a str,
    pub(crate) domain: &'a Domain,
    /// What the statement computes; texts refer to it.
    pub(crate) values: &'a Table,
    /// The block's name, for messages.
    pub(crate) block: &'a str,
}

/// A text and the type in which it is computed.
type Typed = (String, DataType);

impl Writer<'_> {
    /// An expression's value, of its type.
    pub(crate) fn expression(&self, expr: &Expr) -> Result<String, EmitError> {
        let typed = self.typed(expr)?;
        self.converted(typed, expr.dtype(self.program))
    }

    /// An expression's value, of its type or, where that is `i64`, of the type of indices.
    fn typed(&self, expr: &Expr) -> Result<Typed, EmitError> {
        let dtype = expr.dtype(self.program);
        let index_type = self.dialect.index_type();
        Ok(match expr {
            Expr::Integer(value) => {
                let fits = index_type == DataType::I64 || i32::try_from(*value).is_ok();
                let dtype = if fits { index_type } else { DataType::I64 };
                (self.dialect.integer(*value, dtype), dtype)
            }
            Expr::Constant(value, dtype) => {
                let text = self.dialect.constant(*value, *dtype);
                (text.ok_or_else(|| self.missing("a constant", *dtype))?, *dtype)
            }
            Expr::Var(var) => (var.to_string(), index_type),
            Expr::Load(buffer, indices) => {
                let index = self.index(*buffer, indices)?;
                let scope = self.program.buffers[*buffer].scope;
                let name = self.dialect.variable(self.kernel, &buffer.to_string(), scope);
                let text = self.dialect.load(self.element(*buffer, &name, &index));
                (self.values.value(text, dtype, true), dtype)
            }
            Expr::Unary(op, operand) => {
                let operand_type = operand.dtype(self.program);
                let operand = self.expression(operand)?;
                let text = self.dialect.unary(*op, operand_type, &operand);
                let text = text.ok_or_else(|| self.missing(&format!("{op:?}"), operand_type))?;
                (self.referred(text, dtype), dtype)
            }
            Expr::Binary(op, left, right) => self.binary(expr, *op, left, right)?,
            Expr::Select(condition, then, otherwise) => {
                let condition = self.expression(condition)?;
                let (then, otherwise, dtype) = self.alike(then, otherwise)?;
                (self.choice((&condition, [&then, &otherwise]), dtype), dtype)
            }
            Expr::Cast(_, operand) => {
                let typed = self.typed(operand)?;
                // What has fewer bits than an index needs no 64.
                let to = if dtype == DataType::I64 && fits(typed.1, index_type) {
                    index_type
                } else {
                    dtype
                };
                (self.cast(typed, to)?, to)
            }
        })
    }

    fn binary(
        &self,
        whole: &Expr,
        op: BinaryOp,
        left: &Expr,
        right: &Expr,
    ) -> Result<Typed, EmitError> {
        let natural = self.is_natural(op, left, right);
        let declared = left.dtype(self.program);
        let (mut first, mut second, mut dtype) = self.alike(left, right)?;
        if dtype != declared && !self.stays_an_index(whole, op) {
            first = self.converted((first, dtype), declared)?;
            second = self.converted((second, dtype), declared)?;
            dtype = declared;
        }
        let text = self.dialect.binary(op, dtype, (&first, &second), natural);
        let text = text.ok_or_else(|| self.missing(&format!("{op:?}"), dtype))?;
        let dtype = if op.is_comparison() { DataType::Bool } else { dtype };
        Ok((self.referred(text, dtype), dtype))
    }

    /// Whether an operation on two values that fit the type of indices, which is `i32`, can be computed in it.
    fn stays_an_index(&self, whole: &Expr, op: BinaryOp) -> bool {
        match op {
            BinaryOp::Minimum | BinaryOp::Maximum => true,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => true,
            _ if op.is_comparison() => true,
            BinaryOp::Add
            | BinaryOp::Subtract
            | BinaryOp::Multiply
            | BinaryOp::FloorDivide
            | BinaryOp::Modulo => self.domain.bounds(whole).is_some_and(|range| {
                i32::try_from(range.min).is_ok() && i32::try_from(range.max).is_ok()
            }),
            _ => false,
        }
    }

    /// Two expressions of one type, computed in one type.
    fn alike(&self, left: &Expr, right: &Expr) -> Result<(String, String, DataType), EmitError> {
        let declared = left.dtype(self.program);
        let (left, right) = (self.typed(left)?, self.typed(right)?);
        if left.1 == right.1 {
            return Ok((left.0, right.0, left.1));
        }
        Ok((self.converted(left, declared)?, self.converted(right, declared)?, declared))
    }

    /// What is computed in one type, in another; the types differ only where one is that of indices.
    fn converted(&self, typed: Typed, to: DataType) -> Result<String, EmitError> {
        if typed.1 == to { Ok(typed.0) } else { self.cast(typed, to) }
    }

    fn cast(&self, (text, from): Typed, to: DataType) -> Result<String, EmitError> {
        let cast = self.dialect.cast(from, to, &text);
        let cast = cast.ok_or_else(|| self.missing(&format!("a cast to {to}"), from))?;
        Ok(self.referred(cast, to))
    }

    fn referred(&self, text: String, dtype: DataType) -> String {
        referred(self.values, self.dialect, text, dtype)
    }

    fn choice(&self, (condition, [then, otherwise]): (&str, [&str; 2]), dtype: DataType) -> String {
        let text = self.dialect.select(condition, then, otherwise);
        match self.dialect.is_constant(&text) {
            true => text,
            false => {
                let lazy = self.dialect.chooses_lazily();
                self.values.choice(text, dtype, (condition, [then, otherwise]), lazy)
            }
        }
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
        self.index_value(&self.domain.simplify(&index))
    }

    /// The value of an index that is known to fit the type of indices. What stays in its low bits alone, whatever
    /// its higher ones are, is computed in that type.
    pub(crate) fn index_value(&self, expr: &Expr) -> Result<String, EmitError> {
        let index_type = self.dialect.index_type();
        match expr {
            _ if index_type == DataType::I64 => self.expression(expr),
            Expr::Binary(
                op @ (BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply),
                left,
                right,
            ) => {
                let operands = (&*self.index_value(left)?, &*self.index_value(right)?);
                let text = self.dialect.binary(*op, index_type, operands, false);
                let text = text.ok_or_else(|| self.missing(&format!("{op:?}"), index_type))?;
                Ok(self.referred(text, index_type))
            }
            Expr::Select(condition, then, otherwise) => {
                let sides = [&*self.index_value(then)?, &*self.index_value(otherwise)?];
                Ok(self.choice((&self.expression(condition)?, sides), index_type))
            }
            _ => self.converted(self.typed(expr)?, index_type),
        }
    }

    pub(crate) fn element<'b>(
        &self,
        buffer: BufferId,
        name: &'b str,
        index: &'b str,
    ) -> Element<'b> {
        let entry = &self.program.buffers[buffer];
        let written = self.launch.writes(self.program, buffer);
        Element { buffer: name, dtype: entry.dtype, scope: entry.scope, written, index }
    }
}

/// Whether every value of a type is one of the type of indices, where that is not `i64`.
fn fits(dtype: DataType, index_type: DataType) -> bool {
    use DataType::{Bool, I8, I16, I32, U8, U16};
    index_type == I32 && matches!(dtype, Bool | I8 | I16 | I32 | U8 | U16)
}
