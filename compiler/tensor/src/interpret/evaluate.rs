//! Evaluation of expressions.

use super::Address;
use super::memory::{Memory, round};
use super::race::{Access, Meeting};
use crate::{BinaryOp, BufferId, Combiner, UnaryOp};
use hone_types::DataType;

/// What can go wrong at one point.
#[derive(Debug)]
pub(super) enum Fault {
    OutOfBounds { buffer: BufferId, axis: usize, index: i64 },
    DivisionByZero,
    Race(Box<Meeting>),
    Poisoned { buffer: BufferId, place: usize, now: Access },
}

#[derive(Debug)]
pub(super) enum Value {
    Float(Float),
    Int(Int),
}

#[derive(Debug)]
pub(super) enum Float {
    Constant(f64),
    Load(Address),
    Unary(UnaryOp, Box<Float>),
    Binary(BinaryOp, Box<Float>, Box<Float>),
    Select(Box<Int>, Box<Float>, Box<Float>),
    Round(DataType, Box<Float>),
    /// From an integer; whether it is a `u64`.
    FromInt(DataType, bool, Box<Int>),
}

/// Integers and truth values (0 and 1).
#[derive(Debug)]
pub(super) enum Int {
    Constant(i64),
    /// A constant and variables with factors.
    Linear(i64, Vec<(usize, i64)>),
    Load(Address),
    Unary(UnaryOp, DataType, Box<Int>),
    Binary(BinaryOp, DataType, Box<Int>, Box<Int>),
    Compare(BinaryOp, Box<Float>, Box<Float>),
    Classify(UnaryOp, Box<Float>),
    Select(Box<Int>, Box<Int>, Box<Int>),
    FromFloat(DataType, Box<Float>),
    Convert {
        from: DataType,
        to: DataType,
        value: Box<Int>,
    },
}

pub(super) struct State<'a> {
    pub(super) vars: Vec<i64>,
    pub(super) memory: &'a mut Memory,
}

impl<'a> State<'a> {
    pub(super) fn new(vars: usize, memory: &'a mut Memory) -> Self {
        Self { vars: vec![0; vars], memory }
    }

    /// The element's place in its row-major buffer.
    pub(super) fn address(&self, address: &Address) -> Result<usize, Fault> {
        let mut place = 0;
        for (axis, (index, extent)) in address.indices.iter().zip(&address.shape).enumerate() {
            let index = self.int(index)?;
            if index < 0 || index >= *extent {
                return Err(Fault::OutOfBounds { buffer: address.buffer, axis, index });
            }
            place = place * extent + index;
        }
        Ok(place as usize)
    }

    pub(super) fn float(&self, expr: &Float) -> Result<f64, Fault> {
        Ok(match expr {
            Float::Constant(value) => *value,
            Float::Load(address) => {
                let place = self.address(address)?;
                self.memory.watched(address.buffer, place, false)?;
                self.memory.float(address.buffer, place)
            }
            Float::Unary(op, operand) => unary_float(*op, self.float(operand)?),
            Float::Binary(op, left, right) => {
                binary_float(*op, self.float(left)?, self.float(right)?)
            }
            Float::Select(condition, then, otherwise) => {
                self.float(if self.int(condition)? != 0 { then } else { otherwise })?
            }
            Float::Round(dtype, operand) => round(*dtype, self.float(operand)?),
            Float::FromInt(dtype, unsigned, operand) => {
                let value = self.int(operand)?;
                // Straight to `f32`: by way of `f64` some values would be rounded twice.
                match (dtype, unsigned) {
                    (DataType::F32, false) => f64::from(value as f32),
                    (DataType::F32, true) => f64::from(value as u64 as f32),
                    (_, false) => round(*dtype, value as f64),
                    (_, true) => round(*dtype, value as u64 as f64),
                }
            }
        })
    }

    pub(super) fn int(&self, expr: &Int) -> Result<i64, Fault> {
        Ok(match expr {
            Int::Constant(value) => *value,
            Int::Linear(constant, terms) => {
                terms.iter().fold(*constant, |sum, (slot, factor)| sum + self.vars[*slot] * factor)
            }
            Int::Load(address) => {
                let place = self.address(address)?;
                self.memory.watched(address.buffer, place, false)?;
                self.memory.int(address.buffer, place)
            }
            Int::Unary(op, dtype, operand) => {
                wrap(*dtype, unary_int(*op, *dtype, self.int(operand)?))
            }
            Int::Binary(op, dtype, left, right) => {
                let (left, right) = (self.int(left)?, self.int(right)?);
                let value = binary_int(*op, *dtype, left, right)?;
                if op.is_comparison() { value } else { wrap(*dtype, value) }
            }
            Int::Compare(op, left, right) => {
                let (left, right) = (self.float(left)?, self.float(right)?);
                i64::from(match op {
                    BinaryOp::Equal => left == right,
                    BinaryOp::Less => left < right,
                    _ => left <= right,
                })
            }
            Int::Classify(op, operand) => {
                let value = self.float(operand)?;
                i64::from(if *op == UnaryOp::IsNan { value.is_nan() } else { value.is_infinite() })
            }
            Int::Select(condition, then, otherwise) => {
                self.int(if self.int(condition)? != 0 { then } else { otherwise })?
            }
            Int::FromFloat(dtype, operand) => saturate(*dtype, self.float(operand)?),
            Int::Convert { from, to, value } => {
                let value = self.int(value)?;
                match (from, to) {
                    (_, DataType::Bool) => i64::from(value != 0),
                    _ => wrap(*to, value),
                }
            }
        })
    }
}

/// The value modulo the size of the type.
pub(super) fn wrap(dtype: DataType, value: i64) -> i64 {
    match dtype {
        DataType::I8 => i64::from(value as i8),
        DataType::I16 => i64::from(value as i16),
        DataType::I32 => i64::from(value as i32),
        DataType::U8 => i64::from(value as u8),
        DataType::U16 => i64::from(value as u16),
        DataType::U32 => i64::from(value as u32),
        DataType::Bool => i64::from(value != 0),
        _ => value,
    }
}

/// A float as an integer: towards zero, saturating, NaN to 0; truth values by `!= 0`.
fn saturate(dtype: DataType, value: f64) -> i64 {
    match dtype {
        DataType::I8 => i64::from(value as i8),
        DataType::I16 => i64::from(value as i16),
        DataType::I32 => i64::from(value as i32),
        DataType::U8 => i64::from(value as u8),
        DataType::U16 => i64::from(value as u16),
        DataType::U32 => i64::from(value as u32),
        DataType::U64 => value as u64 as i64,
        DataType::Bool => i64::from(value != 0.0),
        _ => value as i64,
    }
}

fn unary_float(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Negate => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Asin => x.asin(),
        UnaryOp::Acos => x.acos(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Sinh => x.sinh(),
        UnaryOp::Cosh => x.cosh(),
        UnaryOp::Asinh => x.asinh(),
        UnaryOp::Acosh => x.acosh(),
        UnaryOp::Atanh => x.atanh(),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Truncate => x.trunc(),
        UnaryOp::Not => f64::from(u8::from(x == 0.0)),
        UnaryOp::IsNan => f64::from(u8::from(x.is_nan())),
        UnaryOp::IsInfinite => f64::from(u8::from(x.is_infinite())),
    }
}

fn unary_int(op: UnaryOp, dtype: DataType, x: i64) -> i64 {
    match op {
        UnaryOp::Negate => x.wrapping_neg(),
        UnaryOp::Abs if dtype != DataType::U64 => x.wrapping_abs(),
        UnaryOp::Not if dtype == DataType::Bool => i64::from(x == 0),
        UnaryOp::Not => !x,
        // Already whole.
        UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Truncate => x,
        _ => saturate(dtype, unary_float(op, x as f64)),
    }
}

fn binary_float(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Subtract => a - b,
        BinaryOp::Multiply => a * b,
        BinaryOp::Divide => a / b,
        BinaryOp::FloorDivide => (a / b).floor(),
        BinaryOp::Modulo => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        BinaryOp::Remainder => a % b,
        BinaryOp::Minimum if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Maximum if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Power => a.powf(b),
        BinaryOp::Equal => f64::from(u8::from(a == b)),
        BinaryOp::Less => f64::from(u8::from(a < b)),
        BinaryOp::LessEqual => f64::from(u8::from(a <= b)),
        BinaryOp::And => f64::from(u8::from(a != 0.0 && b != 0.0)),
        BinaryOp::Or => f64::from(u8::from(a != 0.0 || b != 0.0)),
        BinaryOp::Xor => f64::from(u8::from((a != 0.0) != (b != 0.0))),
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => f64::NAN,
    }
}

fn binary_int(op: BinaryOp, dtype: DataType, a: i64, b: i64) -> Result<i64, Fault> {
    let divides = matches!(
        op,
        BinaryOp::Divide | BinaryOp::FloorDivide | BinaryOp::Modulo | BinaryOp::Remainder
    );
    if divides && b == 0 {
        return Err(Fault::DivisionByZero);
    }
    if dtype == DataType::U64 {
        return Ok(binary_unsigned(op, a as u64, b as u64));
    }
    Ok(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Subtract => a.wrapping_sub(b),
        BinaryOp::Multiply => a.wrapping_mul(b),
        BinaryOp::Divide => a.wrapping_div(b),
        BinaryOp::FloorDivide => {
            let quotient = a.wrapping_div(b);
            if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
        }
        BinaryOp::Modulo => {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        BinaryOp::Remainder => a.wrapping_rem(b),
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Power => power(a, b),
        BinaryOp::Equal => i64::from(a == b),
        BinaryOp::Less => i64::from(a < b),
        BinaryOp::LessEqual => i64::from(a <= b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::ShiftLeft => u32::try_from(b).ok().and_then(|by| a.checked_shl(by)).unwrap_or(0),
        BinaryOp::ShiftRight => u32::try_from(b).ok().and_then(|by| a.checked_shr(by)).unwrap_or(0),
    })
}

fn binary_unsigned(op: BinaryOp, a: u64, b: u64) -> i64 {
    (match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Subtract => a.wrapping_sub(b),
        BinaryOp::Multiply => a.wrapping_mul(b),
        BinaryOp::Divide | BinaryOp::FloorDivide => a / b,
        BinaryOp::Modulo | BinaryOp::Remainder => a % b,
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Power => a.wrapping_pow(u32::try_from(b).unwrap_or(u32::MAX)),
        BinaryOp::Equal => u64::from(a == b),
        BinaryOp::Less => u64::from(a < b),
        BinaryOp::LessEqual => u64::from(a <= b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::ShiftLeft => u32::try_from(b).ok().and_then(|by| a.checked_shl(by)).unwrap_or(0),
        BinaryOp::ShiftRight => u32::try_from(b).ok().and_then(|by| a.checked_shr(by)).unwrap_or(0),
    }) as i64
}

/// Whole powers exactly; negative ones as the cut quotient.
fn power(base: i64, exponent: i64) -> i64 {
    match u32::try_from(exponent) {
        Ok(exponent) => base.wrapping_pow(exponent),
        Err(_) if exponent > 0 => 0,
        Err(_) => match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        },
    }
}

fn operation(combiner: Combiner) -> BinaryOp {
    match combiner {
        Combiner::Sum => BinaryOp::Add,
        Combiner::Product => BinaryOp::Multiply,
        Combiner::Maximum => BinaryOp::Maximum,
        Combiner::Minimum => BinaryOp::Minimum,
    }
}

pub(super) fn combine_float(combiner: Combiner, a: f64, b: f64) -> f64 {
    binary_float(operation(combiner), a, b)
}

pub(super) fn combine_int(combiner: Combiner, a: i64, b: i64, dtype: DataType) -> i64 {
    // None of these four divides, so there is no fault to lose.
    binary_int(operation(combiner), dtype, a, b).unwrap_or(a)
}
