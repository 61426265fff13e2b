//! Functions computed in `f32`.

use super::coefficients::{ERF_BOTTOM_F32, ERF_TOP_F32, EXP_F32, LOG_F32, TANH_F32};
use crate::error::Result;
use crate::llvm::ir::{Ir, V};
use hone_tensor::UnaryOp;
use std::f64::consts::LOG2_E;

/// ln(2) in two parts, the first with zeros at its end so that multiples of it are exact.
const LN2: [f64; 2] = [0.693_359_375, -2.121_944_400_546_905_8e-4];

impl<'c> Ir<'c> {
    /// Those functions that `f32` has code of its own for.
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
        self.unless_nan(x, self.exp_of_number_f32(x)?)
    }

    /// e^x with x = n ln 2 + r; NaN gives some number.
    fn exp_of_number_f32(&self, x: V<'c>) -> Result<V<'c>> {
        let bounded = self.clamp(x, -104.0, 89.0)?;
        let (whole, n) = self.nearest(self.mul(bounded, self.like(x, LOG2_E))?)?;
        let minus = self.negate(whole)?;
        let r = self.multiply_add(minus, self.like(x, LN2[0]), bounded)?;
        let r = self.multiply_add(minus, self.like(x, LN2[1]), r)?;
        let p = self.polynomial(r, &EXP_F32)?;
        let p = self.multiply_add(p, r, self.like(x, 0.5))?;
        let p = self.multiply_add(p, self.mul(r, r)?, r)?;
        self.scale(self.add(p, self.like(x, 1.0))?, n)
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

    fn tanh_f32(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let square = self.mul(x, x)?;
        let p = self.mul(self.polynomial(square, &TANH_F32)?, square)?;
        let near = self.multiply_add(p, size, size)?;
        let power = self.exp_of_number_f32(self.add(size, size)?)?;
        let one = self.like(x, 1.0);
        let part = self.div(self.like(x, -2.0), self.add(power, one)?)?;
        let far = self.add(one, part)?;
        let chosen = self.select(self.less(size, 0.625)?, near, far)?;
        self.unless_nan(x, self.with_sign(chosen, x)?)
    }

    fn sigmoid_f32(&self, x: V<'c>) -> Result<V<'c>> {
        let size = self.magnitude(x)?;
        let power = self.exp_of_number_f32(self.negate(size)?)?;
        let one = self.like(x, 1.0);
        let top = self.select(self.less(x, 0.0)?, power, one)?;
        self.unless_nan(x, self.div(top, self.add(one, power)?)?)
    }

    /// A quotient of polynomials up to where the function is 1 in `f32`.
    fn erf_f32(&self, x: V<'c>) -> Result<V<'c>> {
        let bounded = self.clamp(x, -3.9, 3.9)?;
        let square = self.mul(bounded, bounded)?;
        let top = self.mul(bounded, self.polynomial(square, &ERF_TOP_F32)?)?;
        let quotient = self.div(top, self.polynomial(square, &ERF_BOTTOM_F32)?)?;
        self.unless_nan(x, self.clamp(quotient, -1.0, 1.0)?)
    }
}
