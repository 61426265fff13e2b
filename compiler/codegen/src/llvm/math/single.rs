//! Functions computed in `f32`.

use super::coefficients::{
    ERF_BOTTOM_F32, ERF_TOP_F32, EXP_F32, EXP_MINUS_F32, LOG_F32, TANH_BOTTOM_F32, TANH_TOP_F32,
};
use crate::error::Result;
use crate::llvm::ir::{Ir, V, lanes};
use hone_tensor::UnaryOp;
use inkwell::values::InstructionOpcode as Op;
use std::f64::consts::LOG2_E;

/// ln(2) in two parts, the first with zeros at its end so that multiples of it are exact.
const LN2: [f64; 2] = [0.693_359_375, -2.121_944_400_546_905_8e-4];

impl<'c> Ir<'c> {
    /// Those functions that have separate code for `f32`.
    pub(super) fn single_function(&self, op: UnaryOp, x: V<'c>) -> Result<Option<V<'c>>> {
        match op {
            UnaryOp::Exp => self.exp_f32(x),
            UnaryOp::Log => self.log_f32(x),
            UnaryOp::Tanh => self.tanh_f32(x),
            UnaryOp::Erf => self.erf_f32(x),
            UnaryOp::Sigmoid => self.sigmoid_f32(x),
            _ => return Ok(None),
        }
        .map(Some)
    }

    fn exp_f32(&self, x: V<'c>) -> Result<V<'c>> {
        self.exp_below_f32(self.at_most(x, 89.0)?)
    }

    /// e^x with x = n ln 2 + r, for x up to 89; NaN stays NaN.
    fn exp_below_f32(&self, x: V<'c>) -> Result<V<'c>> {
        let bounded = self.at_least(x, -104.0)?;
        let (whole, n) = self.nearest_multiple(bounded, LOG2_E)?;
        let minus = self.negate(whole)?;
        let r = self.multiply_add(minus, self.like(x, LN2[0]), bounded)?;
        let r = self.multiply_add(minus, self.like(x, LN2[1]), r)?;
        let p = self.polynomial(r, &EXP_F32)?;
        let p = [0.5, 1.0, 1.0]
            .iter()
            .try_fold(p, |p, coefficient| self.multiply_add(p, r, self.like(x, *coefficient)))?;
        self.scale_whole(p, whole, n)
    }

    /// ln x = e ln 2 + ln(1 + f).
    fn log_f32(&self, x: V<'c>) -> Result<V<'c>> {
        let (mantissa, exponent) = self.split_exponent(x)?;
        let f = self.sub(mantissa, self.like(x, 1.0))?;
        let square = self.mul(f, f)?;
        let p = self.polynomial(f, &LOG_F32)?;
        let low = self.mul(exponent, self.like(x, LN2[1]))?;
        let tail = self.multiply_add(self.mul(p, f)?, square, low)?;
        let tail = self.multiply_add(square, self.like(x, -0.5), tail)?;
        let sum = self.add(f, tail)?;
        let value = self.multiply_add(exponent, self.like(x, LN2[0]), sum)?;
        self.logarithm_ends(x, value)
    }

    /// A quotient of polynomials up to where the function is 1 in `f32`.
    fn tanh_f32(&self, x: V<'c>) -> Result<V<'c>> {
        self.odd_quotient(x, 9.0, (&TANH_TOP_F32, &TANH_BOTTOM_F32))
    }

    /// `1 / (1 + e^-x)` with -x = n ln 2 - r. Below -87.3, where the result would be smaller than
    /// normal numbers are, it is the smallest of those.
    fn sigmoid_f32(&self, x: V<'c>) -> Result<V<'c>> {
        let bounded = self.clamp(x, -87.3, 104.0)?;
        let (whole, n) = self.nearest_multiple(bounded, -LOG2_E)?;
        let r = self.multiply_add(whole, self.like(x, LN2[0]), bounded)?;
        let r = self.multiply_add(whole, self.like(x, LN2[1]), r)?;
        let power = self.scale_whole(self.polynomial(r, &EXP_MINUS_F32)?, whole, n)?;
        let one = self.like(x, 1.0);
        let below = self.add(power, one)?;
        match self.reciprocal(below)? {
            Some(reciprocal) => Ok(reciprocal),
            None => self.div(one, below),
        }
    }

    /// A quotient of polynomials up to where the function is 1 in `f32`.
    fn erf_f32(&self, x: V<'c>) -> Result<V<'c>> {
        self.odd_quotient(x, 3.9, (&ERF_TOP_F32, &ERF_BOTTOM_F32))
    }

    /// An odd function that is 1 from `end` on: `x top(x²) / bottom(x²)`.
    fn odd_quotient(&self, x: V<'c>, end: f64, (top, bottom): (&[f64], &[f64])) -> Result<V<'c>> {
        let bounded = self.clamp(x, -end, end)?;
        let square = self.mul(bounded, bounded)?;
        let top = self.mul(bounded, self.polynomial(square, top)?)?;
        let bottom = self.polynomial(square, bottom)?;
        self.clamp(self.divide_bounded(top, bottom)?, -1.0, 1.0)
    }

    /// The whole number nearest to `x * factor`, as [`Ir::nearest`] gives it.
    fn nearest_multiple(&self, x: V<'c>, factor: f64) -> Result<(V<'c>, V<'c>)> {
        let large = self.like(x, 1.5 * 2f64.powi(23));
        let moved = self.multiply_add(x, self.like(x, factor), large)?;
        let n = self.binary(Op::Sub, self.bits_of(moved)?, self.bits_of(large)?)?;
        Ok((self.sub(moved, large)?, n))
    }

    /// `x * 2^n`; `whole` is `n` as a float.
    fn scale_whole(&self, x: V<'c>, whole: V<'c>, n: V<'c>) -> Result<V<'c>> {
        if let Some((low, high)) = self.halves(x)? {
            let (whole_low, whole_high) = self.halves(whole)?.unwrap_or((whole, whole));
            let low = self.scale_whole(low, whole_low, n)?.into_vector_value();
            let high = self.scale_whole(high, whole_high, n)?.into_vector_value();
            return Ok(self.join(low, high)?.into());
        }
        match self.of_width(x, "llvm.x86.avx512.mask.scalef.ps") {
            Some((name, all)) => {
                let mut args = vec![x, whole, self.like(x, 0.0), all];
                if lanes(x) == Some(16) {
                    // The rounding that is set.
                    args.push(self.i32(4).into());
                }
                self.intrinsic(&name, &[], &args)
            }
            None => self.scale(x, n),
        }
    }

    /// `a / b` within 1.5 units in the last place, for `b` of a magnitude in 2^-100..2^100.
    fn divide_bounded(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        match self.reciprocal(b)? {
            Some(reciprocal) => self.mul(a, reciprocal),
            None => self.div(a, b),
        }
    }

    /// `1 / b` within one unit in the last place, for `b` of a magnitude in 2^-126..2^126, where the
    /// target has an instruction to start from.
    fn reciprocal(&self, b: V<'c>) -> Result<Option<V<'c>>> {
        let Some(near) = self.reciprocal_estimate(b)? else { return Ok(None) };
        let error = self.multiply_add(self.negate(near)?, b, self.like(b, 1.0))?;
        self.multiply_add(near, error, near).map(Some)
    }

    /// `1 / b` within 2^-14, where the target has an instruction for it.
    fn reciprocal_estimate(&self, b: V<'c>) -> Result<Option<V<'c>>> {
        if let Some((low, high)) = self.halves(b)? {
            let halves = (self.reciprocal_estimate(low)?, self.reciprocal_estimate(high)?);
            let (Some(low), Some(high)) = halves else { return Ok(None) };
            let joined = self.join(low.into_vector_value(), high.into_vector_value())?;
            return Ok(Some(joined.into()));
        }
        let Some((name, all)) = self.of_width(b, "llvm.x86.avx512.rcp14.ps") else {
            return Ok(None);
        };
        self.intrinsic(&name, &[], &[b, self.like(b, 0.0), all]).map(Some)
    }

    /// The two halves of a vector wider than any register, where the target has instructions for
    /// registers.
    fn halves(&self, x: V<'c>) -> Result<Option<(V<'c>, V<'c>)>> {
        match (x, lanes(x)) {
            (V::VectorValue(vector), Some(count)) if self.scaling && count > 16 => {
                let picks: Vec<u32> = (0..count).collect();
                let (low, high) = picks.split_at(count as usize / 2);
                let low = self.shuffle(vector, low)?;
                Ok(Some((low.into(), self.shuffle(vector, high)?.into())))
            }
            _ => Ok(None),
        }
    }

    /// Name of an AVX-512 instruction for vectors as wide as `x`, and its mask with all lanes on.
    fn of_width(&self, x: V<'c>, name: &str) -> Option<(String, V<'c>)> {
        if !self.scaling {
            return None;
        }
        let count = lanes(x)?;
        let bits = if count == 16 { self.context.i16_type() } else { self.context.i8_type() };
        matches!(count, 4 | 8 | 16)
            .then(|| (format!("{name}.{}", 32 * count), bits.const_all_ones().into()))
    }
}
