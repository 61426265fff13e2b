//! How elements are values of WGSL, and how they lie in memory.

use crate::dialect::Element;
use hone_tensor::Scope;
use hone_types::DataType;

/// What values of a type are in expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `bool`
    Bool,
    /// `i32`
    Signed,
    /// `u32`
    Unsigned,
    /// `f32`
    Float,
    /// 64 bits, the low half first.
    Halves,
}

impl Class {
    pub(super) fn of(dtype: DataType) -> Self {
        match dtype {
            DataType::Bool => Class::Bool,
            DataType::I8 | DataType::I16 | DataType::I32 => Class::Signed,
            DataType::U8 | DataType::U16 | DataType::U32 => Class::Unsigned,
            DataType::F16 | DataType::BF16 | DataType::F32 => Class::Float,
            DataType::I64 | DataType::U64 | DataType::F64 => Class::Halves,
        }
    }

    /// The type's name in WGSL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Bool => "bool",
            Class::Signed => "i32",
            Class::Unsigned => "u32",
            Class::Float => "f32",
            Class::Halves => "vec2<u32>",
        }
    }
}

/// How many elements lie in a word of 32 bits, where that is more than one.
pub(super) fn packed(dtype: DataType) -> Option<usize> {
    match dtype {
        DataType::Bool | DataType::I8 | DataType::U8 => Some(4),
        DataType::I16 | DataType::U16 | DataType::F16 | DataType::BF16 => Some(2),
        _ => None,
    }
}

/// The type of what a buffer that several lanes see is an array of.
pub(super) fn memory_type(dtype: DataType, written: bool) -> &'static str {
    match packed(dtype) {
        Some(_) if written => "atomic<u32>",
        Some(_) => "u32",
        None => Class::of(dtype).name(),
    }
}

/// Whether a buffer's elements lie packed in words.
fn is_packed(Element { dtype, scope, .. }: Element<'_>) -> bool {
    packed(dtype).is_some() && matches!(scope, Scope::Global | Scope::Shared)
}

/// The value of an element.
pub(super) fn load(element: Element<'_>) -> String {
    let Element { buffer, dtype, scope, written, index } = element;
    if !is_packed(element) {
        return format!("{buffer}[{index}]");
    }
    let shift = if packed(dtype) == Some(4) { "2u" } else { "1u" };
    let word = format!("{buffer}[{index} >> {shift}]");
    let word = match written || scope == Scope::Shared {
        true => format!("atomicLoad(&{word})"),
        false => word,
    };
    match dtype {
        DataType::F16 => format!("hone_from_f16(hone_load_u16({word}, {index}))"),
        DataType::BF16 => format!("hone_from_bf16(hone_load_u16({word}, {index}))"),
        DataType::Bool => format!("(hone_load_u8({word}, {index}) != 0u)"),
        _ => format!("hone_load_{dtype}({word}, {index})"),
    }
}

/// The statement that stores a value.
pub(super) fn store(element: Element<'_>, value: &str) -> String {
    let Element { buffer, dtype, index, .. } = element;
    if !is_packed(element) {
        return format!("{buffer}[{index}] = {};", rounded(dtype, value));
    }
    let bits = match dtype {
        DataType::F16 => format!("hone_to_f16({value})"),
        DataType::BF16 => format!("hone_to_bf16({value})"),
        DataType::Bool => format!("select(0u, 1u, {value})"),
        _ => format!("bitcast<u32>({value})"),
    };
    let (shift, lane, width, mask) = match packed(dtype) {
        Some(4) => ("2u", "3i", "8i", "0xffu"),
        _ => ("1u", "1i", "16i", "0xffffu"),
    };
    format!(
        "{{ let hone_index = {index}; let hone_bits = {bits} & {mask}; let hone_shift = u32((hone_index & {lane}) * \
         {width}); atomicAnd(&{buffer}[hone_index >> {shift}], ~({mask} << hone_shift)); \
         atomicOr(&{buffer}[hone_index >> {shift}], hone_bits << hone_shift); }}"
    )
}

/// A value as a type of 16 bits has it; others as they are.
pub(super) fn rounded(dtype: DataType, value: &str) -> String {
    match dtype {
        DataType::F16 => format!("hone_from_f16(hone_to_f16({value}))"),
        DataType::BF16 => format!("hone_from_bf16(hone_to_bf16({value}))"),
        _ => value.to_string(),
    }
}

/// An `i32`.
pub(super) fn integer(value: i32) -> String {
    match value {
        // A minus sign is an operation, and the least number has no opposite.
        i32::MIN => "i32(-2147483648)".to_string(),
        _ if value < 0 => format!("({value}i)"),
        _ => format!("{value}i"),
    }
}

/// 64 bits.
pub(super) fn halves(bits: u64) -> String {
    format!("vec2<u32>({}u, {}u)", bits as u32, bits >> 32)
}

/// A constant of a type.
pub(super) fn constant(value: f64, dtype: DataType) -> String {
    match dtype {
        DataType::F16 => float(half::f16::from_f64(value).to_f32()),
        DataType::BF16 => float(half::bf16::from_f64(value).to_f32()),
        DataType::F32 => float(value as f32),
        DataType::F64 => halves(value.to_bits()),
        DataType::U64 => halves(value as u64),
        DataType::I64 => halves(value as i64 as u64),
        DataType::Bool => (value != 0.0).to_string(),
        DataType::I8 => integer((value as i8).into()),
        DataType::I16 => integer((value as i16).into()),
        DataType::I32 => integer(value as i32),
        DataType::U8 | DataType::U16 | DataType::U32 => format!("{}u", value as u32),
    }
}

/// An `f32`, exactly; what WGSL has no literal for is made of its bits. The shortest decimal of the largest number is
/// above it, which some compilers refuse.
fn float(value: f32) -> String {
    let largest = value.abs() == f32::MAX;
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if !value.is_finite() || value.is_subnormal() || negative_zero || largest {
        return format!("hone_f32({:#x}u)", value.to_bits());
    }
    if value < 0.0 { format!("({value:?}f)") } else { format!("{value:?}f") }
}

/// An operand that is no constant expression: WGSL computes those when it compiles, and refuses those that overflow,
/// divide by 0 or are no number.
pub(super) fn not_constant(dtype: DataType, operand: &str) -> String {
    let name = match Class::of(dtype) {
        Class::Float => "hone_runtime_f32",
        Class::Signed => "hone_runtime_i32",
        Class::Unsigned => "hone_runtime_u32",
        // Nothing that is done with these can fail.
        Class::Bool | Class::Halves => return operand.to_string(),
    };
    if is_constant(operand) { format!("{name}({operand})") } else { operand.to_string() }
}

/// Whether a text is a constant expression: it has neither a function of ours nor a variable.
pub(super) fn is_constant(text: &str) -> bool {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let mut names =
        words.filter(|word| word.starts_with(|letter: char| letter.is_ascii_alphabetic()));
    names.all(|name| matches!(name, "select" | "true" | "false" | "i32" | "u32" | "f32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_known_from_what_is_computed() {
        for text in ["1.0f", "(-2i)", "select(1.0f, 2.0f, true)", "i32(-2147483648)", "1e-10f"] {
            assert!(is_constant(text), "{text}");
        }
        for text in ["v4", "(v4 * 2i)", "k0_0_b1[0i]", "b1[0i]", "hone_f32(0x7f800000u)", "exp(v1)"]
        {
            assert!(!is_constant(text), "{text}");
        }
    }

    #[test]
    fn floats_without_a_literal_are_made_of_bits() {
        assert_eq!(constant(f64::INFINITY, DataType::F32), "hone_f32(0x7f800000u)");
        assert_eq!(constant(f64::NAN, DataType::F16), "hone_f32(0x7fc00000u)");
        assert_eq!(constant(-0.0, DataType::F32), "hone_f32(0x80000000u)");
        assert_eq!(constant(1e-40, DataType::F32), "hone_f32(0x116c2u)");
        assert_eq!(constant(f64::from(f32::MAX), DataType::F32), "hone_f32(0x7f7fffffu)");
        assert_eq!(constant(-1.5, DataType::F32), "(-1.5f)");
        assert_eq!(constant(-1.0, DataType::I64), "vec2<u32>(4294967295u, 4294967295u)");
        assert_eq!(constant(f64::from(i32::MIN), DataType::I32), "i32(-2147483648)");
    }
}
