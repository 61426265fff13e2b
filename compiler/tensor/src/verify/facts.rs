//! What holds where a block runs or an expression is evaluated, and what follows from it.
//!
//! A fact is an index expression that is not negative there: a loop's extent less one where the loop
//! runs, the two sides of a comparison of which a predicate or a condition is made. An expression is
//! shown not to be negative by its own range, or by the difference of multiples of it and of a fact, for the operands
//! of minima and maxima in it apart.

use super::enumerate;
use crate::sum::Sum;
use crate::{BinaryOp, Domain, Expr, Program, UnaryOp};
use hone_types::DataType;

/// Minima, maxima and quotients of one expression that are looked into.
const SPLITS: usize = 3;

/// Facts beyond the ranges of the variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    at_least_zero: Vec<Expr>,
}

impl Facts {
    /// Adds that `expr`, over loop variables, is not negative.
    pub(super) fn add(&mut self, expr: Expr, domain: &Domain) {
        let expr = domain.simplify(&expr);
        if !self.at_least_zero.contains(&expr) {
            self.at_least_zero.push(expr);
        }
    }

    /// Adds what follows from a condition over loop variables that comes out as `outcome`.
    pub(super) fn assume(
        &mut self,
        condition: &Expr,
        outcome: bool,
        program: &Program,
        domain: &Domain,
    ) {
        match condition {
            Expr::Unary(UnaryOp::Not, inner) => self.assume(inner, !outcome, program, domain),
            Expr::Binary(BinaryOp::And, left, right) if outcome => {
                self.assume(left, true, program, domain);
                self.assume(right, true, program, domain);
            }
            Expr::Binary(BinaryOp::Or, left, right) if !outcome => {
                self.assume(left, false, program, domain);
                self.assume(right, false, program, domain);
            }
            Expr::Binary(op, left, right)
                if left.dtype(program) == DataType::I64
                    && !may_wrap(left, program, domain)
                    && !may_wrap(right, program, domain) =>
            {
                let (left, right) = ((**left).clone(), (**right).clone());
                match (op, outcome) {
                    (BinaryOp::Less, true) => self.add(right - left - 1, domain),
                    (BinaryOp::Less, false) => self.add(left - right, domain),
                    (BinaryOp::LessEqual, true) => self.add(right - left, domain),
                    (BinaryOp::LessEqual, false) => self.add(left - right - 1, domain),
                    (BinaryOp::Equal, true) => {
                        self.add(left.clone() - right.clone(), domain);
                        self.add(right - left, domain);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Whether `0 <= index < extent` follows; `index` is over loop variables and simplified.
    pub(super) fn within(
        &self,
        index: &Expr,
        extent: usize,
        program: &Program,
        domain: &Domain,
    ) -> bool {
        let last = i64::try_from(extent).unwrap_or(i64::MAX).saturating_sub(1);
        // What intervals alone show need not be looked into.
        let loose = crate::bounds(index, &|var| domain.range(var));
        if loose.is_some_and(|range| range.min >= 0 && range.max <= last) {
            return true;
        }
        let (least, largest) = ends(index, program, domain);
        let shown = |expr: Expr| self.not_negative(&expr, SPLITS, program, domain);
        let follows = (least.is_some_and(|least| least >= 0) || shown(index.clone()))
            && (largest.is_some_and(|largest| largest <= last)
                || shown(Expr::Integer(last) - index.clone()));
        follows || enumerate::within(index, extent, &self.at_least_zero, domain)
    }

    /// Whether `expr >= 0` follows. Where `expr` adds a minimum or subtracts a maximum it has to follow
    /// with each of the operands in its place, where it subtracts a minimum or adds a maximum with one
    /// of them, or with both together; a quotient is brought to a common denominator.
    fn not_negative(&self, expr: &Expr, splits: usize, program: &Program, domain: &Domain) -> bool {
        let expr = domain.simplify(expr);
        let least = |expr: &Expr| ends(expr, program, domain).0;
        let shown = |expr: &Expr| least(expr).is_some_and(|least| least >= 0);
        let sum = Sum::of(&expr);
        // `own * sum` is `other * fact`, which is not negative, and more than `-own`: so is `sum`, a whole number.
        let exceeds = |fact: &Expr| {
            let fact = Sum::of(fact);
            common_multiples(&sum, &fact).into_iter().any(|(own, other)| {
                let difference =
                    sum.clone().scaled(own).and_then(|sum| sum.plus(fact.clone(), -other));
                let difference = difference.map(|sum| domain.simplify(&sum.into_expr()));
                difference.is_some_and(|by| least(&by).is_some_and(|least| least > -own))
            })
        };
        if shown(&expr) || self.at_least_zero.iter().any(exceeds) {
            return true;
        }
        let opens = |(atom, factor): &(Expr, i64)| match atom {
            _ if may_wrap(atom, program, domain) => false,
            Expr::Binary(BinaryOp::Minimum | BinaryOp::Maximum, ..) => true,
            Expr::Binary(BinaryOp::FloorDivide, _, divisor) => {
                factor.checked_abs() == Some(1) && divisor.as_integer().is_some_and(|own| own > 0)
            }
            _ => false,
        };
        let (Some(position), true) = (sum.terms.iter().position(opens), splits > 0) else {
            return false;
        };
        let mut rest = sum;
        let (atom, factor) = rest.terms.remove(position);
        let follows = |sum: Option<Sum>| {
            sum.is_some_and(|sum| self.not_negative(&sum.into_expr(), splits - 1, program, domain))
        };
        let Expr::Binary(op, left, right) = &atom else { return false };
        let (left, divisor) = (Sum::of(left), right.as_integer());
        if let (BinaryOp::FloorDivide, Some(divisor)) = (op, divisor) {
            return follows(without_quotient(rest, factor, left, divisor));
        }
        let with = |operand: Sum| rest.clone().plus(operand, factor);
        let (first, second) = (with(left), with(Sum::of(right)));
        match (*op == BinaryOp::Minimum) == (factor > 0) {
            true => follows(first) && follows(second),
            // Of two numbers whose sum is not negative, the larger is not.
            false => {
                let both = first.clone().zip(second.clone()).and_then(|(a, b)| a.plus(b, 1));
                follows(first) || follows(second) || follows(both)
            }
        }
    }
}

/// Positive factors of a sum and of a fact under which a term of both has the same factor, without or with others.
fn common_multiples(sum: &Sum, fact: &Sum) -> Vec<(i64, i64)> {
    let mut found = vec![(1, 1)];
    for (atom, factor) in &sum.terms {
        let Some((_, other)) = fact.terms.iter().find(|(known, _)| known == atom) else { continue };
        if (*factor > 0) != (*other > 0) {
            continue;
        }
        let (Some(a), Some(b)) = (factor.checked_abs(), other.checked_abs()) else { continue };
        let shared = greatest_common_divisor(a, b);
        let pair = (b / shared, a / shared);
        if !found.contains(&pair) {
            found.push(pair);
        }
    }
    found
}

/// Of positive numbers.
fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// What is not negative just where `rest + dividend / divisor` or, for a factor of -1,
/// `rest - dividend / divisor` is not.
fn without_quotient(rest: Sum, factor: i64, dividend: Sum, divisor: i64) -> Option<Sum> {
    let multiple = rest.scaled(divisor)?;
    match factor > 0 {
        true => multiple.plus(dividend, 1),
        false => multiple.plus(Sum::constant(divisor.checked_sub(1)?), 1)?.plus(dividend, -1),
    }
}

/// Whether a sum or product that an expression is made of may leave `i64`, as one of loaded numbers may. What
/// is computed inside of a load, of a choice or of a conversion is a value of its own, whatever it is.
fn may_wrap(expr: &Expr, program: &Program, domain: &Domain) -> bool {
    match expr {
        Expr::Cast(DataType::I64, inner) if inner.dtype(program) == DataType::I64 => {
            may_wrap(inner, program, domain)
        }
        Expr::Binary(op, left, right) => {
            let computes = matches!(op, BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply);
            (computes && ends(expr, program, domain).0.is_none())
                || may_wrap(left, program, domain)
                || may_wrap(right, program, domain)
        }
        _ => false,
    }
}

/// The least and the largest value of an integer expression, each where it is known.
pub(super) fn ends(expr: &Expr, program: &Program, domain: &Domain) -> (Option<i64>, Option<i64>) {
    if let Some(range) = domain.bounds(expr) {
        return (Some(range.min), Some(range.max));
    }
    let of = |expr: &Expr| ends(expr, program, domain);
    match expr {
        Expr::Constant(value, dtype) if !dtype.is_float() => {
            (Some(*value as i64), Some(*value as i64))
        }
        Expr::Cast(DataType::I64, inner) if of_type(inner, program).is_some() => {
            let (least, largest) = of(inner);
            let (low, high) = of_type(inner, program).unwrap_or((i64::MIN, i64::MAX));
            (least.or(Some(low)), largest.or(Some(high)))
        }
        Expr::Select(_, then, otherwise) => {
            let (then, otherwise) = (of(then), of(otherwise));
            (both(then.0, otherwise.0, i64::min), both(then.1, otherwise.1, i64::max))
        }
        Expr::Binary(BinaryOp::Minimum, left, right) => {
            let (left, right) = (of(left), of(right));
            (both(left.0, right.0, i64::min), either(left.1, right.1, i64::min))
        }
        Expr::Binary(BinaryOp::Maximum, left, right) => {
            let (left, right) = (of(left), of(right));
            (either(left.0, right.0, i64::max), both(left.1, right.1, i64::max))
        }
        Expr::Binary(op, left, right) if expr.dtype(program) == DataType::I64 => {
            of_arithmetic(*op, of(left), of(right))
        }
        _ => (None, None),
    }
}

type Ends = (Option<i64>, Option<i64>);

fn of_arithmetic(op: BinaryOp, left: Ends, right: Ends) -> Ends {
    let divisor = right.0.filter(|least| right.1 == Some(*least) && *least > 0);
    match (op, divisor) {
        (BinaryOp::FloorDivide, Some(divisor)) => {
            let divided = |end: Option<i64>| end.map(|end| end.div_euclid(divisor));
            (divided(left.0), divided(left.1))
        }
        (BinaryOp::Modulo, Some(divisor)) => (Some(0), Some(divisor - 1)),
        _ => sum(op, left, right).unwrap_or_default(),
    }
}

/// A sum with one end unknown may wrap, so that the other end is not known either.
fn sum(op: BinaryOp, left: Ends, right: Ends) -> Option<Ends> {
    let (left, right) = ((left.0?, left.1?), (right.0?, right.1?));
    let (least, largest) = match op {
        BinaryOp::Add => (left.0.checked_add(right.0)?, left.1.checked_add(right.1)?),
        BinaryOp::Subtract => (left.0.checked_sub(right.1)?, left.1.checked_sub(right.0)?),
        _ => return None,
    };
    Some((Some(least), Some(largest)))
}

fn both(a: Option<i64>, b: Option<i64>, join: fn(i64, i64) -> i64) -> Option<i64> {
    Some(join(a?, b?))
}

fn either(a: Option<i64>, b: Option<i64>, join: fn(i64, i64) -> i64) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}

/// The values that an integer type has, where all of them are values of `i64`.
fn of_type(expr: &Expr, program: &Program) -> Option<(i64, i64)> {
    match expr.dtype(program) {
        DataType::Bool => Some((0, 1)),
        DataType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
        DataType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
        DataType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
        DataType::I64 => Some((i64::MIN, i64::MAX)),
        DataType::U8 => Some((0, u8::MAX.into())),
        DataType::U16 => Some((0, u16::MAX.into())),
        DataType::U32 => Some((0, u32::MAX.into())),
        DataType::U64 | DataType::F16 | DataType::BF16 | DataType::F32 | DataType::F64 => None,
    }
}

#[cfg(test)]
mod tests;
