//! Operations on doubles, which are two words of 32 bits: arithmetic is that of IEEE 754, bit by bit.

use hone_tensor::{BinaryOp, UnaryOp};

/// An operation on one value.
pub(super) fn unary(op: UnaryOp, operand: &str) -> Option<String> {
    let name = match op {
        UnaryOp::Negate => return Some(format!("({operand} ^ vec2<u32>(0u, 0x80000000u))")),
        UnaryOp::Abs => return Some(format!("({operand} & vec2<u32>(0xffffffffu, 0x7fffffffu))")),
        UnaryOp::IsNan => "is_nan",
        UnaryOp::IsInfinite => "is_infinite",
        UnaryOp::Sqrt => "sqrt",
        UnaryOp::Floor => "floor",
        UnaryOp::Ceil => "ceil",
        UnaryOp::Round => "round",
        UnaryOp::Truncate => "truncate",
        _ => return None,
    };
    Some(format!("hone_{name}_f64({operand})"))
}

/// An operation on two values.
pub(super) fn binary(op: BinaryOp, (left, right): (&str, &str)) -> Option<String> {
    let name = match op {
        BinaryOp::Add => "add",
        BinaryOp::Subtract => "subtract",
        BinaryOp::Multiply => "multiply",
        BinaryOp::Divide => "divide",
        BinaryOp::FloorDivide => {
            return Some(format!("hone_floor_f64(hone_divide_f64({left}, {right}))"));
        }
        BinaryOp::Modulo => "modulo",
        BinaryOp::Remainder => "remainder",
        BinaryOp::Equal => "equal",
        BinaryOp::Less => "less",
        BinaryOp::LessEqual => "less_equal",
        BinaryOp::Minimum => "minimum",
        BinaryOp::Maximum => "maximum",
        _ => return None,
    };
    Some(format!("hone_{name}_f64({left}, {right})"))
}
