//! What the filler lanes of packed values hold. Where channels do not fill their blocks, the lanes past the
//! last channel are computed like all others. Their weights are zero in every convolution that reads
//! them, but zero times infinity is not a number, so filler must stay finite. This file follows it
//! through the functions that are computed on packed values, by intervals; a function is computed packed
//! only where its filler is known to be finite.
//!
//! Intervals grow after each rounding by more than the rounding error of any element type, so
//! that computed filler lies in the domain of `sqrt` and `log`, too. Zero stays exactly zero.

use hone_ops::{BinaryFunction, ReduceFunction, UnaryFunction};
use hone_types::DataType;

/// What every filler lane of a value holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Filler {
    /// A number between two bounds, both included.
    Within(f64, f64),
    /// A finite number, such as an input of the model that all channels share.
    Finite,
}

use Filler::{Finite, Within};

/// More than the relative rounding error of any element type.
const ROUNDING: f64 = 1.0 / 128.0;

impl Filler {
    /// What packing, and convolutions of packed values, leave.
    pub(crate) const ZERO: Self = Within(0.0, 0.0);

    /// The filler of `function` of `x`; `None` where it may not be finite.
    pub(crate) fn unary(function: UnaryFunction, x: Self, dtype: DataType) -> Option<Self> {
        use UnaryFunction as F;
        if !dtype.is_float() {
            return Some(Self::any(dtype));
        }
        let result = match (function, x) {
            (F::IsNan | F::IsInfinite | F::Not, _) => Within(0.0, 1.0),
            (F::Tanh | F::Erf | F::Sin | F::Cos | F::Sign, Finite) => Within(-1.0, 1.0),
            (F::Sigmoid, Finite) => Within(0.0, 1.0),
            (F::Atan, Finite) => Within(-1.6, 1.6),
            (F::Negate | F::Abs | F::Relu | F::Asinh, Finite) => Finite,
            (F::Floor | F::Ceil | F::Round, Finite) => Finite,
            (_, Finite) => return None,
            (_, Within(low, high)) => bounded_unary(function, low, high)?,
        };
        result.rounded(dtype)
    }

    /// The filler of `function` of `a` and `b`; `None` where it may not be finite.
    pub(crate) fn binary(
        function: BinaryFunction,
        a: Self,
        b: Self,
        dtype: DataType,
    ) -> Option<Self> {
        use BinaryFunction as F;
        if !dtype.is_float() {
            return Some(match (a, b) {
                (Within(..), Within(..)) => bounded_pair(function, a, b)
                    .and_then(|result| result.rounded(dtype))
                    .unwrap_or(Self::any(dtype)),
                _ => Self::any(dtype),
            });
        }
        let result = match (function, a, b) {
            (F::Add | F::Subtract, Finite, Within(low, high))
            | (F::Add | F::Subtract, Within(low, high), Finite) => {
                // Too little to change the maximum of the type.
                (low.abs().max(high.abs()) <= negligible(dtype)).then_some(Finite)?
            }
            (F::Multiply, Finite, other) | (F::Multiply, other, Finite) => match other {
                Self::ZERO => Self::ZERO,
                Within(low, high) if low >= -1.0 && high <= 1.0 => Finite,
                _ => return None,
            },
            (F::Minimum | F::Maximum, Finite, _) | (F::Minimum | F::Maximum, _, Finite) => Finite,
            (_, Within(..), Within(..)) => bounded_pair(function, a, b)?,
            _ if is_predicate(function) => Within(0.0, 1.0),
            _ => return None,
        };
        result.rounded(dtype)
    }

    /// The filler converted from one type to another; `None` where it may not be finite.
    pub(crate) fn cast(self, from: DataType, to: DataType) -> Option<Self> {
        match self {
            Within(..) => self.rounded(to),
            Finite if !from.is_float() => Self::any(from).rounded(to),
            Finite if !to.is_float() => Some(Self::any(to)),
            Finite => (to.bytes() >= from.bytes()).then_some(Finite),
        }
    }

    /// Any number of an integer type, or boolean.
    fn any(dtype: DataType) -> Self {
        match dtype {
            DataType::Bool => Within(0.0, 1.0),
            _ => {
                let bits = 8 * dtype.bytes() as i32;
                Within(-(2.0f64).powi(bits - 1), (2.0f64).powi(bits))
            }
        }
    }

    /// The filler of a reduction of `count` elements; `None` where it may not be finite.
    pub(crate) fn reduce(
        function: ReduceFunction,
        x: Self,
        count: usize,
        dtype: DataType,
    ) -> Option<Self> {
        use ReduceFunction as F;
        let (Within(low, high), true) = (x, count > 0) else { return None };
        if !dtype.is_float() {
            return Some(Self::any(dtype));
        }
        let (n, magnitude) = (count as f64, low.abs().max(high.abs()));
        let result = match function {
            F::Maximum | F::Minimum => x,
            F::Mean => x,
            F::Sum => Within(low * n, high * n),
            F::Product if magnitude <= 1.0 => Within(-magnitude, magnitude),
            F::Product => return None,
            F::L1 => Within(0.0, magnitude * n),
            // The squares are summed before the root is taken.
            F::L2 | F::SumSquare => {
                Within(0.0, magnitude * magnitude * n).rounded(dtype)?;
                Within(
                    0.0,
                    if function == F::L2 { magnitude * n } else { magnitude * magnitude * n },
                )
            }
            F::LogSum if low * n >= safe_minimum(dtype) => Within((low * n).ln(), (high * n).ln()),
            F::LogSum => return None,
            F::LogSumExp => {
                Within(0.0, magnitude.exp() * n).rounded(dtype)?;
                Within(low + n.ln(), high + n.ln())
            }
        };
        // Sums round many times.
        result.rounded(dtype)?.rounded(dtype)
    }

    /// What contains either of two fillers.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Within(low, high), Within(other_low, other_high)) => {
                Within(low.min(other_low), high.max(other_high))
            }
            _ => Finite,
        }
    }

    /// The filler times at most `factor`, in either direction.
    pub(crate) fn scaled(self, factor: f64, dtype: DataType) -> Option<Self> {
        let Within(low, high) = self else { return None };
        let magnitude = low.abs().max(high.abs()) * factor;
        Within(-magnitude, magnitude).rounded(dtype)
    }

    /// After rounding to `dtype`; `None` where that may not be finite.
    pub(crate) fn rounded(self, dtype: DataType) -> Option<Self> {
        let Within(low, high) = self else { return Some(self) };
        if !dtype.is_float() {
            // Conversion truncates and saturates, and arithmetic wraps.
            let maximum = (2.0f64).powi(8 * dtype.bytes() as i32 - 1) - 1.0;
            let minimum = if dtype.is_signed_integer() { -maximum } else { 0.0 };
            let fits = dtype.is_integer() && low >= minimum && high <= maximum;
            return Some(if fits { Within(low.floor(), high.ceil()) } else { Self::any(dtype) });
        }
        let slack = low.abs().max(high.abs()) * ROUNDING;
        let fits = low.is_finite() && high.is_finite() && slack <= ROUNDING * safe_maximum(dtype);
        fits.then_some(Within(low - slack, high + slack))
    }
}

/// A magnitude well below the maximum of a type.
fn safe_maximum(dtype: DataType) -> f64 {
    match dtype {
        DataType::F64 => 1e300,
        DataType::F16 => 3e4,
        _ => 1e30,
    }
}

/// A magnitude that, added to the maximum of a type, is lost in rounding.
fn negligible(dtype: DataType) -> f64 {
    match dtype {
        DataType::F64 => 1e290,
        DataType::F16 => 8.0,
        _ => 1e30,
    }
}

/// A magnitude well above the minimum normal one of a type.
fn safe_minimum(dtype: DataType) -> f64 {
    match dtype {
        DataType::F64 => 1e-300,
        DataType::F16 => 1e-3,
        _ => 1e-30,
    }
}

/// `function` of what lies in `low..=high`. Every function must be listed: a new one is not taken for one
/// that keeps finite numbers finite.
fn bounded_unary(function: UnaryFunction, low: f64, high: f64) -> Option<Filler> {
    use UnaryFunction as F;
    let rising = |f: fn(f64) -> f64| Some(Within(f(low), f(high)));
    let rising_in = |from: f64, to: f64, f: fn(f64) -> f64| {
        (low >= from && high <= to).then(|| Within(f(low), f(high)))
    };
    let magnitude = low.abs().max(high.abs());
    match function {
        F::Negate => Some(Within(-high, -low)),
        F::Abs => Some(Within(low.max(-high).max(0.0), magnitude)),
        F::Relu => rising(|x| x.max(0.0)),
        F::Floor => rising(f64::floor),
        F::Ceil => rising(f64::ceil),
        F::Round => rising(f64::round_ties_even),
        F::Sign => rising(|x| if x == 0.0 { 0.0 } else { x.signum() }),
        F::Exp => rising(f64::exp),
        F::Tanh => rising(f64::tanh),
        F::Sigmoid => rising(|x| 1.0 / (1.0 + (-x).exp())),
        F::Atan => rising(f64::atan),
        F::Sinh => rising(f64::sinh),
        F::Asinh => rising(f64::asinh),
        F::Cosh => Some(Within(1.0, magnitude.cosh())),
        F::Erf if magnitude == 0.0 => Some(Filler::ZERO),
        F::Erf | F::Sin | F::Cos => Some(Within(-1.0, 1.0)),
        F::Sqrt => rising_in(0.0, f64::MAX, f64::sqrt),
        F::Log => rising_in(1e-30, f64::MAX, f64::ln),
        F::Tan => rising_in(-1.5, 1.5, f64::tan),
        F::Asin => rising_in(-0.99, 0.99, f64::asin),
        F::Acos => rising_in(-0.99, 0.99, |x| -x.acos()).map(|_| Within(high.acos(), low.acos())),
        F::Acosh => rising_in(1.01, f64::MAX, f64::acosh),
        F::Atanh => rising_in(-0.99, 0.99, f64::atanh),
        F::Reciprocal => quotient([1.0, 1.0], [low, high]),
        F::Not | F::IsNan | F::IsInfinite => Some(Within(0.0, 1.0)),
        F::BitNot => Some(Within(-magnitude - 1.0, magnitude + 1.0)),
    }
}

/// `function` of two bounded fillers. Every function must be listed.
fn bounded_pair(function: BinaryFunction, a: Filler, b: Filler) -> Option<Filler> {
    use BinaryFunction as F;
    let (Within(a_low, a_high), Within(b_low, b_high)) = (a, b) else { return None };
    let (a, b) = ([a_low, a_high], [b_low, b_high]);
    let magnitude = |bounds: [f64; 2]| bounds[0].abs().max(bounds[1].abs());
    match function {
        F::Add => Some(Within(a_low + b_low, a_high + b_high)),
        F::Subtract => Some(Within(a_low - b_high, a_high - b_low)),
        F::Multiply => corners(a, b, |x, y| x * y),
        F::Divide => quotient(a, b),
        F::Minimum => Some(Within(a_low.min(b_low), a_high.min(b_high))),
        F::Maximum => Some(Within(a_low.max(b_low), a_high.max(b_high))),
        F::Power => power(a, b),
        F::Modulo | F::Remainder => {
            let bound = magnitude(a).max(magnitude(b));
            has_no_zero(b).then_some(Within(-bound, bound))
        }
        F::LeakyMultiply => Some(Within(a_low, a_high).or(corners(a, b, |x, y| x * y)?)),
        F::BitAnd | F::BitOr | F::BitXor => {
            let bound = 2.0 * (magnitude(a) + magnitude(b)) + 1.0;
            Some(Within(-bound, bound))
        }
        F::Equal | F::Less | F::LessEqual | F::Greater | F::GreaterEqual => Some(Within(0.0, 1.0)),
        F::And | F::Or | F::Xor => Some(Within(0.0, 1.0)),
    }
}

fn is_predicate(function: BinaryFunction) -> bool {
    use BinaryFunction as F;
    matches!(function, F::Equal | F::Less | F::LessEqual | F::Greater | F::GreaterEqual)
}

/// The bounds of a function that is monotonic in each operand.
fn corners(a: [f64; 2], b: [f64; 2], function: fn(f64, f64) -> f64) -> Option<Filler> {
    let values = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(x, y)| function(a[x], b[y]));
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter().all(|value| value.is_finite()).then_some(Within(low, high))
}

fn has_no_zero([low, high]: [f64; 2]) -> bool {
    low >= 1e-30 || high <= -1e-30
}

fn quotient(a: [f64; 2], b: [f64; 2]) -> Option<Filler> {
    has_no_zero(b).then(|| corners(a, b, |x, y| x / y)).flatten()
}

/// Powers of positive bases; of zero, to exponents that are not negative; and of negative ones, to one
/// integer.
fn power(base: [f64; 2], exponent: [f64; 2]) -> Option<Filler> {
    let is_integer = exponent[0] == exponent[1] && exponent[0].fract() == 0.0;
    if base[0] >= 1e-30 || base[0] >= 0.0 && exponent[0] >= 0.0 {
        return corners(base, exponent, f64::powf);
    }
    if !is_integer || exponent[0] < 0.0 && !has_no_zero(base) {
        return None;
    }
    let Within(low, high) = corners(base, exponent, f64::powf)? else { return None };
    Some(Within(low.min(0.0), high.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use BinaryFunction as B;
    use UnaryFunction as U;

    fn unary(function: U, low: f64, high: f64) -> Option<Filler> {
        Filler::unary(function, Within(low, high), DataType::F32)
    }

    fn binary(function: B, a: f64, b: f64) -> Option<Filler> {
        Filler::binary(function, Within(a, a), Within(b, b), DataType::F32)
    }

    #[test]
    fn functions_outside_their_domain_are_refused() {
        for function in [U::Log, U::Reciprocal, U::Acosh] {
            assert_eq!(unary(function, 0.0, 0.0), None, "{function:?}");
        }
        for function in [U::Asin, U::Acos, U::Atanh] {
            assert_eq!(unary(function, 1.0, 1.0), None, "{function:?}");
        }
        assert_eq!(unary(U::Sqrt, -1.0, 4.0), None);
        assert_eq!(unary(U::Exp, 0.0, 200.0), None);
        assert_eq!(unary(U::Cosh, -200.0, 0.0), None);
        assert_eq!(unary(U::Tan, 1.55, 1.6), None);
        assert_eq!(Filler::unary(U::Sqrt, Finite, DataType::F32), None);
        for (function, a, b) in [
            (B::Divide, 0.0, 0.0),
            (B::Modulo, 1.0, 0.0),
            (B::Power, 0.0, -0.5),
            (B::Power, -1.0, 0.5),
            (B::Multiply, 1e20, 1e20),
            (B::Add, f64::INFINITY, 1.0),
        ] {
            assert_eq!(binary(function, a, b), None, "{function:?} of {a} and {b}");
        }
    }

    #[test]
    fn zero_stays_zero_and_other_bounds_grow_by_more_than_rounding() {
        for function in [U::Negate, U::Abs, U::Relu, U::Sqrt, U::Tanh, U::Erf, U::Sign, U::Asin] {
            assert_eq!(unary(function, 0.0, 0.0), Some(Filler::ZERO), "{function:?}");
        }
        assert_eq!(binary(B::Multiply, 0.0, 7.0), Some(Filler::ZERO));
        let integers = Filler::binary(B::Subtract, Filler::ZERO, Filler::ZERO, DataType::I32);
        assert_eq!(integers, Some(Filler::ZERO));
        assert_eq!(
            Filler::binary(B::Multiply, Finite, Filler::ZERO, DataType::F32),
            Some(Filler::ZERO)
        );
        let Some(Within(low, high)) = binary(B::Add, 1.0, 2.0) else { panic!("not bounded") };
        assert!(low < 2.99 && high > 3.01, "{low} and {high}");
    }

    #[test]
    fn results_lie_within_their_bounds() {
        let (low, high) = (-0.9, 0.8);
        let samples = (0..=20).map(|step| low + (high - low) * f64::from(step) / 20.0);
        let samples: Vec<f64> = samples.collect();
        type Exact = fn(f64) -> f64;
        let functions: [(U, Exact); 9] = [
            (U::Abs, f64::abs),
            (U::Acos, f64::acos),
            (U::Asin, f64::asin),
            (U::Cosh, f64::cosh),
            (U::Cos, f64::cos),
            (U::Exp, f64::exp),
            (U::Floor, f64::floor),
            (U::Negate, |x| -x),
            (U::Tan, f64::tan),
        ];
        for (function, exact) in functions {
            let Some(Within(from, to)) = unary(function, low, high) else { panic!("not bounded") };
            assert!(samples.iter().all(|x| (from..=to).contains(&exact(*x))), "{function:?}");
        }
        let squares = Filler::binary(B::Power, Within(low, high), Within(2.0, 2.0), DataType::F32);
        let Some(Within(from, to)) = squares else { panic!("not bounded") };
        assert!(samples.iter().all(|x| (from..=to).contains(&(x * x))));
    }

    #[test]
    fn reductions_are_bounded_by_the_number_of_elements() {
        let reduce =
            |function, x, count| Filler::reduce(function, Within(x, x), count, DataType::F32);
        assert_eq!(reduce(ReduceFunction::LogSum, 0.0, 10), None);
        assert_eq!(reduce(ReduceFunction::Product, 2.0, 1000), None);
        assert_eq!(reduce(ReduceFunction::Sum, 1e28, 1000), None);
        assert_eq!(reduce(ReduceFunction::L2, 1e20, 10), None);
        assert_eq!(reduce(ReduceFunction::Sum, 0.0, 1000), Some(Filler::ZERO));
        assert!(reduce(ReduceFunction::LogSumExp, 0.0, 1000).is_some());
    }
}
