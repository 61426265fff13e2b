//! OpenCL C 1.2 with double precision, as the OpenCL C specification has it.
//!
//! Truth values are bytes, 16-bit floats lie in memory as `ushort` and are `float` in expressions. Helpers
//! that begin with `hone_` are written in front of a text that uses them.

mod helpers;

use crate::dialect::{Dialect, Element};
use hone_tensor::{BinaryOp, Level, Scope, UnaryOp};
use hone_types::DataType;

/// OpenCL C.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenClC;

/// The type of a value in expressions.
fn value_type(dtype: DataType) -> &'static str {
    match dtype {
        DataType::F16 | DataType::BF16 | DataType::F32 => "float",
        DataType::F64 => "double",
        DataType::I8 => "char",
        DataType::I16 => "short",
        DataType::I32 => "int",
        DataType::I64 => "long",
        DataType::U8 | DataType::Bool => "uchar",
        DataType::U16 => "ushort",
        DataType::U32 => "uint",
        DataType::U64 => "ulong",
    }
}

/// The type of an element in memory.
fn element_type(dtype: DataType) -> &'static str {
    match dtype {
        DataType::F16 | DataType::BF16 => "ushort",
        _ => value_type(dtype),
    }
}

fn is_double(dtype: DataType) -> bool {
    dtype == DataType::F64
}

/// A number as C reads it, exactly.
fn decimal(value: f64, dtype: DataType) -> String {
    let (ending, digits) = match dtype {
        DataType::F64 => ("", format!("{value:?}")),
        _ => ("f", format!("{:?}", value as f32)),
    };
    match digits.as_str() {
        "NaN" if is_double(dtype) => "((double)NAN)".to_string(),
        "NaN" => "NAN".to_string(),
        "inf" if is_double(dtype) => "((double)INFINITY)".to_string(),
        "inf" => "INFINITY".to_string(),
        "-inf" if is_double(dtype) => "(-(double)INFINITY)".to_string(),
        "-inf" => "(-INFINITY)".to_string(),
        _ if value.is_sign_negative() => format!("({digits}{ending})"),
        _ => format!("{digits}{ending}"),
    }
}

/// A value of 16 bits as it lies in memory.
fn stored_bits(dtype: DataType, value: &str) -> String {
    match dtype {
        DataType::F16 => format!("hone_to_f16({value})"),
        _ => format!("hone_to_bf16({value})"),
    }
}

impl Dialect for OpenClC {
    fn name(&self) -> &'static str {
        "OpenCL C"
    }

    fn stores(&self, _: DataType) -> bool {
        true
    }

    fn index(&self, name: &str, value: &str) -> String {
        format!("const long {name} = (long){value};")
    }

    fn value(&self, name: &str, dtype: DataType, value: &str) -> String {
        format!("const {} {name} = {value};", value_type(dtype))
    }

    fn number(&self, level: Level, dimension: usize) -> String {
        match level {
            Level::Block => format!("get_group_id({dimension})"),
            _ => format!("get_local_id({dimension})"),
        }
    }

    fn parameter(&self, _: usize, name: &str, dtype: DataType, written: bool) -> String {
        let kept = if written { "" } else { "const " };
        format!("__global {kept}{}* restrict {name}", element_type(dtype))
    }

    fn counter(&self, _: usize, name: &str) -> String {
        format!("const long {name}")
    }

    fn buffer(&self, name: &str, dtype: DataType, scope: Scope, elements: usize) -> String {
        let space = if scope == Scope::Shared { "__local " } else { "" };
        format!("{space}{} {name}[{}];", element_type(dtype), elements.max(1))
    }

    fn kernel(&self, name: &str, parameters: &[String], [x, y, z]: [usize; 3]) -> String {
        let parameters = parameters.join(", ");
        format!(
            "__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {name}({parameters}) {{"
        )
    }

    fn counted(&self, name: &str, extent: &str, unrolled: bool) -> String {
        let hint = if unrolled { "__attribute__((opencl_unroll_hint)) " } else { "" };
        format!("{hint}for (long {name} = 0; {name} < {extent}; ++{name}) {{")
    }

    fn sync(&self) -> &'static str {
        "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
    }

    fn integer(&self, value: i64, _: DataType) -> String {
        // A minus sign is an operation in C, and the least number has no opposite.
        if value == i64::MIN {
            return "LONG_MIN".to_string();
        }
        if value < 0 { format!("({value}L)") } else { format!("{value}L") }
    }

    fn constant(&self, value: f64, dtype: DataType) -> Option<String> {
        Some(match dtype {
            DataType::F16 => decimal(half::f16::from_f64(value).to_f64(), DataType::F32),
            DataType::BF16 => decimal(half::bf16::from_f64(value).to_f64(), DataType::F32),
            DataType::F32 | DataType::F64 => decimal(value, dtype),
            DataType::U64 => format!("{}UL", value as u64),
            _ => format!("(({}){})", value_type(dtype), self.integer(value as i64, DataType::I64)),
        })
    }

    fn load(&self, Element { buffer, dtype, index, .. }: Element<'_>) -> String {
        match dtype {
            DataType::F16 => format!("hone_from_f16({buffer}[{index}])"),
            DataType::BF16 => format!("hone_from_bf16({buffer}[{index}])"),
            _ => format!("{buffer}[{index}]"),
        }
    }

    fn store(&self, Element { buffer, dtype, index, .. }: Element<'_>, value: &str) -> String {
        match dtype {
            DataType::F16 | DataType::BF16 => {
                format!("{buffer}[{index}] = {};", stored_bits(dtype, value))
            }
            _ => format!("{buffer}[{index}] = {value};"),
        }
    }

    fn unary(&self, op: UnaryOp, dtype: DataType, operand: &str) -> Option<String> {
        if op == UnaryOp::IsNan || op == UnaryOp::IsInfinite {
            let name = if op == UnaryOp::IsNan { "isnan" } else { "isinf" };
            let float = dtype.is_float();
            return Some(if float {
                format!("((uchar){name}({operand}))")
            } else {
                "((uchar)0)".into()
            });
        }
        match dtype.is_float() {
            true => Some(float_function(op, dtype, operand)),
            false => integer_function(op, dtype, operand),
        }
    }

    fn binary(
        &self,
        op: BinaryOp,
        dtype: DataType,
        (left, right): (&str, &str),
        natural: bool,
    ) -> Option<String> {
        let compares = |sign: &str| Some(format!("((uchar)({left} {sign} {right}))"));
        match op {
            BinaryOp::Equal => return compares("=="),
            BinaryOp::Less => return compares("<"),
            BinaryOp::LessEqual => return compares("<="),
            _ => {}
        }
        match dtype.is_float() {
            true => float_operation(op, (left, right)),
            false => Some(integer_operation(op, dtype, (left, right), natural)),
        }
    }

    fn cast(&self, from: DataType, to: DataType, operand: &str) -> Option<String> {
        let name = value_type(to);
        Some(match (from.is_float(), to) {
            (true, DataType::Bool) => format!("((uchar)({operand} != 0))"),
            (false, DataType::Bool) => format!("((uchar)({operand} != 0))"),
            (true, DataType::F16 | DataType::BF16) if from == to => operand.to_string(),
            (_, DataType::F16 | DataType::BF16) => {
                // By way of `double`, which holds every value of up to 32 bits, and rounds those of 64 as the
                // interpreter does.
                let operand = match (from.is_float(), from) {
                    (true, _) => operand.to_string(),
                    (false, _) => format!("(double)({operand})"),
                };
                let ending = if to == DataType::F16 { "f16" } else { "bf16" };
                format!("hone_from_{ending}({})", stored_bits(to, &operand))
            }
            (true, _) if to.is_float() => format!("(({name}){operand})"),
            (true, _) => format!("hone_saturated_{name}({operand})"),
            (false, _) => format!("(({name}){operand})"),
        })
    }

    fn select(&self, condition: &str, then: &str, otherwise: &str) -> String {
        format!("({condition} ? {then} : {otherwise})")
    }

    fn chooses_lazily(&self) -> bool {
        true
    }

    fn prelude(&self, text: &str) -> String {
        helpers::prelude(text)
    }
}

fn float_function(op: UnaryOp, dtype: DataType, operand: &str) -> String {
    let name = match op {
        UnaryOp::Negate => return format!("(-{operand})"),
        UnaryOp::Not => return format!("(({})({operand} == 0))", value_type(dtype)),
        UnaryOp::IsNan => "isnan",
        UnaryOp::IsInfinite => "isinf",
        UnaryOp::Abs => "fabs",
        UnaryOp::Exp => "exp",
        UnaryOp::Log => "log",
        UnaryOp::Sqrt => "sqrt",
        UnaryOp::Tanh => "tanh",
        UnaryOp::Erf => "erf",
        UnaryOp::Sigmoid => "hone_sigmoid",
        UnaryOp::Sin => "sin",
        UnaryOp::Cos => "cos",
        UnaryOp::Tan => "tan",
        UnaryOp::Asin => "asin",
        UnaryOp::Acos => "acos",
        UnaryOp::Atan => "atan",
        UnaryOp::Sinh => "sinh",
        UnaryOp::Cosh => "cosh",
        UnaryOp::Asinh => "asinh",
        UnaryOp::Acosh => "acosh",
        UnaryOp::Atanh => "atanh",
        UnaryOp::Floor => "floor",
        UnaryOp::Ceil => "ceil",
        UnaryOp::Round => "rint",
        UnaryOp::Truncate => "trunc",
    };
    format!("{name}({operand})")
}

fn integer_function(op: UnaryOp, dtype: DataType, operand: &str) -> Option<String> {
    let name = value_type(dtype);
    let unsigned = matches!(
        dtype,
        DataType::Bool | DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64
    );
    Some(match op {
        UnaryOp::Negate => format!("(({name})(0UL - (ulong){operand}))"),
        UnaryOp::Abs if unsigned => operand.to_string(),
        UnaryOp::Abs => format!("(({name})hone_abs((long){operand}))"),
        UnaryOp::Not if dtype == DataType::Bool => format!("((uchar)!{operand})"),
        UnaryOp::Not => format!("(({name})~{operand})"),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Truncate => operand.to_string(),
        _ => return None,
    })
}

fn float_operation(op: BinaryOp, (left, right): (&str, &str)) -> Option<String> {
    let infix = |sign: &str| format!("({left} {sign} {right})");
    let call = |name: &str| format!("{name}({left}, {right})");
    Some(match op {
        BinaryOp::Add => infix("+"),
        BinaryOp::Subtract => infix("-"),
        BinaryOp::Multiply => infix("*"),
        BinaryOp::Divide => infix("/"),
        BinaryOp::FloorDivide => format!("floor({left} / {right})"),
        BinaryOp::Modulo => call("hone_modulo"),
        BinaryOp::Remainder => call("fmod"),
        BinaryOp::Minimum => call("hone_minimum"),
        BinaryOp::Maximum => call("hone_maximum"),
        BinaryOp::Power => call("pow"),
        _ => return None,
    })
}

fn integer_operation(
    op: BinaryOp,
    dtype: DataType,
    (left, right): (&str, &str),
    natural: bool,
) -> String {
    let name = value_type(dtype);
    // In 64 bits nothing that is narrower overflows, and unsigned numbers wrap.
    let operand_type = if dtype == DataType::U64 { "ulong" } else { "long" };
    let infix = |sign: &str| match dtype {
        // Indices are checked not to overflow.
        DataType::I64 if natural => format!("({left} {sign} {right})"),
        DataType::Bool => format!("((uchar)(({left} {sign} {right}) != 0))"),
        _ => format!("(({name})((ulong){left} {sign} (ulong){right}))"),
    };
    let bits = |sign: &str| format!("(({name})({left} {sign} {right}))");
    let call = |function: &str| {
        format!("(({name})hone_{function}(({operand_type}){left}, ({operand_type}){right}))")
    };
    match op {
        BinaryOp::Add => infix("+"),
        BinaryOp::Subtract => infix("-"),
        BinaryOp::Multiply => infix("*"),
        BinaryOp::FloorDivide if natural => infix("/"),
        BinaryOp::Modulo if natural => infix("%"),
        BinaryOp::Divide => call("divide"),
        BinaryOp::FloorDivide => call("floor_divide"),
        BinaryOp::Modulo => call("modulo_of_integers"),
        BinaryOp::Remainder => call("remainder"),
        // A choice between narrow numbers is an `int`.
        BinaryOp::Minimum => format!("min(({name}){left}, ({name}){right})"),
        BinaryOp::Maximum => format!("max(({name}){left}, ({name}){right})"),
        BinaryOp::Power => call("power"),
        BinaryOp::And => bits("&"),
        BinaryOp::Or => bits("|"),
        BinaryOp::Xor => bits("^"),
        BinaryOp::ShiftLeft => call("shift_left"),
        BinaryOp::ShiftRight => call("shift_right"),
        // Compared before.
        BinaryOp::Equal | BinaryOp::Less | BinaryOp::LessEqual => bits("=="),
    }
}
