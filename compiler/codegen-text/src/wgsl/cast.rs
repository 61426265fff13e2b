//! Conversions: integers wrap, floats to integers are cut and saturate, and what is no number is 0.

use super::integer::wrapped;
use super::value::{Class, rounded};
use hone_types::DataType;

/// A value of another type; `None` where there is no form.
pub(super) fn cast(from: DataType, to: DataType, operand: &str) -> Option<String> {
    if from == to {
        return Some(operand.to_string());
    }
    if from == DataType::F64 || to == DataType::F64 {
        return double(from, to, operand);
    }
    Some(match (Class::of(from), Class::of(to)) {
        (class, Class::Bool) => is_not_zero(class, operand),
        (Class::Float, Class::Float) => rounded(to, operand),
        (_, Class::Float) => float_of_integer(from, to, operand),
        (Class::Float, _) => saturated(to, operand),
        (Class::Halves, Class::Halves) => operand.to_string(),
        (class, Class::Halves) => halves(class, operand),
        (Class::Halves, Class::Signed) => wrapped(to, format!("bitcast<i32>({operand}.x)")),
        (Class::Halves, Class::Unsigned) => wrapped(to, format!("{operand}.x")),
        (_, class) => wrapped(to, format!("{}({operand})", class.name())),
    })
}

/// An integer or a truth value in 64 bits.
fn halves(class: Class, operand: &str) -> String {
    match class {
        Class::Signed => format!("hone_64_of_i32({operand})"),
        Class::Bool => format!("vec2<u32>(u32({operand}), 0u)"),
        _ => format!("vec2<u32>({operand}, 0u)"),
    }
}

fn is_not_zero(class: Class, operand: &str) -> String {
    match class {
        Class::Bool => operand.to_string(),
        Class::Signed => format!("({operand} != 0i)"),
        Class::Unsigned => format!("({operand} != 0u)"),
        // By its bits: what compares a value that is no number with 0 may say that they are equal.
        Class::Float => format!("hone_is_not_zero({operand})"),
        Class::Halves => format!("any({operand} != vec2<u32>())"),
    }
}

fn float_of_integer(from: DataType, to: DataType, operand: &str) -> String {
    let class = Class::of(from);
    // What `f32` rounds is infinite in `f16`, but would be rounded twice on its way to `bf16`.
    let exact = matches!(from, DataType::I8 | DataType::I16 | DataType::U8 | DataType::U16);
    match (class, to) {
        (Class::Bool, _) => format!("f32({operand})"),
        (_, DataType::BF16) if !exact => {
            let sign = if matches!(from, DataType::U32 | DataType::U64) { "u64" } else { "i64" };
            let operand = match class {
                Class::Halves => operand.to_string(),
                _ => halves(class, operand),
            };
            rounded(to, &format!("hone_odd_f32_of_{sign}({operand})"))
        }
        (Class::Halves, _) => rounded(to, &format!("hone_f32_of_{from}({operand})")),
        _ => rounded(to, &format!("f32({operand})")),
    }
}

/// A float of at most 32 bits as an integer.
fn saturated(to: DataType, operand: &str) -> String {
    match to {
        DataType::I8 => format!("clamp(hone_i32_of_f32({operand}), -128i, 127i)"),
        DataType::I16 => format!("clamp(hone_i32_of_f32({operand}), -32768i, 32767i)"),
        DataType::U8 => format!("min(hone_u32_of_f32({operand}), 255u)"),
        DataType::U16 => format!("min(hone_u32_of_f32({operand}), 65535u)"),
        _ => format!("hone_{to}_of_f32({operand})"),
    }
}

/// To or from a double, by its bits.
fn double(from: DataType, to: DataType, operand: &str) -> Option<String> {
    Some(match (Class::of(from), Class::of(to)) {
        (_, Class::Bool) => format!("hone_is_not_zero_f64({operand})"),
        (Class::Bool, _) => format!("select(vec2<u32>(), vec2<u32>(0u, 0x3ff00000u), {operand})"),
        (Class::Float, _) => format!("hone_f64_of_f32({operand})"),
        (_, Class::Float) if to == DataType::F32 => format!("hone_f32_of_f64({operand})"),
        // Rounded to odd first, so that nothing is rounded twice.
        (_, Class::Float) => rounded(to, &format!("hone_odd_f32_of_f64({operand})")),
        (Class::Halves, Class::Halves) if from == DataType::F64 => {
            format!("hone_{to}_of_f64({operand})")
        }
        (Class::Halves, Class::Halves) => format!("hone_f64_of_{from}({operand})"),
        (Class::Unsigned, _) => format!("hone_f64_of_u64(vec2<u32>({operand}, 0u))"),
        (Class::Signed, _) => format!("hone_f64_of_i64(hone_64_of_i32({operand}))"),
        (_, class) => {
            let (least, most) = match to {
                DataType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
                DataType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
                DataType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                DataType::U8 => (0, i64::from(u8::MAX)),
                DataType::U16 => (0, i64::from(u16::MAX)),
                _ => (0, i64::from(u32::MAX)),
            };
            let ends = (super::value::halves(least as u64), super::value::halves(most as u64));
            let name = if class == Class::Signed { "i32" } else { "u32" };
            format!(
                "hone_{name}_of_clamped(hone_clamp_i64(hone_i64_of_f64({operand}), {}, {}))",
                ends.0, ends.1
            )
        }
    })
}
