//! Mathematical functions as inline code, on scalars and vectors alike: nothing calls a library.
//!
//! In `f32`: exp and log have separate code, within 2 units in the last place; sigmoid,
//! within 3 down to the smallest normal number, which replaces all smaller results; and erf and tanh, within 6.
//! Every other function is computed in `f64` and rounded, within 1. In `f64`: relative error below
//! 1e-12 (absolute, for sine and cosine). Arguments of sine, cosine and tangent are reduced exactly
//! up to 2^30 in magnitude; beyond that their error grows with the argument.

mod coefficients;
mod double;
mod single;

use super::emitter::Emitter;
use super::ir::{Ir, V, scalar_of};
use crate::error::Result;
use hone_tensor::UnaryOp;
use inkwell::values::InstructionOpcode as Op;
use inkwell::{FloatPredicate, IntPredicate};

/// Arithmetic as the formulas are written.
impl<'c> Ir<'c> {
    pub(crate) fn add(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        self.binary(Op::FAdd, a, b)
    }

    pub(crate) fn sub(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        self.binary(Op::FSub, a, b)
    }

    pub(crate) fn mul(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        self.binary(Op::FMul, a, b)
    }

    pub(crate) fn div(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        self.binary(Op::FDiv, a, b)
    }

    pub(crate) fn negate(&self, a: V<'c>) -> Result<V<'c>> {
        Ok(match a {
            V::VectorValue(vector) => self.builder.build_float_neg(vector, "")?.into(),
            scalar => self.builder.build_float_neg(scalar.into_float_value(), "")?.into(),
        })
    }

    /// The constant `value` in the shape of `like`.
    fn like(&self, like: V<'c>, value: f64) -> V<'c> {
        self.float(like.get_type(), value)
    }

    /// The polynomial of the given coefficients, constant term first.
    fn polynomial(&self, x: V<'c>, coefficients: &[f64]) -> Result<V<'c>> {
        let Some((last, rest)) = coefficients.split_last() else { return Ok(self.like(x, 0.0)) };
        rest.iter().rev().try_fold(self.like(x, *last), |sum, coefficient| {
            self.multiply_add(sum, x, self.like(x, *coefficient))
        })
    }

    /// `x` brought into `low..=high`; NaN stays NaN.
    fn clamp(&self, x: V<'c>, low: f64, high: f64) -> Result<V<'c>> {
        self.at_most(self.at_least(x, low)?, high)
    }

    /// `x`, but at least `low`; NaN stays NaN.
    fn at_least(&self, x: V<'c>, low: f64) -> Result<V<'c>> {
        let low = self.like(x, low);
        self.select(self.compare_float(FloatPredicate::OGT, low, x)?, low, x)
    }

    /// `x`, but at most `high`; NaN stays NaN.
    fn at_most(&self, x: V<'c>, high: f64) -> Result<V<'c>> {
        let high = self.like(x, high);
        self.select(self.compare_float(FloatPredicate::OLT, high, x)?, high, x)
    }

    /// `chosen` where `x` is a number, else `x`.
    fn unless_nan(&self, x: V<'c>, chosen: V<'c>) -> Result<V<'c>> {
        let nan = self.compare_float(FloatPredicate::UNO, x, x)?;
        self.select(nan, x, chosen)
    }

    fn magnitude(&self, x: V<'c>) -> Result<V<'c>> {
        self.unary_intrinsic("llvm.fabs", x)
    }

    fn square_root(&self, x: V<'c>) -> Result<V<'c>> {
        self.unary_intrinsic("llvm.sqrt", x)
    }

    /// `magnitude` with the sign of `sign`.
    fn with_sign(&self, magnitude: V<'c>, sign: V<'c>) -> Result<V<'c>> {
        self.binary_intrinsic("llvm.copysign", magnitude, sign)
    }

    fn less(&self, a: V<'c>, b: f64) -> Result<V<'c>> {
        self.compare_float(FloatPredicate::OLT, a, self.like(a, b))
    }

    fn bits_of(&self, x: V<'c>) -> Result<V<'c>> {
        let bits =
            if self.is_double(x) { self.context.i64_type() } else { self.context.i32_type() };
        self.convert(Op::BitCast, x, bits.into())
    }

    fn of_bits(&self, bits: V<'c>, like: V<'c>) -> Result<V<'c>> {
        self.convert(Op::BitCast, bits, scalar_of(like.get_type()))
    }

    pub(crate) fn is_double(&self, x: V<'c>) -> bool {
        scalar_of(x.get_type()) == self.context.f64_type().into()
    }

    /// `x * 2^n` for whole `n` up to twice the exponents' range, as two exact factors.
    fn scale(&self, x: V<'c>, n: V<'c>) -> Result<V<'c>> {
        let (fraction, bias) = if self.is_double(x) { (52, 1023) } else { (23, 127) };
        let ty = n.get_type();
        let half = self.binary(Op::AShr, n, self.int(ty, 1))?;
        let rest = self.binary(Op::Sub, n, half)?;
        let power = |n: V<'c>| -> Result<V<'c>> {
            let biased = self.binary(Op::Add, n, self.int(ty, bias))?;
            self.of_bits(self.binary(Op::Shl, biased, self.int(ty, fraction))?, x)
        };
        self.mul(self.mul(x, power(half)?)?, power(rest)?)
    }

    /// The whole number nearest to `x`, as a float and as an integer of the same width, for |x| up
    /// to 2^22 (`f64`: 2^51): adding 1.5 times the power of two from which on floats are whole.
    fn nearest(&self, x: V<'c>) -> Result<(V<'c>, V<'c>)> {
        let large = if self.is_double(x) { 1.5 * 2f64.powi(52) } else { 1.5 * 2f64.powi(23) };
        let large = self.like(x, large);
        let moved = self.add(x, large)?;
        let n = self.binary(Op::Sub, self.bits_of(moved)?, self.bits_of(large)?)?;
        Ok((self.sub(moved, large)?, n))
    }

    /// Floor, ceiling, truncation or rounding to even by additions alone, for processors without an
    /// instruction for it.
    fn whole_number(&self, op: UnaryOp, x: V<'c>) -> Result<V<'c>> {
        let large = self.like(x, if self.is_double(x) { 2f64.powi(52) } else { 2f64.powi(23) });
        let size = self.magnitude(x)?;
        let near = self.sub(self.add(size, large)?, large)?;
        let one = self.like(x, 1.0);
        let above = self.compare_float(FloatPredicate::OGT, near, size)?;
        let cut = self.select(above, self.sub(near, one)?, near)?;
        let below = self.compare_float(FloatPredicate::OLT, cut, size)?;
        let raised = self.select(below, self.add(cut, one)?, cut)?;
        let negative = self.less(x, 0.0)?;
        let rounded = match op {
            UnaryOp::Floor => self.select(negative, raised, cut)?,
            UnaryOp::Ceil => self.select(negative, cut, raised)?,
            UnaryOp::Truncate => cut,
            _ => near,
        };
        let fraction = self.compare_float(FloatPredicate::OLT, size, large)?;
        self.select(fraction, self.with_sign(rounded, x)?, x)
    }

    /// `x = mantissa * 2^exponent` with the mantissa in [√½, √2), for positive finite `x`,
    /// subnormal ones included; the exponent as a float.
    fn split_exponent(&self, x: V<'c>) -> Result<(V<'c>, V<'c>)> {
        let double = self.is_double(x);
        let (fraction, smallest_normal, lift) = if double {
            (52, f64::MIN_POSITIVE, 54)
        } else {
            (23, f64::from(f32::MIN_POSITIVE), 25)
        };
        let small = self.less(x, smallest_normal)?;
        let lifted = self.mul(x, self.like(x, 2f64.powi(lift)))?;
        let bits = self.bits_of(self.select(small, lifted, x)?)?;
        let ty = bits.get_type();
        // Adding the distance from √½ to 1 moves the boundary between two exponents there.
        let root = if double {
            std::f64::consts::FRAC_1_SQRT_2.to_bits().cast_signed()
        } else {
            i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits())
        };
        let offset = self.binary(Op::Sub, bits, self.int(ty, root))?;
        let exponent = self.binary(Op::AShr, offset, self.int(ty, fraction))?;
        let shift = self.binary(Op::Shl, exponent, self.int(ty, fraction))?;
        let mantissa = self.of_bits(self.binary(Op::Sub, bits, shift)?, x)?;
        let exponent = self.convert(Op::SIToFP, exponent, scalar_of(x.get_type()))?;
        let lowered = self.sub(exponent, self.like(x, f64::from(lift)))?;
        Ok((mantissa, self.select(small, lowered, exponent)?))
    }

    /// Logarithms at the ends: of 0, of negative numbers, of infinity and NaN.
    fn logarithm_ends(&self, x: V<'c>, finite: V<'c>) -> Result<V<'c>> {
        let zero = self.like(x, 0.0);
        let infinity = self.like(x, f64::INFINITY);
        let at_zero = self.compare_float(FloatPredicate::OEQ, x, zero)?;
        let value = self.select(at_zero, self.like(x, f64::NEG_INFINITY), finite)?;
        let negative = self.compare_float(FloatPredicate::ULT, x, zero)?;
        let value = self.select(negative, self.like(x, f64::NAN), value)?;
        let at_infinity = self.compare_float(FloatPredicate::OEQ, x, infinity)?;
        self.select(at_infinity, infinity, value)
    }
}

impl<'c> Emitter<'c, '_> {
    /// A function of a floating-point value.
    pub(crate) fn math(&self, op: UnaryOp, x: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        match op {
            UnaryOp::Sqrt => return ir.square_root(x),
            UnaryOp::Floor => return self.rounding(op, "llvm.floor", x),
            UnaryOp::Ceil => return self.rounding(op, "llvm.ceil", x),
            UnaryOp::Truncate => return self.rounding(op, "llvm.trunc", x),
            UnaryOp::Round => return self.rounding(op, "llvm.roundeven", x),
            _ => {}
        }
        if ir.is_double(x) {
            return match ir.double_function(op, x)? {
                Some(value) => Ok(value),
                None => Err(self.unsupported(format!("{op:?} has no code"))),
            };
        }
        if let Some(value) = ir.single_function(op, x)? {
            return Ok(value);
        }
        self.in_double(x, |extended| self.math(op, extended))
    }

    /// Computes in `f64` and rounds to `f32`.
    fn in_double(&self, x: V<'c>, function: impl FnOnce(V<'c>) -> Result<V<'c>>) -> Result<V<'c>> {
        let extended = self.ir.convert(Op::FPExt, x, self.ir.context.f64_type().into())?;
        let result = function(extended)?;
        self.ir.convert(Op::FPTrunc, result, self.ir.context.f32_type().into())
    }

    fn rounding(&self, op: UnaryOp, name: &str, x: V<'c>) -> Result<V<'c>> {
        match self.target.rounding {
            true => self.ir.unary_intrinsic(name, x),
            false => self.ir.whole_number(op, x),
        }
    }

    /// `a` to the power of `b`, with C's results at the ends.
    pub(crate) fn power(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        if ir.is_double(a) {
            return ir.double_power(a, b, self.target.rounding);
        }
        let double = ir.context.f64_type().into();
        let extended = ir.convert(Op::FPExt, b, double)?;
        self.in_double(a, |a| ir.double_power(a, extended, self.target.rounding))
    }

    /// `a - b * trunc(a / b)`, exact where the quotient is below 2^53.
    pub(crate) fn float_remainder(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        if !ir.is_double(a) {
            let extended = ir.convert(Op::FPExt, b, ir.context.f64_type().into())?;
            return self.in_double(a, |a| self.float_remainder(a, extended));
        }
        let quotient = self.math(UnaryOp::Truncate, ir.div(a, b)?)?;
        let rest = ir.cancelling_sum(ir.negate(quotient)?, b, a)?;
        // The quotient may have been rounded up to the next whole number.
        let size = ir.magnitude(b)?;
        let opposite = ir.compare_float(FloatPredicate::OLT, ir.mul(rest, a)?, ir.like(a, 0.0))?;
        let back = ir.add(rest, ir.with_sign(size, a)?)?;
        let rest = ir.select(opposite, back, rest)?;
        let whole = ir.compare_float(FloatPredicate::OEQ, size, ir.like(a, f64::INFINITY))?;
        let finite = ir.less(ir.magnitude(a)?, f64::INFINITY)?;
        let unchanged = ir.binary(Op::And, whole, finite)?;
        ir.with_sign(ir.select(unchanged, a, rest)?, a)
    }

    /// The remainder with the divisor's sign.
    pub(crate) fn float_modulo(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let rest = self.float_remainder(a, b)?;
        let zero = ir.like(a, 0.0);
        let inexact = ir.compare_float(FloatPredicate::UNE, rest, zero)?;
        let signs = ir.binary(Op::Xor, ir.bits_of(rest)?, ir.bits_of(b)?)?;
        let opposed = ir.compare_int(IntPredicate::SLT, signs, ir.int(signs.get_type(), 0))?;
        let move_up = ir.binary(Op::And, inexact, opposed)?;
        let moved = ir.select(move_up, ir.add(rest, b)?, rest)?;
        let exact = ir.compare_float(FloatPredicate::OEQ, rest, zero)?;
        ir.select(exact, ir.with_sign(zero, b)?, moved)
    }
}
