//! Element types of fewer than eight bits, and floats of eight; strings, which `composite` knows.
//!
//! What always holds: an operand of such a type is carried in bytes, one element each. Integers are carried
//! as `i8` or `u8` of the same value; floats as the bits of their format in `u8`. The builder keeps the type
//! beside the operand; `numbers` gives the values of one, `narrowed` rounds values to one. Formats of 8 bits:
//! Micikevicius et al., "FP8 formats for deep learning" (2022), and the OCP microscaling specification 1.0
//! for `f4e2m1` and `f8e8m0`; those ending in `fnuz` have no negative zero, one NaN and a bias larger by one.

use super::builder::{Builder, Operand};
use super::proto::tensor_proto::DataType as OnnxType;
use super::shorthands::Step;
use crate::NodeError;
use hone_ops::{BinaryFunction as B, Gather, UnaryFunction as U};
use hone_types::{DataType, Tensor};

/// An element type that is carried in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NarrowType {
    /// Signed integers of 4 bits.
    I4,
    /// Unsigned integers of 4 bits.
    U4,
    /// Signed integers of 2 bits.
    I2,
    /// Unsigned integers of 2 bits.
    U2,
    /// 2 bits of exponent, 1 of mantissa; finite numbers only.
    F4E2M1,
    /// 4 bits of exponent, 3 of mantissa; no infinities.
    F8E4M3Fn,
    /// As `F8E4M3Fn` without a negative zero.
    F8E4M3Fnuz,
    /// 5 bits of exponent, 2 of mantissa, as IEEE 754 has it.
    F8E5M2,
    /// As `F8E5M2` without infinities and a negative zero.
    F8E5M2Fnuz,
    /// Powers of two.
    F8E8M0,
    /// Strings: carried by their handles ([`hone_types::intern_text`]).
    Text,
}

use NarrowType as N;

/// Every narrow type with its number in ONNX and its name in text forms.
const TYPES: [(NarrowType, OnnxType, &str); 11] = [
    (N::I4, OnnxType::Int4, "i4"),
    (N::U4, OnnxType::Uint4, "u4"),
    (N::I2, OnnxType::Int2, "i2"),
    (N::U2, OnnxType::Uint2, "u2"),
    (N::F4E2M1, OnnxType::Float4e2m1, "f4e2m1"),
    (N::F8E4M3Fn, OnnxType::Float8e4m3fn, "f8e4m3fn"),
    (N::F8E4M3Fnuz, OnnxType::Float8e4m3fnuz, "f8e4m3fnuz"),
    (N::F8E5M2, OnnxType::Float8e5m2, "f8e5m2"),
    (N::F8E5M2Fnuz, OnnxType::Float8e5m2fnuz, "f8e5m2fnuz"),
    (N::F8E8M0, OnnxType::Float8e8m0, "f8e8m0"),
    (N::Text, OnnxType::String, "string"),
];

/// How numbers between two of a type are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rounding {
    /// To the nearest, halves to even.
    Nearest,
    /// Away from zero.
    Up,
    /// Towards zero.
    Down,
}

impl NarrowType {
    /// The type with ONNX's `number`, where it is a narrow one.
    pub(super) fn of_number(number: i32) -> Option<Self> {
        let known = OnnxType::try_from(number).ok()?;
        TYPES.iter().find(|(_, own, _)| *own == known).map(|(narrow, _, _)| *narrow)
    }

    /// Its number in ONNX.
    pub(super) fn number(self) -> i32 {
        let own = TYPES.iter().find(|(narrow, _, _)| *narrow == self);
        own.map_or(0, |(_, number, _)| *number as i32)
    }

    /// Its name in text forms.
    pub fn name(self) -> &'static str {
        TYPES.iter().find(|(narrow, _, _)| *narrow == self).map_or("?", |(_, _, name)| name)
    }

    /// The type of the bytes that carry it.
    pub fn carrier(self) -> DataType {
        match self {
            N::I4 | N::I2 => DataType::I8,
            N::Text => DataType::U64,
            _ => DataType::U8,
        }
    }

    /// Whether its elements are integers.
    pub fn is_integer(self) -> bool {
        matches!(self, N::I4 | N::U4 | N::I2 | N::U2)
    }

    /// Bits of an element where a file stores it.
    pub fn bits(self) -> usize {
        match self {
            N::I2 | N::U2 => 2,
            N::I4 | N::U4 | N::F4E2M1 => 4,
            N::Text => 64,
            _ => 8,
        }
    }

    /// Smallest and largest integer.
    pub(super) fn range(self) -> Option<[f64; 2]> {
        match self {
            N::I4 => Some([-8.0, 7.0]),
            N::U4 => Some([0.0, 15.0]),
            N::I2 => Some([-2.0, 1.0]),
            N::U2 => Some([0.0, 3.0]),
            _ => None,
        }
    }

    /// Elements as a file packs them, the first in the lowest bits, to one byte each.
    pub(super) fn unpack(self, packed: &[u8], elements: usize) -> Vec<u8> {
        let (bits, each) = (self.bits(), 8 / self.bits());
        let mask = u8::try_from((1u32 << bits) - 1).unwrap_or(u8::MAX);
        let sign = if self.carrier() == DataType::I8 { 1 << (bits - 1) } else { 0 };
        let element = |place: usize| {
            let low = packed[place / each] >> (place % each * bits) & mask;
            // Of a signed type the bits above the sign repeat it.
            if low & sign != 0 { low | !mask } else { low }
        };
        (0..elements).map(element).collect()
    }

    /// Bits of exponent and mantissa and the bias, of floats with a sign.
    fn format(self) -> Option<(u32, u32, i32)> {
        match self {
            N::F4E2M1 => Some((2, 1, 1)),
            N::F8E4M3Fn => Some((4, 3, 7)),
            N::F8E4M3Fnuz => Some((4, 3, 8)),
            N::F8E5M2 => Some((5, 2, 15)),
            N::F8E5M2Fnuz => Some((5, 2, 16)),
            _ => None,
        }
    }

    /// The number that `code` stands for.
    fn decoded(self, code: u8) -> f32 {
        let Some((exponents, mantissas, bias)) = self.format() else {
            return if code == 255 { f32::NAN } else { 2f64.powi(i32::from(code) - 127) as f32 };
        };
        let sign = 1u8 << (exponents + mantissas);
        let magnitude = code & (sign - 1);
        match self {
            N::F8E4M3Fn if magnitude == 0x7f => return f32::NAN,
            N::F8E5M2 if magnitude > 0x7c => return f32::NAN,
            N::F8E4M3Fnuz | N::F8E5M2Fnuz if code == 0x80 => return f32::NAN,
            _ => {}
        }
        let exponent = i32::from(magnitude >> mantissas);
        let fraction = f64::from(magnitude & ((1 << mantissas) - 1)) / f64::from(1u32 << mantissas);
        let value = match exponent {
            _ if self == N::F8E5M2 && magnitude == 0x7c => f64::INFINITY,
            0 => fraction * 2f64.powi(1 - bias),
            _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
        };
        if code & sign != 0 { -value as f32 } else { value as f32 }
    }

    /// How many codes stand for finite numbers that are not negative; they ascend from code 0.
    fn finite(self) -> u8 {
        match self {
            N::F4E2M1 => 8,
            N::F8E4M3Fn => 0x7f,
            N::F8E5M2 => 0x7c,
            N::F8E8M0 => 255,
            _ => 0x80,
        }
    }

    /// What a number too large becomes where it is not cut to the largest one.
    fn overflow(self) -> u8 {
        match self {
            N::F4E2M1 => 7,
            N::F8E4M3Fn => 0x7f,
            N::F8E5M2 => 0x7c,
            N::F8E8M0 => 255,
            _ => 0x80,
        }
    }

    /// The code of what is no number.
    fn not_a_number(self) -> u8 {
        match self {
            N::F8E5M2 => 0x7e,
            // It has none: a negative zero, as ONNX's own conversion has it.
            N::F4E2M1 => 8,
            other => other.overflow(),
        }
    }

    /// For each code above 0 the least magnitude that is rounded to it; one more for what is too large.
    fn thresholds(self, rounding: Rounding) -> Vec<f32> {
        let value = |code: u8| f64::from(self.decoded(code));
        let between = |low: f64, high: f64, to_upper: bool| -> f32 {
            match rounding {
                Rounding::Down => high as f32,
                Rounding::Up => (low as f32).next_up(),
                Rounding::Nearest => {
                    let half = ((low + high) / 2.0) as f32;
                    if to_upper { half } else { half.next_up() }
                }
            }
        };
        let even = |code: u8| code.is_multiple_of(2) || self == N::F8E8M0;
        let mut all: Vec<f32> = (1..self.finite())
            .map(|code| between(value(code - 1), value(code), even(code)))
            .collect();
        let (last, before) = (value(self.finite() - 1), value(self.finite() - 2));
        all.push(between(last, 2.0 * last - before, even(self.finite())));
        all
    }
}

impl Builder {
    /// The values of an operand: itself, but `f32` for narrow floats and `i8` or `u8` for narrow integers.
    pub fn numbers(&mut self, operand: Operand) -> Step {
        let Some(narrow) = self.narrow_type(operand) else { return Ok(operand) };
        if narrow == N::Text {
            return Err(NodeError::unsupported("computing with strings"));
        }
        if narrow.is_integer() {
            let same = self.alias(operand);
            return Ok(same);
        }
        let decoded: Vec<f32> = (0..=u8::MAX).map(|code| narrow.decoded(code)).collect();
        let table = self.constant(Tensor::from_elements([decoded.len()], &decoded)?);
        let codes = self.cast(operand, DataType::I32)?;
        self.apply(Gather { axis: 0 }, &[table, codes])
    }

    /// Numbers rounded to a narrow type. Integers wrap around, as conversions of integers do; floats beyond the
    /// largest number are cut to it where they `saturate`.
    pub fn narrowed(
        &mut self,
        operand: Operand,
        narrow: NarrowType,
        saturate: bool,
        rounding: Rounding,
    ) -> Step {
        let carried = match narrow.range() {
            Some([least, most]) => {
                let whole = self.cast(operand, DataType::I32)?;
                let raised = self.with_scalar(B::Subtract, whole, least)?;
                let wrapped = self.with_scalar(B::Modulo, raised, most - least + 1.0)?;
                let value = self.with_scalar(B::Add, wrapped, least)?;
                self.cast(value, narrow.carrier())?
            }
            None => self.encoded(operand, narrow, saturate, rounding)?,
        };
        let own = self.alias(carried);
        self.set_narrow(own, narrow);
        Ok(own)
    }

    /// Codes of narrow floats, by a binary search among the magnitudes from which on each is nearest.
    fn encoded(
        &mut self,
        operand: Operand,
        narrow: NarrowType,
        saturate: bool,
        rounding: Rounding,
    ) -> Step {
        let x = self.cast(operand, DataType::F32)?;
        let mut thresholds = narrow.thresholds(rounding);
        let largest = narrow.finite() - 1;
        let steps = if narrow.finite() <= 8 { 4 } else { 8 };
        // Never reached: magnitudes are cut below it.
        thresholds.resize((1 << steps) - 1, f32::INFINITY);
        let table = self.constant(Tensor::from_elements([thresholds.len()], &thresholds)?);
        let magnitude = self.unary(U::Abs, x)?;
        let magnitude = self.with_scalar(B::Minimum, magnitude, f64::from(f32::MAX))?;
        let shape = self.shape(x);
        let zero = self.scalar(DataType::I32, 0.0)?;
        let mut code = self.expand(zero, shape)?;
        for step in (0..steps).rev().map(|bit| 1 << bit) {
            let next = self.with_scalar(B::Add, code, f64::from(step))?;
            let place = self.with_scalar(B::Subtract, next, 1.0)?;
            let least = self.apply(Gather { axis: 0 }, &[table, place])?;
            let reached = self.binary(B::GreaterEqual, magnitude, least)?;
            code = self.select(reached, next, code)?;
        }
        let over = if saturate { largest } else { narrow.overflow() };
        let beyond = self.with_scalar(B::Greater, code, f64::from(largest))?;
        let over = self.scalar(DataType::I32, f64::from(over))?;
        code = self.select(beyond, over, code)?;
        if let Some((exponents, mantissas, _)) = narrow.format() {
            let negative = self.with_scalar(B::Less, x, 0.0)?;
            let sign =
                self.with_scalar(B::Add, code, f64::from(1u32 << (exponents + mantissas)))?;
            let signed = self.select(negative, sign, code)?;
            code = match narrow {
                // Its one NaN has the code of a negative zero.
                N::F8E4M3Fnuz | N::F8E5M2Fnuz => {
                    let bits = self.with_scalar(B::Modulo, code, 128.0)?;
                    let unsigned = self.with_scalar(B::Equal, bits, 0.0)?;
                    self.select(unsigned, code, signed)?
                }
                _ => signed,
            };
        }
        let none = self.unary(U::IsNan, x)?;
        let nan = self.scalar(DataType::I32, f64::from(narrow.not_a_number()))?;
        let code = self.select(none, nan, code)?;
        self.cast(code, DataType::U8)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn formats_hold_the_numbers_that_their_specifications_name() {
        assert_eq!(N::F8E4M3Fn.decoded(0x7e), 448.0);
        assert_eq!(N::F8E5M2.decoded(0x7b), 57_344.0);
        assert_eq!(N::F8E4M3Fnuz.decoded(0x7f), 240.0);
        assert_eq!(N::F8E5M2Fnuz.decoded(0x7f), 57_344.0);
        assert_eq!(N::F4E2M1.decoded(0xf), -6.0);
        assert_eq!(N::F8E8M0.decoded(127), 1.0);
        assert!(N::F8E4M3Fnuz.decoded(0x80).is_nan() && N::F8E8M0.decoded(255).is_nan());
    }

    #[test]
    fn every_number_lies_between_its_threshold_and_the_next() {
        let floats = |own: &&(NarrowType, OnnxType, &str)| !own.0.is_integer() && own.0 != N::Text;
        for (narrow, _, _) in TYPES.iter().filter(floats) {
            let thresholds = narrow.thresholds(Rounding::Nearest);
            for code in 1..narrow.finite() {
                let (value, place) = (narrow.decoded(code), usize::from(code));
                assert!(
                    thresholds[place - 1] <= value && value < thresholds[place],
                    "{narrow:?} {code}"
                );
            }
        }
    }

    #[test]
    fn packed_elements_keep_their_sign() {
        assert_eq!(N::I4.unpack(&[0xf7, 0x08], 3), [7, 0xff, 0xf8]);
        assert_eq!(N::U2.unpack(&[0b11_10_01_00], 4), [0, 1, 2, 3]);
        assert_eq!(N::I2.unpack(&[0b11_10_01_00], 4), [0, 1, 0xfe, 0xff]);
    }
}
