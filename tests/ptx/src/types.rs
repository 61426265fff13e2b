//! Types of PTX, and what instructions do with them.

use anyhow::{Context, Result, bail};

/// How bits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.b`: as they are.
    Bits,
    /// `.u`
    Unsigned,
    /// `.s`
    Signed,
    /// `.f`: IEEE 754.
    Float,
    /// `.bf`: the upper half of a float of 32 bits.
    BFloat,
    /// `.pred`
    Predicate,
}

/// A type of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    /// How its bits are read.
    pub kind: Kind,
    /// How many there are.
    pub bits: u32,
}

impl Type {
    /// The type of a word such as `u32`.
    pub fn named(word: &str) -> Option<Self> {
        let sized = |kind, digits: &str| {
            let bits = digits.parse().ok()?;
            matches!(bits, 8 | 16 | 32 | 64).then_some(Type { kind, bits })
        };
        match word {
            "pred" => Some(Type { kind: Kind::Predicate, bits: 1 }),
            _ if word.starts_with("bf") => sized(Kind::BFloat, &word[2..]),
            _ if word.starts_with('b') => sized(Kind::Bits, &word[1..]),
            _ if word.starts_with('u') => sized(Kind::Unsigned, &word[1..]),
            _ if word.starts_with('s') => sized(Kind::Signed, &word[1..]),
            _ if word.starts_with('f') => sized(Kind::Float, &word[1..]),
            _ => None,
        }
    }

    /// The last type among an instruction's modifiers.
    pub fn last_of(words: &[&str]) -> Result<Self> {
        let found = words.iter().rev().find_map(|word| Self::named(word));
        found.with_context(|| format!("no type in '{}'", words.join(".")))
    }

    /// Size in memory.
    pub fn bytes(self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Whether values are floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self.kind, Kind::Float | Kind::BFloat)
    }

    /// The bits of a register that belong to the type.
    pub fn cut(self, raw: u64) -> u64 {
        if self.bits >= 64 { raw } else { raw & ((1 << self.bits) - 1) }
    }

    /// A value as a signed number.
    pub fn signed(self, raw: u64) -> i64 {
        let unused = 64 - self.bits;
        ((raw << unused) as i64) >> unused
    }

    /// A value as a number that holds it: exactly, for up to 64 bits.
    pub fn wide(self, raw: u64) -> i128 {
        match self.kind {
            Kind::Signed => i128::from(self.signed(raw)),
            _ => i128::from(self.cut(raw)),
        }
    }

    /// A floating-point value, exactly.
    pub fn float(self, raw: u64) -> f64 {
        match (self.kind, self.bits) {
            (Kind::BFloat, _) => half::bf16::from_bits(raw as u16).to_f64(),
            (_, 16) => half::f16::from_bits(raw as u16).to_f64(),
            (_, 32) => f64::from(f32::from_bits(raw as u32)),
            _ => f64::from_bits(raw),
        }
    }

    /// The bits of a number that is rounded to the type, to nearest, ties to even.
    pub fn of_float(self, value: f64) -> u64 {
        match (self.kind, self.bits) {
            (Kind::BFloat, _) => u64::from(half::bf16::from_f64(value).to_bits()),
            (_, 16) => u64::from(half::f16::from_f64(value).to_bits()),
            (_, 32) => u64::from((value as f32).to_bits()),
            _ => value.to_bits(),
        }
    }
}

/// An operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    MulLow,
    MulHigh,
    MulWide,
    Div,
    Rem,
    /// The smaller; of a number and NaN the number.
    Min,
    /// The larger; of a number and NaN the number.
    Max,
    /// The smaller; NaN where either is.
    MinNan,
    /// The larger; NaN where either is.
    MaxNan,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    /// The magnitude of the second with the sign of the first.
    CopySign,
}

/// An operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Neg,
    Abs,
    Not,
    Sqrt,
    Reciprocal,
    /// Within 2 units in the last place, where the device's is; subnormal numbers count as zero.
    PowerOfTwo,
    PopulationCount,
    LeadingZeros,
    Reverse,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// Both are numbers.
    Number,
    /// Either is none.
    Nan,
}

fn round(ty: Type, value: f64, single: impl FnOnce() -> f32) -> u64 {
    match (ty.kind, ty.bits) {
        (Kind::Float, 32) => u64::from(single().to_bits()),
        _ => ty.of_float(value),
    }
}

/// The result of a binary operation.
pub fn binary(op: Binary, ty: Type, a: u64, b: u64) -> Result<u64> {
    if ty.is_float() {
        return float_binary(op, ty, a, b);
    }
    let (x, y) = (ty.wide(a), ty.wide(b));
    let result = match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::MulLow => x.wrapping_mul(y),
        Binary::MulHigh => x.wrapping_mul(y) >> ty.bits,
        Binary::MulWide => {
            return Ok(Type { bits: 2 * ty.bits, ..ty }.cut(x.wrapping_mul(y) as u64));
        }
        Binary::Div | Binary::Rem if y == 0 => bail!("an integer is divided by zero"),
        Binary::Div => x / y,
        Binary::Rem => x % y,
        Binary::Min | Binary::MinNan => x.min(y),
        Binary::Max | Binary::MaxNan => x.max(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        // The amount is of 32 bits; more than the width counts as the width.
        Binary::Shl if (b as u32) >= ty.bits => 0,
        Binary::Shl => x << (b as u32),
        Binary::Shr => x >> (b as u32).min(ty.bits),
        Binary::CopySign => bail!("a sign is copied to an integer"),
    };
    Ok(ty.cut(result as u64))
}

fn float_binary(op: Binary, ty: Type, a: u64, b: u64) -> Result<u64> {
    let (x, y) = (ty.float(a), ty.float(b));
    let (p, q) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
    let either = |number: f64| if x.is_nan() || y.is_nan() { f64::NAN } else { number };
    Ok(match op {
        Binary::Add => round(ty, x + y, || p + q),
        Binary::Sub => round(ty, x - y, || p - q),
        Binary::MulLow => round(ty, x * y, || p * q),
        Binary::Div => round(ty, x / y, || p / q),
        Binary::Min => ty.of_float(minimum(x, y)),
        Binary::Max => ty.of_float(-minimum(-x, -y)),
        Binary::MinNan => ty.of_float(either(minimum(x, y))),
        Binary::MaxNan => ty.of_float(either(-minimum(-x, -y))),
        Binary::CopySign => {
            let sign = 1 << (ty.bits - 1);
            ty.cut((b & !sign) | (a & sign))
        }
        _ => bail!("{op:?} of floating-point numbers"),
    })
}

/// The smaller; negative zero is below zero.
fn minimum(x: f64, y: f64) -> f64 {
    match (x.is_nan(), y.is_nan()) {
        (true, _) => y,
        (_, true) => x,
        _ if x == y => {
            if x.is_sign_negative() {
                x
            } else {
                y
            }
        }
        _ => {
            if x < y {
                x
            } else {
                y
            }
        }
    }
}

/// The result of an operation on one value.
pub fn unary(op: Unary, ty: Type, a: u64) -> Result<u64> {
    if ty.is_float() {
        let sign = 1u64 << (ty.bits - 1);
        return Ok(match op {
            Unary::Neg => ty.cut(a ^ sign),
            Unary::Abs => ty.cut(a & !sign),
            Unary::Sqrt => round(ty, ty.float(a).sqrt(), || f32::from_bits(a as u32).sqrt()),
            Unary::Reciprocal => round(ty, 1.0 / ty.float(a), || 1.0 / f32::from_bits(a as u32)),
            Unary::PowerOfTwo => {
                let flushed = |value: f32| if value.is_subnormal() { 0.0 } else { value };
                let exponent = f64::from(flushed(f32::from_bits(a as u32)));
                u64::from(flushed(exponent.exp2() as f32).to_bits())
            }
            _ => bail!("{op:?} of a floating-point number"),
        });
    }
    let value = ty.wide(a);
    let unused = 64 - ty.bits;
    Ok(match op {
        Unary::Neg => ty.cut(value.wrapping_neg() as u64),
        Unary::Abs => ty.cut(value.unsigned_abs() as u64),
        Unary::Not => ty.cut(!a),
        Unary::PopulationCount => u64::from(ty.cut(a).count_ones()),
        Unary::LeadingZeros => u64::from(ty.cut(a).leading_zeros() - unused),
        Unary::Reverse => a.reverse_bits() >> unused,
        Unary::Sqrt | Unary::Reciprocal | Unary::PowerOfTwo => {
            bail!("{op:?} of an integer")
        }
    })
}

/// `a * b + c`, rounded once.
pub fn fused(ty: Type, a: u64, b: u64, c: u64) -> u64 {
    let single = |raw: u64| f32::from_bits(raw as u32);
    let exact = || ty.float(a).mul_add(ty.float(b), ty.float(c));
    match ty.bits {
        32 => u64::from(single(a).mul_add(single(b), single(c)).to_bits()),
        // Products of 16 bits are exact in 64, and what a sum loses there is below every tie.
        _ => ty.of_float(exact()),
    }
}

/// Whether a comparison holds; `unordered` ones hold where either is no number.
pub fn compare(op: Compare, unordered: bool, ty: Type, a: u64, b: u64) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match ty.is_float() {
        true => ty.float(a).partial_cmp(&ty.float(b)),
        false => Some(ty.wide(a).cmp(&ty.wide(b))),
    };
    let Some(order) = order else {
        return unordered || op == Compare::Nan;
    };
    match op {
        Compare::Equal => order == Equal,
        Compare::NotEqual => order != Equal,
        Compare::Less => order == Less,
        Compare::LessEqual => order != Greater,
        Compare::Greater => order == Greater,
        Compare::GreaterEqual => order != Less,
        Compare::Number => true,
        Compare::Nan => false,
    }
}

/// How a conversion rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to even, among the values of the type.
    Nearest,
    /// To the nearest whole number, ties to even.
    WholeNearest,
    /// To a whole number towards zero.
    WholeZero,
    /// To a whole number downwards.
    WholeDown,
    /// To a whole number upwards.
    WholeUp,
}

/// A value of another type.
pub fn convert(to: Type, from: Type, rounding: Rounding, saturate: bool, raw: u64) -> Result<u64> {
    if !from.is_float() {
        let value = from.wide(raw);
        if to.is_float() {
            // To the nearest of the type itself: through `f64` some would be rounded twice.
            return Ok(match to.bits {
                32 => u64::from((value as f32).to_bits()),
                64 => (value as f64).to_bits(),
                _ => to.of_float(value as f64),
            });
        }
        let value = if saturate { clamp(to, value) } else { value };
        return Ok(to.cut(value as u64));
    }
    let value = from.float(raw);
    let whole = match rounding {
        Rounding::Nearest => value,
        Rounding::WholeNearest => value.round_ties_even(),
        Rounding::WholeZero => value.trunc(),
        Rounding::WholeDown => value.floor(),
        Rounding::WholeUp => value.ceil(),
    };
    if to.is_float() {
        let bounded = if saturate && whole.is_nan() { 0.0 } else { whole };
        return Ok(to.of_float(if saturate { bounded.clamp(0.0, 1.0) } else { bounded }));
    }
    if rounding == Rounding::Nearest {
        bail!("a float becomes an integer without rounding to one");
    }
    if whole.is_nan() {
        let wide = from.bits == 64 || to.bits == 64;
        return Ok(if wide { 1 << (to.bits - 1) } else { 0 });
    }
    // Saturates beyond 127 bits.
    Ok(to.cut(clamp(to, whole as i128) as u64))
}

fn clamp(to: Type, value: i128) -> i128 {
    match to.kind {
        Kind::Signed => value.clamp(-(1 << (to.bits - 1)), (1 << (to.bits - 1)) - 1),
        _ => value.clamp(0, (1 << to.bits) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(word: &str) -> Type {
        Type::named(word).unwrap_or(Type { kind: Kind::Bits, bits: 64 })
    }

    #[test]
    fn shifts_by_the_width_leave_nothing_or_signs() {
        assert_eq!(binary(Binary::Shl, ty("b32"), 1, 32).ok(), Some(0));
        assert_eq!(binary(Binary::Shr, ty("s32"), 0x8000_0000, 40).ok(), Some(0xffff_ffff));
    }

    #[test]
    fn conversions_saturate_as_the_manual_says() {
        let to = |to: &str, from: &str, raw| {
            convert(ty(to), ty(from), Rounding::WholeZero, false, raw).ok()
        };
        assert_eq!(to("s32", "f32", u64::from(f32::NAN.to_bits())), Some(0));
        assert_eq!(to("s64", "f32", u64::from(f32::NAN.to_bits())), Some(1 << 63));
        assert_eq!(to("u8", "f32", u64::from(300f32.to_bits())), Some(255));
        assert_eq!(to("s32", "f64", (-1e30f64).to_bits()), Some(0x8000_0000));
    }

    #[test]
    fn minima_prefer_numbers_but_where_nan_is_asked_for() {
        let (nan, one) = (u64::from(f32::NAN.to_bits()), u64::from(1f32.to_bits()));
        assert_eq!(binary(Binary::Min, ty("f32"), nan, one).ok(), Some(one));
        let kept = binary(Binary::MinNan, ty("f32"), nan, one).unwrap_or(0);
        assert!(f32::from_bits(kept as u32).is_nan());
    }
}
