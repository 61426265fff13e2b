//! Functions computed in `f64`.

use super::coefficients::{
    ASIN, ATAN, COS, ERF_F64, ERFC_F64, EXP_F64, LOG_F64, SIN, SINH, TANH_F64,
};
use crate::error::Result;
use crate::llvm::ir::{Ir, V};
use hone_tensor::UnaryOp;
use inkwell::values::InstructionOpcode as Op;
use inkwell::{FloatPredicate, IntPredicate};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E};

/// ln(2) in two parts, the first with zeros at its end so that multiples of it are exact.
const LN2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
/// π/2 in three parts, the first two with zeros at their end.
const PI_2: [f64; 3] =
    [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];
/// tan(π/8)
const TAN_PI_8: f64 = 0.414_213_562_373_095_05;

impl<'c> Ir<'c> {
    pub(super) fn double_function(&self, op: UnaryOp, x: V<'c>) -> Result<Option<V<'c>>> {
        match op {
            UnaryOp::Exp => self.exp_f64(x),
            UnaryOp::Log => self.log_f64(x),
            UnaryOp::Tanh => self.tanh_f64(x),
            UnaryOp::Erf => self.erf_f64(x),
            UnaryOp::Sigmoid => self.sigmoid_f64(x),
            UnaryOp::Sin => self.circular(x).map(|(sine, _)| sine),
            UnaryOp::Cos => self.circular(x).map(|(_, cosine)| cosine),
            UnaryOp::Tan => self.circular(x).and_then(|(sine, cosine)| self.div(sine, cosine)),
            UnaryOp::Asin => self.asin(x),
            UnaryOp::Acos => self.acos(x),
            UnaryOp::Atan => self.atan(x),
            UnaryOp::Sinh => self.sinh(x),
            UnaryOp::Cosh => self.cosh(x),
            UnaryOp::Asinh => self.asinh(x),
            UnaryOp::Acosh => self.acosh(x),
            UnaryOp::Atanh => self.atanh(x),
            _ => return Ok(None),
        }
        .map(Some)
    }

    fn exp_f64(&self, x: V<'c>) -> Result<V<'c>> {
        self.exp_sum(x, self.like(x, 0.0))
    }

    /// e^(x + low), `low` a small correction of `x`.
    fn exp_sum(&self, x: V<'c>, low: V<'c>) -> Result<V<'c>> {
        let bounded = self.clamp(x, -760.0, 720.0)?;
        let (whole, n) = self.nearest(self.mul(bounded, self.like(x, LOG2_E))?)?;
        let minus = self.negate(whole)?;
        let r = self.multiply_add(minus, self.like(x, LN2[0]), bounded)?;
        let correction = self.multiply_add(minus, self.like(x, LN2[1]), low)?;
        let r = self.add(r, correction)?;
        let p = self.polynomial(r, &EXP_F64)?;
        let p = self.multiply_add(p, r, self.like(x, 0.5))?;
        let p = self.multiply_add(p, self.mul(r, r)?, r)?;
        self.unless_nan(x, self.scale(self.add(p, self.like(x, 1.0))?, n)?)
    }

    /// ln x for positive finite x, as a sum of a large and a small part.
    fn log_parts(&self, x: V<'c>) -> Result<(V<'c>, V<'c>)> {
        let (mantissa, exponent) = self.split_exponent(x)?;
        let f = self.sub(mantissa, self.like(x, 1.0))?;
        // ln(1+f) = f - f²/2 + s (f²/2 + s² P(s²)·…) with s = f/(2+f), as 2s = f - s f.
        let s = self.div(f, self.add(f, self.like(x, 2.0))?)?;
        let z = self.mul(s, s)?;
        let p = self.mul(self.polynomial(z, &LOG_F64)?, z)?;
        // The square of f loses digits that are kept apart.
        let (half, lost) = self.exact_product(self.mul(f, self.like(x, 0.5))?, f)?;
        let tail = self.mul(s, self.add(half, p)?)?;
        let low = self.multiply_add(exponent, self.like(x, LN2[1]), self.sub(tail, lost)?)?;
        let high = self.mul(exponent, self.like(x, LN2[0]))?;
        let (sum, error) = self.two_sum(high, f)?;
        let (sum, second) = self.two_sum(sum, self.negate(half)?)?;
        self.two_sum(sum, self.add(low, self.add(error, second)?)?)
    }

    /// `a + b` and what its rounding lost.
    fn two_sum(&self, a: V<'c>, b: V<'c>) -> Result<(V<'c>, V<'c>)> {
        let sum = self.add(a, b)?;
        let part = self.sub(sum, a)?;
        let error = self.add(self.sub(a, self.sub(sum, part)?)?, self.sub(b, part)?)?;
        Ok((sum, error))
    }

    /// `a * b` and what its rounding lost, in `f64`. Where no instruction keeps it, by Dekker's
    /// splitting ("A floating-point technique for extending the available precision", 1971), which
    /// keeps nothing for factors beyond 2^996.
    pub(super) fn exact_product(&self, a: V<'c>, b: V<'c>) -> Result<(V<'c>, V<'c>)> {
        let product = self.mul(a, b)?;
        if self.fused {
            return Ok((product, self.multiply_add(a, b, self.negate(product)?)?));
        }
        let split = |x: V<'c>| -> Result<(V<'c>, V<'c>)> {
            let large = self.mul(x, self.like(x, 2f64.powi(27) + 1.0))?;
            let high = self.sub(large, self.sub(large, x)?)?;
            Ok((high, self.sub(x, high)?))
        };
        let ((a_high, a_low), (b_high, b_low)) = (split(a)?, split(b)?);
        let lost = self.sub(self.mul(a_high, b_high)?, product)?;
        let lost = self.add(lost, self.mul(a_high, b_low)?)?;
        let lost = self.add(lost, self.mul(a_low, b_high)?)?;
        let lost = self.add(lost, self.mul(a_low, b_low)?)?;
        let finite = self.less(self.magnitude(lost)?, f64::INFINITY)?;
        Ok((product, self.select(finite, lost, self.like(a, 0.0))?))
    }

    /// `c + a * b` in `f64`, for a sum that cancels: what the product's rounding lost is added last.
    pub(super) fn cancelling_sum(&self, a: V<'c>, b: V<'c>, c: V<'c>) -> Result<V<'c>> {
        if self.fused {
            return self.multiply_add(a, b, c);
        }
        let (product, lost) = self.exact_product(a, b)?;
        self.add(self.add(c, product)?, lost)
    }

    fn log_f64(&self, x: V<'c>) -> Result<V<'c>> {
        let (high, low) = self.log_parts(x)?;
        self.logarithm_ends(x, self.add(high, low)?)
    }

    /// ln(1 + y), also where y is small: the rounding of `1 + y` cancels in the quotient.
    fn log_plus_one(&self, y: V<'c>) -> Result<V<'c>> {
        let one = self.like(y, 1.0);
        let sum = self.add(one, y)?;
        let grown = self.sub(sum, one)?;
        let value = self.mul(self.log_f64(sum)?, self.div(y, grown)?)?;
        let tiny = self.compare_float(FloatPredicate::OEQ, grown, self.like(y, 0.0))?;
        let infinite = self.compare_float(FloatPredicate::OEQ, sum, self.like(y, f64::INFINITY))?;
        let value = self.select(infinite, sum, value)?;
        self.select(tiny, y, value)
    }

    fn tanh_f64(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let square = self.mul(x, x)?;
        let p = self.mul(self.polynomial(square, &TANH_F64)?, square)?;
        let near = self.multiply_add(p, size, size)?;
        let power = self.exp_f64(self.add(size, size)?)?;
        let one = self.like(x, 1.0);
        let far = self.add(one, self.div(self.like(x, -2.0), self.add(power, one)?)?)?;
        self.with_sign(self.select(self.less(size, 0.625)?, near, far)?, x)
    }

    fn sigmoid_f64(&self, x: V<'c>) -> Result<V<'c>> {
        let power = self.exp_f64(self.negate(self.magnitude(x)?)?)?;
        let one = self.like(x, 1.0);
        let top = self.select(self.less(x, 0.0)?, power, one)?;
        self.div(top, self.add(one, power)?)
    }

    fn erf_f64(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let square = self.mul(x, x)?;
        let near = self.multiply_add(self.polynomial(square, &ERF_F64)?, size, size)?;
        let bounded = self.clamp(size, 0.9, 6.0)?;
        let two = self.like(x, 2.0);
        let t = self.div(two, self.add(two, bounded)?)?;
        let p = self.polynomial(self.sub(t, self.like(x, 0.45))?, &ERFC_F64)?;
        let exponent = self.multiply_add(self.negate(bounded)?, bounded, p)?;
        let complement = self.mul(self.exp_f64(exponent)?, t)?;
        let far = self.sub(self.like(x, 1.0), complement)?;
        let chosen = self.select(self.less(size, 0.9)?, near, far)?;
        self.unless_nan(x, self.with_sign(chosen, x)?)
    }

    /// Sine and cosine: x = n π/2 + r, and n's last two bits pick the quadrant.
    fn circular(&self, x: V<'c>) -> Result<(V<'c>, V<'c>)> {
        let bounded = self.clamp(x, -1e15, 1e15)?;
        let (whole, n) = self.nearest(self.mul(bounded, self.like(x, FRAC_2_PI))?)?;
        let minus = self.negate(whole)?;
        let r = PI_2
            .into_iter()
            .try_fold(bounded, |r, part| self.cancelling_sum(minus, self.like(x, part), r))?;
        let square = self.mul(r, r)?;
        let s = self.mul(self.polynomial(square, &SIN)?, square)?;
        let sine = self.multiply_add(s, r, r)?;
        let c = self.polynomial(square, &COS)?;
        let c = self.multiply_add(c, square, self.like(x, -0.5))?;
        let cosine = self.multiply_add(c, square, self.like(x, 1.0))?;
        let bit = |value: V<'c>, bit: i64| -> Result<V<'c>> {
            let ty = value.get_type();
            let picked = self.binary(Op::And, value, self.int(ty, bit))?;
            self.compare_int(IntPredicate::NE, picked, self.int(ty, 0))
        };
        let next = self.binary(Op::Add, n, self.int(n.get_type(), 1))?;
        let swapped = bit(n, 1)?;
        let signed = |value: V<'c>, flip: V<'c>| self.select(flip, self.negate(value)?, value);
        let sine_part = signed(self.select(swapped, cosine, sine)?, bit(n, 2)?)?;
        let cosine_part = signed(self.select(swapped, sine, cosine)?, bit(next, 2)?)?;
        // Infinity and NaN have no angle.
        let finite = self.less(self.magnitude(x)?, f64::INFINITY)?;
        let nan = self.like(x, f64::NAN);
        Ok((self.select(finite, sine_part, nan)?, self.select(finite, cosine_part, nan)?))
    }

    fn atan(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let one = self.like(x, 1.0);
        let small = self.less(size, TAN_PI_8)?;
        let large = self.compare_float(FloatPredicate::OGT, size, self.like(x, 1.0 / TAN_PI_8))?;
        let middle = self.div(self.sub(size, one)?, self.add(size, one)?)?;
        let inverse = self.div(self.like(x, -1.0), size)?;
        let t = self.select(small, size, self.select(large, inverse, middle)?)?;
        let zero = self.like(x, 0.0);
        let (quarter, right) = (self.like(x, FRAC_PI_4), self.like(x, FRAC_PI_2));
        let base = self.select(small, zero, self.select(large, right, quarter)?)?;
        let square = self.mul(t, t)?;
        let p = self.mul(self.polynomial(square, &ATAN)?, square)?;
        let value = self.add(base, self.multiply_add(p, t, t)?)?;
        self.unless_nan(x, self.with_sign(value, x)?)
    }

    /// asin t for 0 ≤ t ≤ ½.
    fn asin_near(&self, t: V<'c>, square: V<'c>) -> Result<V<'c>> {
        let p = self.mul(self.polynomial(square, &ASIN)?, square)?;
        self.multiply_add(p, t, t)
    }

    /// Whether |x| > ½, and asin of |x| or of √((1-|x|)/2) then.
    fn asin_reduced(&self, x: V<'c>) -> Result<(V<'c>, V<'c>)> {
        let size = self.magnitude(x)?;
        let half = self.like(x, 0.5);
        let far = self.compare_float(FloatPredicate::OGT, size, half)?;
        let folded = self.mul(self.sub(self.like(x, 1.0), size)?, half)?;
        let square = self.select(far, folded, self.mul(x, x)?)?;
        let t = self.select(far, self.square_root(folded)?, size)?;
        Ok((far, self.asin_near(t, square)?))
    }

    fn asin(&self, x: V<'c>) -> Result<V<'c>> {
        let (far, near) = self.asin_reduced(x)?;
        let folded = self.multiply_add(near, self.like(x, -2.0), self.like(x, FRAC_PI_2))?;
        self.unless_nan(x, self.with_sign(self.select(far, folded, near)?, x)?)
    }

    fn acos(&self, x: V<'c>) -> Result<V<'c>> {
        let (far, near) = self.asin_reduced(x)?;
        let twice = self.add(near, near)?;
        let negative = self.less(x, 0.0)?;
        let reflected = self.sub(self.like(x, std::f64::consts::PI), twice)?;
        let outer = self.select(negative, reflected, twice)?;
        let inner = self.sub(self.like(x, FRAC_PI_2), self.with_sign(near, x)?)?;
        self.unless_nan(x, self.select(far, outer, inner)?)
    }

    fn sinh(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let square = self.mul(x, x)?;
        let p = self.mul(self.polynomial(square, &SINH)?, square)?;
        let near = self.multiply_add(p, size, size)?;
        // Halving the argument keeps the power finite as long as the result is.
        let root = self.exp_f64(self.mul(size, self.like(x, 0.5))?)?;
        let rising = self.mul(self.mul(root, self.like(x, 0.5))?, root)?;
        let falling = self.div(self.like(x, 0.25), rising)?;
        let far = self.sub(rising, falling)?;
        self.with_sign(self.select(self.less(size, 1.0)?, near, far)?, x)
    }

    fn cosh(&self, x: V<'c>) -> Result<V<'c>> {
        let root = self.exp_f64(self.mul(self.magnitude(x)?, self.like(x, 0.5))?)?;
        let rising = self.mul(self.mul(root, self.like(x, 0.5))?, root)?;
        self.add(rising, self.div(self.like(x, 0.25), rising)?)
    }

    fn asinh(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let one = self.like(x, 1.0);
        let square = self.mul(size, size)?;
        let root = self.square_root(self.add(square, one)?)?;
        let y = self.add(size, self.div(square, self.add(one, root)?)?)?;
        let near = self.log_plus_one(y)?;
        let far = self.add(self.log_f64(size)?, self.like(x, LN_2))?;
        self.with_sign(self.select(self.less(size, 1e9)?, near, far)?, x)
    }

    fn acosh(&self, x: V<'c>) -> Result<V<'c>> {
        let t = self.sub(x, self.like(x, 1.0))?;
        let root = self.square_root(self.multiply_add(t, t, self.add(t, t)?)?)?;
        let near = self.log_plus_one(self.add(t, root)?)?;
        let far = self.add(self.log_f64(x)?, self.like(x, LN_2))?;
        let value = self.select(self.less(x, 1e9)?, near, far)?;
        self.select(self.less(x, 1.0)?, self.like(x, f64::NAN), value)
    }

    fn atanh(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let one = self.like(x, 1.0);
        let y = self.div(self.add(size, size)?, self.sub(one, size)?)?;
        let value = self.mul(self.log_plus_one(y)?, self.like(x, 0.5))?;
        let above = self.compare_float(FloatPredicate::OGT, size, one)?;
        let value = self.select(above, self.like(x, f64::NAN), value)?;
        self.with_sign(value, x)
    }

    /// `a` to the power of `b`: e^(b ln a), with C's results at the ends.
    pub(super) fn double_power(&self, a: V<'c>, b: V<'c>, rounding: bool) -> Result<V<'c>> {
        let truncate = |x: V<'c>| match rounding {
            true => self.unary_intrinsic("llvm.trunc", x),
            false => self.whole_number(UnaryOp::Truncate, x),
        };
        let (a, b) = self.unify(a, b)?;
        let (zero, one) = (self.like(a, 0.0), self.like(a, 1.0));
        let infinity = self.like(a, f64::INFINITY);
        let size = self.magnitude(a)?;
        let (high, low) = self.log_parts(size)?;
        let at_zero = self.compare_float(FloatPredicate::OEQ, size, zero)?;
        let at_infinity = self.compare_float(FloatPredicate::OEQ, size, infinity)?;
        let special = self.binary(Op::Or, at_zero, at_infinity)?;
        let end = self.select(at_zero, self.like(a, f64::NEG_INFINITY), infinity)?;
        let high = self.select(special, end, high)?;
        let low = self.select(special, zero, low)?;
        // What the product's rounding lost, and the logarithm's small part.
        let (product, lost) = self.exact_product(high, b)?;
        let correction = self.multiply_add(low, b, lost)?;
        let bounded = self.less(self.magnitude(correction)?, 1.0)?;
        let correction = self.select(bounded, correction, zero)?;
        let power = self.exp_sum(product, correction)?;
        // ±1 to an infinite power is 1, though the logarithm's product is undefined.
        let unit_size = self.compare_float(FloatPredicate::OEQ, size, one)?;
        let power = self.select(unit_size, one, power)?;
        let whole = self.compare_float(FloatPredicate::OEQ, truncate(b)?, b)?;
        let whole_base = self.compare_float(FloatPredicate::OEQ, truncate(a)?, a)?;
        let power = self.whole_power(self.binary(Op::And, whole, whole_base)?, b, power)?;
        let halved = self.mul(b, self.like(b, 0.5))?;
        let halved_whole = truncate(halved)?;
        let is_odd = self.compare_float(FloatPredicate::ONE, halved_whole, halved)?;
        let odd = self.binary(Op::And, whole, is_odd)?;
        let signed = self.select(odd, self.with_sign(power, a)?, power)?;
        let negative = self.less(a, 0.0)?;
        let finite = self.less(size, f64::INFINITY)?;
        let broken = self.binary(Op::Xor, whole, self.int(whole.get_type(), -1))?;
        let undefined = self.binary(Op::And, self.binary(Op::And, negative, finite)?, broken)?;
        let value = self.select(undefined, self.like(a, f64::NAN), signed)?;
        let nan = self.compare_float(FloatPredicate::UNO, a, b)?;
        let value = self.select(nan, self.like(a, f64::NAN), value)?;
        let unit_exponent = self.compare_float(FloatPredicate::OEQ, b, zero)?;
        let unit_base = self.compare_float(FloatPredicate::OEQ, a, one)?;
        let unit = self.binary(Op::Or, unit_exponent, unit_base)?;
        self.select(unit, one, value)
    }

    /// A whole power, of an exponent `b` that is not negative, of a whole number is whole: so that a
    /// cast to integers cuts nothing off, it is rounded to the nearest where that is exact.
    fn whole_power(&self, whole: V<'c>, b: V<'c>, power: V<'c>) -> Result<V<'c>> {
        let rising = self.compare_float(FloatPredicate::OGE, b, self.like(b, 0.0))?;
        let exact = self.binary(Op::And, rising, self.less(power, 2f64.powi(50))?)?;
        let (nearest, _) = self.nearest(power)?;
        self.select(self.binary(Op::And, whole, exact)?, nearest, power)
    }
}
