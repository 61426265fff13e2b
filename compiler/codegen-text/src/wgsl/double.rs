//! What can be done with doubles by their bits: there is no arithmetic.

use hone_tensor::{BinaryOp, UnaryOp};

/// An operation on one value.
pub(super) fn unary(op: UnaryOp, operand: &str) -> Option<String> {
    Some(match op {
        UnaryOp::Negate => format!("({operand} ^ vec2<u32>(0u, 0x80000000u))"),
        UnaryOp::Abs => format!("({operand} & vec2<u32>(0xffffffffu, 0x7fffffffu))"),
        UnaryOp::IsNan => format!("hone_is_nan_f64({operand})"),
        UnaryOp::IsInfinite => format!("hone_is_infinite_f64({operand})"),
        _ => return None,
    })
}

/// An operation on two values.
pub(super) fn binary(op: BinaryOp, (left, right): (&str, &str)) -> Option<String> {
    let name = match op {
        BinaryOp::Equal => "equal",
        BinaryOp::Less => "less",
        BinaryOp::LessEqual => "less_equal",
        BinaryOp::Minimum => "minimum",
        BinaryOp::Maximum => "maximum",
        _ => return None,
    };
    Some(format!("hone_{name}_f64({left}, {right})"))
}
