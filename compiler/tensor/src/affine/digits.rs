//! Sums of the digits of one index: what a reshape takes apart and a row-major buffer puts together again.

use super::{Known, divide};
use crate::sum::Sum;
use crate::{BinaryOp, Expr};

/// The sum with digits of the same index joined, lowest first: `x % m + x / m * m` is `x`, and
/// `x % m + x / m % n * m` is `x % (m n)`. `None` where a factor does not fit `i64`.
pub(super) fn joined(mut sum: Sum, range: Known) -> Option<Sum> {
    // Each round leaves one digit less.
    for _ in 0..sum.terms.len() {
        let Some((low, high, whole)) = pair(&sum, range) else { break };
        let (_, factor) = sum.terms[low];
        sum.terms.remove(low.max(high));
        sum.terms.remove(low.min(high));
        sum = sum.plus(whole, factor)?;
    }
    Some(sum)
}

/// Places of two terms that are neighbouring digits, and what they are together, less the factor of the first.
fn pair(sum: &Sum, range: Known) -> Option<(usize, usize, Sum)> {
    sum.terms.iter().enumerate().find_map(|(low, (atom, factor))| {
        let (index, radix) = remainder(atom)?;
        let below = Quotient::of(index)?;
        let above_factor = factor.checked_mul(radix)?;
        let mut others = sum.terms.iter().enumerate().filter(|(_, (_, own))| *own == above_factor);
        others.find_map(|(high, (atom, _))| {
            let (digit, next) = remainder(atom).map_or((atom, None), |(own, by)| (own, Some(by)));
            let above = Quotient::of(digit)?;
            if !above.follows(&below, radix) {
                return None;
            }
            let whole = divide(BinaryOp::FloorDivide, above.base, below.divisor, range)?;
            let whole = match next {
                None => whole,
                Some(next) => {
                    divide(BinaryOp::Modulo, Sum::of(&whole), radix.checked_mul(next)?, range)?
                }
            };
            Some((low, high, Sum::of(&whole)))
        })
    })
}

/// `base / divisor`; what is no quotient is divided by 1.
struct Quotient {
    base: Sum,
    divisor: i64,
}

impl Quotient {
    /// The quotient that an expression is, with what is added to it: `x / 7 + 2` is `(x + 14) / 7`. Quotients of quotients
    /// are one.
    fn of(expr: &Expr) -> Option<Self> {
        let sum = Sum::of(expr);
        if let [(Expr::Binary(BinaryOp::FloorDivide, inner, by), 1)] = &sum.terms[..]
            && let Some(by) = by.as_integer().filter(|by| *by > 0)
        {
            let Self { base, divisor } = Self::of(inner)?;
            let divisor = divisor.checked_mul(by)?;
            let added = Sum::constant(sum.constant.checked_mul(divisor)?);
            return Some(Self { base: base.plus(added, 1)?, divisor });
        }
        Some(Self { base: sum, divisor: 1 })
    }

    /// Whether this divides the same number as `below` by `radix` more. Its base may be larger by a multiple of the
    /// divisor, of which the remainder below knows nothing.
    fn follows(&self, below: &Self, radix: i64) -> bool {
        let difference = self.base.clone().plus(below.base.clone(), -1);
        below.divisor.checked_mul(radix) == Some(self.divisor)
            && difference
                .is_some_and(|own| own.terms.is_empty() && own.constant % self.divisor == 0)
    }
}

/// `index` and `radix` of `index % radix`.
fn remainder(expr: &Expr) -> Option<(&Expr, i64)> {
    match expr {
        Expr::Binary(BinaryOp::Modulo, index, radix) => {
            Some((index, radix.as_integer().filter(|radix| *radix > 0)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::affine::{Range, simplify};
    use crate::{Expr, VarId};
    use hone_types::Id;

    fn var(index: usize) -> Expr {
        Expr::Var(VarId::from_index(index))
    }

    /// Every variable runs over `0..1000`.
    fn known(_: VarId) -> Option<Range> {
        Some(Range::extent(1000))
    }

    fn of(expr: Expr) -> Expr {
        simplify(&expr, &known)
    }

    /// `x / over % extent`
    fn digit(x: &Expr, over: i64, extent: i64) -> Expr {
        x.clone().floor_divide(Expr::Integer(over)).modulo(Expr::Integer(extent))
    }

    #[test]
    fn an_index_that_was_taken_apart_is_whole_again() {
        let x = var(0) * 16 + var(1);
        let high = x.clone().floor_divide(Expr::Integer(49));
        let flat = digit(&x, 1, 7) + digit(&x, 7, 7) * 7 + high.clone() * 49;
        assert_eq!(of(flat), of(x.clone()));
        // In any order, and beside others.
        let flat = high * 98 + var(2) * 5 + digit(&x, 7, 7) * 14 + digit(&x, 1, 7) * 2;
        assert_eq!(of(of(flat) - (x * 2 + var(2) * 5)), Expr::Integer(0));
    }

    #[test]
    fn some_of_the_digits_are_a_remainder() {
        let x = var(0) * 3 + var(1);
        let low = digit(&x, 1, 7) + digit(&x, 7, 5) * 7;
        assert_eq!(of(low), of(x.clone().modulo(Expr::Integer(35))));
        let middle = digit(&x, 4, 7) + digit(&x, 28, 5) * 7;
        assert_eq!(of(middle), of(digit(&x, 4, 35)));
    }

    #[test]
    fn a_quotient_of_a_quotient_is_the_next_digit() {
        let x = var(0) * 3 + var(1);
        let seventh = x.clone().floor_divide(Expr::Integer(7));
        let high = seventh.clone().floor_divide(Expr::Integer(7));
        let flat = digit(&x, 1, 7) + seventh.modulo(Expr::Integer(7)) * 7 + high * 49;
        assert_eq!(of(flat), of(x));
    }

    #[test]
    fn a_constant_may_be_divided_out_of_each_digit() {
        for constant in [3, 13, 8192, -20] {
            let x = var(0) * 16 + var(1) + constant;
            let high = x.clone().floor_divide(Expr::Integer(49));
            let flat = digit(&x, 1, 7) + digit(&x, 7, 7) * 7 + high * 49;
            assert_eq!(of(flat), of(x), "{constant}");
        }
    }

    #[test]
    fn digits_of_other_numbers_stay_apart() {
        let (x, y) = (var(0) * 3 + var(1), var(0) * 3 + var(2));
        for flat in [
            digit(&x, 1, 7) + y.floor_divide(Expr::Integer(7)) * 7,
            digit(&x, 1, 7) + x.clone().floor_divide(Expr::Integer(7)) * 8,
            digit(&x, 1, 7) + x.clone().floor_divide(Expr::Integer(8)) * 7,
            digit(&x, 1, 7) + digit(&x, 14, 5) * 7,
            digit(&x, 1, 7) + digit(&(x.clone() + 1), 7, 5) * 7,
        ] {
            let text = format!("{:?}", of(flat));
            assert!(text.contains("Modulo"), "{text}");
        }
    }

    #[test]
    fn joined_digits_are_what_they_were() {
        let x = var(0) + 9;
        let whole = digit(&x, 1, 7) * 3 + x.clone().floor_divide(Expr::Integer(7)) * 21;
        let part = digit(&x, 2, 7) + digit(&x, 14, 5) * 7;
        for plain in [whole, part] {
            let joined = of(plain.clone());
            assert_ne!(joined, plain);
            for value in -60..200 {
                let at = |expr: &Expr| of(expr.substitute(&|_| Some(Expr::Integer(value))));
                assert_eq!(at(&joined), at(&plain), "{value}");
                assert!(at(&plain).as_integer().is_some());
            }
        }
    }
}
