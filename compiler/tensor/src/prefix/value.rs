//! What expressions give behind the size.

use super::{Behind, Contents, Positions, at_least, element, position};
use crate::{BinaryOp, Block, BufferId, Expr, Program, UnaryOp, VarId, simplify};
use hone_types::{DataType, Id};

/// The value of an expression, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Anything.
    Unknown,
    /// A number, or a truth value as 0 or 1.
    Number(f64),
    /// The size.
    Size,
    /// A position: the value of this index.
    Position(Expr),
    /// Zero; or not a number, where the same expression is not a number at the first position either.
    Weight,
}

/// A block whose expressions are looked at.
pub(super) struct Site<'a> {
    pub(super) program: &'a Program,
    pub(super) block: &'a Block,
    pub(super) contents: &'a [Contents],
}

impl Site<'_> {
    pub(super) fn position(
        &self,
        buffer: BufferId,
        indices: &[Expr],
        positions: Positions,
    ) -> Option<Expr> {
        position(self.program, self.block, (buffer, indices), positions)
    }

    pub(super) fn contents(&self, buffer: BufferId) -> Option<&Contents> {
        self.contents.get(buffer.index())
    }

    /// What an expression gives where the index `behind` is the size or more; without one, everywhere.
    pub(super) fn value(&self, expr: &Expr, behind: Option<&Expr>) -> Value {
        match expr {
            Expr::Constant(number, _) => Value::Number(*number),
            Expr::Load(buffer, indices) => self.loaded(*buffer, indices, behind),
            Expr::Unary(UnaryOp::Not, operand) if self.is_bool(operand) => {
                match self.value(operand, behind) {
                    Value::Number(truth) => Value::Number(f64::from(truth == 0.0)),
                    _ => Value::Unknown,
                }
            }
            Expr::Binary(op, left, right) => {
                let both = self.is_bool(left) && self.is_bool(right);
                let (left, right) = (self.value(left, behind), self.value(right, behind));
                self.binary(*op, left, right, (behind, both))
            }
            Expr::Select(condition, then, otherwise) => {
                let (then, otherwise) =
                    (|| self.value(then, behind), || self.value(otherwise, behind));
                match self.value(condition, behind) {
                    Value::Number(0.0) => otherwise(),
                    Value::Number(_) => then(),
                    _ => {
                        let then = then();
                        if then == otherwise() { then } else { Value::Unknown }
                    }
                }
            }
            Expr::Cast(dtype, operand) => cast(*dtype, self.value(operand, behind)),
            _ => Value::Unknown,
        }
    }

    fn is_bool(&self, expr: &Expr) -> bool {
        expr.dtype(self.program) == DataType::Bool
    }

    fn binary(
        &self,
        op: BinaryOp,
        left: Value,
        right: Value,
        (behind, of_truths): (Option<&Expr>, bool),
    ) -> Value {
        use Value::{Number, Position, Size, Weight};
        let is_behind = |index: &Expr| behind.is_some_and(|own| at_least(self.block, index, own));
        match (op, left, right) {
            (BinaryOp::Less, Position(index), Size) if is_behind(&index) => Number(0.0),
            (BinaryOp::LessEqual, Size, Position(index)) if is_behind(&index) => Number(1.0),
            (BinaryOp::And, Number(0.0), _) | (BinaryOp::And, _, Number(0.0)) if of_truths => {
                Number(0.0)
            }
            (BinaryOp::And, Number(_), Number(_)) if of_truths => Number(1.0),
            (BinaryOp::Multiply, Weight, Number(factor))
            | (BinaryOp::Multiply, Number(factor), Weight)
                if factor.is_finite() =>
            {
                Weight
            }
            _ => Value::Unknown,
        }
    }

    fn loaded(&self, buffer: BufferId, indices: &[Expr], behind: Option<&Expr>) -> Value {
        let Some(contents) = self.contents(buffer) else { return Value::Unknown };
        if contents.is_size {
            return Value::Size;
        }
        let mut numbers = contents.numbers.iter();
        if let Some(index) = numbers.find_map(|own| self.position(buffer, indices, *own)) {
            return Value::Position(index);
        }
        let Some(behind) = behind else { return Value::Unknown };
        let found = contents.behind.iter().find_map(|(positions, own)| {
            let index = self.position(buffer, indices, *positions)?;
            match own {
                Behind::Number(number) => {
                    at_least(self.block, &index, behind).then_some(Value::Number(*number))
                }
                Behind::Weights => {
                    let Expr::Var(var) = behind else { return None };
                    let same = index == *behind && self.moves_by(buffer, indices, *var, *positions);
                    same.then_some(Value::Weight)
                }
            }
        });
        found.unwrap_or(Value::Unknown)
    }

    /// Whether an access at another value of `var` is one at another position, and at nothing else that differs.
    fn moves_by(
        &self,
        buffer: BufferId,
        indices: &[Expr],
        var: VarId,
        positions: Positions,
    ) -> bool {
        let place = || {
            let stride = i64::try_from(positions.stride).ok()?;
            let element = element(&self.program.buffers[buffer].shape, indices)?;
            let rest = element - Expr::Var(var) * stride;
            Some(simplify(&rest, &|own| super::range(self.block, own)))
        };
        place().is_some_and(|rest| !rest.mentions(var))
    }
}

/// Conversions that lose nothing: of the size and of positions, which fit 32 bits, to integers; of truth values, infinities
/// and zero to what has them.
fn cast(dtype: DataType, value: Value) -> Value {
    let holds_sizes = matches!(dtype, DataType::I32 | DataType::I64);
    match value {
        Value::Size | Value::Position(_) if holds_sizes => value,
        Value::Number(0.0) => value,
        Value::Number(1.0) if dtype != DataType::Bool => value,
        Value::Number(number) if number.is_infinite() && dtype.is_float() => value,
        Value::Weight if dtype.is_float() => value,
        _ => Value::Unknown,
    }
}
