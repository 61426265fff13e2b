//! Operations on integers and truth values: they wrap, and what a division by 0 gives is 0.

use super::value::Class;
use hone_tensor::{BinaryOp, UnaryOp};
use hone_types::DataType;

/// The value modulo the size of a type of at most 32 bits.
pub(super) fn wrapped(dtype: DataType, value: String) -> String {
    match dtype {
        DataType::I8 => format!("extractBits({value}, 0u, 8u)"),
        DataType::I16 => format!("extractBits({value}, 0u, 16u)"),
        DataType::U8 => format!("({value} & 0xffu)"),
        DataType::U16 => format!("({value} & 0xffffu)"),
        _ => value,
    }
}

/// An operation on one value.
pub(super) fn unary(op: UnaryOp, dtype: DataType, operand: &str) -> Option<String> {
    let class = Class::of(dtype);
    let unsigned = class == Class::Unsigned || matches!(dtype, DataType::Bool | DataType::U64);
    Some(match op {
        UnaryOp::IsNan | UnaryOp::IsInfinite => "false".to_string(),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Truncate => operand.to_string(),
        UnaryOp::Abs if unsigned => operand.to_string(),
        UnaryOp::Abs if class == Class::Halves => format!("hone_abs_i64({operand})"),
        UnaryOp::Abs => wrapped(dtype, format!("abs({operand})")),
        UnaryOp::Negate => match class {
            Class::Bool => operand.to_string(),
            Class::Halves => format!("hone_negate_64({operand})"),
            Class::Unsigned => wrapped(dtype, format!("(0u - {operand})")),
            _ => wrapped(dtype, format!("(0i - {operand})")),
        },
        UnaryOp::Not if class == Class::Bool => format!("(!{operand})"),
        UnaryOp::Not => wrapped(dtype, format!("(~{operand})")),
        _ => return None,
    })
}

/// An operation on integers of at most 32 bits; `natural` as [`crate::Dialect::binary`] has it.
pub(super) fn binary_of_words(
    op: BinaryOp,
    dtype: DataType,
    (left, right): (&str, &str),
    natural: bool,
) -> String {
    let class = Class::of(dtype).name();
    let infix = |sign: &str| format!("({left} {sign} {right})");
    let call = |name: &str| wrapped(dtype, format!("hone_{name}_{class}({left}, {right})"));
    match op {
        BinaryOp::Add => wrapped(dtype, infix("+")),
        BinaryOp::Subtract => wrapped(dtype, infix("-")),
        BinaryOp::Multiply => wrapped(dtype, infix("*")),
        BinaryOp::FloorDivide if natural => infix("/"),
        BinaryOp::Modulo if natural => infix("%"),
        BinaryOp::Divide => call("divide"),
        BinaryOp::FloorDivide => call("floor_divide"),
        BinaryOp::Modulo => call("modulo"),
        BinaryOp::Remainder => call("remainder"),
        BinaryOp::Minimum => format!("min({left}, {right})"),
        BinaryOp::Maximum => format!("max({left}, {right})"),
        BinaryOp::Power => call("power"),
        BinaryOp::Equal => infix("=="),
        BinaryOp::Less => infix("<"),
        BinaryOp::LessEqual => infix("<="),
        BinaryOp::And => infix("&"),
        BinaryOp::Or => infix("|"),
        BinaryOp::Xor => infix("^"),
        BinaryOp::ShiftLeft => call("shift_left"),
        BinaryOp::ShiftRight => call("shift_right"),
    }
}

/// An operation on integers of 64 bits.
pub(super) fn binary_of_halves(
    op: BinaryOp,
    dtype: DataType,
    (left, right): (&str, &str),
) -> String {
    let both = |name: &str| format!("hone_{name}_64({left}, {right})");
    let call = |name: &str| format!("hone_{name}_{dtype}({left}, {right})");
    let bits = |sign: &str| format!("({left} {sign} {right})");
    match op {
        BinaryOp::Add => both("add"),
        BinaryOp::Subtract => both("subtract"),
        BinaryOp::Multiply => both("multiply"),
        BinaryOp::Divide => call("divide"),
        BinaryOp::FloorDivide => call("floor_divide"),
        BinaryOp::Modulo => call("modulo"),
        BinaryOp::Remainder => call("remainder"),
        BinaryOp::Minimum => {
            format!("select({right}, {left}, hone_less_{dtype}({left}, {right}))")
        }
        BinaryOp::Maximum => {
            format!("select({left}, {right}, hone_less_{dtype}({left}, {right}))")
        }
        BinaryOp::Power => call("power"),
        BinaryOp::Equal => format!("all({left} == {right})"),
        BinaryOp::Less => call("less"),
        BinaryOp::LessEqual => format!("(!hone_less_{dtype}({right}, {left}))"),
        BinaryOp::And => bits("&"),
        BinaryOp::Or => bits("|"),
        BinaryOp::Xor => bits("^"),
        BinaryOp::ShiftLeft => both("shift_left"),
        BinaryOp::ShiftRight => call("shift_right"),
    }
}

/// An operation on truth values, which are the numbers 0 and 1; what comes out is whether it is not 0.
pub(super) fn binary_of_bools(op: BinaryOp, (left, right): (&str, &str)) -> String {
    match op {
        BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => format!("({left} | {right})"),
        BinaryOp::Multiply | BinaryOp::Minimum | BinaryOp::And => format!("({left} & {right})"),
        BinaryOp::Subtract | BinaryOp::Xor => format!("({left} != {right})"),
        BinaryOp::Equal => format!("({left} == {right})"),
        BinaryOp::Less => format!("((!{left}) & {right})"),
        BinaryOp::LessEqual => format!("((!{left}) | {right})"),
        // By 1; by 0 it is 0.
        BinaryOp::Divide | BinaryOp::FloorDivide => format!("({left} & {right})"),
        BinaryOp::Modulo | BinaryOp::Remainder => "false".to_string(),
        BinaryOp::Power => format!("({left} | (!{right}))"),
        BinaryOp::ShiftLeft => left.to_string(),
        BinaryOp::ShiftRight => format!("({left} & (!{right}))"),
    }
}
