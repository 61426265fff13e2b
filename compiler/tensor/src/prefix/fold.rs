//! Indices that are known numbers, such as that of the first token, in the form in which operators express them: cast,
//! counted from the end where negative, and kept inside of an axis.

use crate::{BinaryOp, Expr};
use hone_types::DataType;

/// The expression with numbers in place of what is computed of numbers alone.
pub(super) fn folded(expr: &Expr) -> Expr {
    match number(expr) {
        Some(number) => Expr::Integer(number),
        None => expr.map_operands(&mut folded),
    }
}

/// The value of an integer or truth value that follows from constants.
fn number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Integer(number) => Some(*number),
        Expr::Constant(number, dtype) => {
            let is_exact = number.fract() == 0.0 && number.abs() < f64::from(i32::MAX);
            (!dtype.is_float() && is_exact).then_some(*number as i64)
        }
        Expr::Cast(DataType::I64, operand) => number(operand),
        Expr::Binary(op, left, right) => {
            let (left, right) = (number(left)?, number(right)?);
            match op {
                BinaryOp::Add => left.checked_add(right),
                BinaryOp::Subtract => left.checked_sub(right),
                BinaryOp::Minimum => Some(left.min(right)),
                BinaryOp::Maximum => Some(left.max(right)),
                BinaryOp::Less => Some((left < right).into()),
                BinaryOp::LessEqual => Some((left <= right).into()),
                BinaryOp::Equal => Some((left == right).into()),
                _ => None,
            }
        }
        Expr::Select(condition, then, otherwise) => match number(condition)? {
            0 => number(otherwise),
            _ => number(then),
        },
        _ => None,
    }
}
