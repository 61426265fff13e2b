//! Operations on `f32`, in which floats of 16 bits are computed too.

use hone_tensor::{BinaryOp, UnaryOp};

/// An operation on one value.
pub(super) fn unary(op: UnaryOp, operand: &str) -> String {
    let name = match op {
        UnaryOp::Negate => return format!("(-{operand})"),
        UnaryOp::Not => return format!("select(0.0f, 1.0f, {operand} == 0.0f)"),
        UnaryOp::IsNan => "hone_is_nan",
        UnaryOp::IsInfinite => "hone_is_infinite",
        UnaryOp::Abs => "abs",
        UnaryOp::Exp => "exp",
        UnaryOp::Log => "hone_log",
        UnaryOp::Sqrt => "sqrt",
        UnaryOp::Tanh => "hone_tanh",
        UnaryOp::Erf => "hone_erf",
        UnaryOp::Sigmoid => "hone_sigmoid",
        UnaryOp::Sin => "hone_sin",
        UnaryOp::Cos => "hone_cos",
        UnaryOp::Tan => "hone_tan",
        UnaryOp::Asin => "hone_asin",
        UnaryOp::Acos => "hone_acos",
        UnaryOp::Atan => "hone_atan",
        UnaryOp::Sinh => "hone_sinh",
        UnaryOp::Cosh => "hone_cosh",
        UnaryOp::Asinh => "hone_asinh",
        UnaryOp::Acosh => "hone_acosh",
        UnaryOp::Atanh => "hone_atanh",
        UnaryOp::Floor => "floor",
        UnaryOp::Ceil => "ceil",
        // Halves to even, as the specification has it.
        UnaryOp::Round => "round",
        UnaryOp::Truncate => "trunc",
    };
    format!("{name}({operand})")
}

/// An operation on two values.
pub(super) fn binary(op: BinaryOp, (left, right): (&str, &str)) -> Option<String> {
    let infix = |sign: &str| format!("({left} {sign} {right})");
    let call = |name: &str| format!("{name}({left}, {right})");
    Some(match op {
        BinaryOp::Add => infix("+"),
        BinaryOp::Subtract => infix("-"),
        BinaryOp::Multiply => infix("*"),
        BinaryOp::Divide => infix("/"),
        BinaryOp::Equal => infix("=="),
        BinaryOp::Less => infix("<"),
        BinaryOp::LessEqual => infix("<="),
        BinaryOp::FloorDivide => call("hone_floor_divide_f32"),
        BinaryOp::Modulo => call("hone_modulo_f32"),
        BinaryOp::Remainder => call("hone_remainder_f32"),
        BinaryOp::Minimum => call("hone_minimum"),
        BinaryOp::Maximum => call("hone_maximum"),
        BinaryOp::Power => call("hone_power_f32"),
        _ => return None,
    })
}
