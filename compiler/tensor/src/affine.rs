//! Simplification and bounds of index expressions.
//!
//! An index expression is made of integers, variables, conversions to `i64`, and `+ - *`, floor
//! division, modulo, minimum and maximum over those. It is brought to a sum of *atoms* with integer
//! factors; division and modulo by a constant are resolved where the ranges of the variables allow.

use crate::{BinaryOp, Expr, VarId};
use hone_types::DataType;

/// Tells the range of an index expression.
pub(crate) type Known<'a> = &'a dyn Fn(&Expr) -> Option<Range>;

/// The values an index may take, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Least value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

impl Range {
    /// The single value `value`.
    pub const fn point(value: i64) -> Self {
        Self { min: value, max: value }
    }

    /// `0..extent`; `extent` is at least 1.
    pub const fn extent(extent: i64) -> Self {
        Self { min: 0, max: extent - 1 }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn scale(self, factor: i64) -> Self {
        let (a, b) = (self.min.saturating_mul(factor), self.max.saturating_mul(factor));
        Self { min: a.min(b), max: a.max(b) }
    }
}

/// The range of an index expression, given those of variables; `None` where it is unknown.
pub fn bounds(expr: &Expr, range: &dyn Fn(VarId) -> Option<Range>) -> Option<Range> {
    match expr {
        Expr::Integer(value) => Some(Range::point(*value)),
        Expr::Var(var) => range(*var),
        Expr::Binary(op, left, right) => {
            let (left, right) = (bounds(left, range)?, bounds(right, range)?);
            binary_bounds(*op, left, right)
        }
        _ => None,
    }
}

fn binary_bounds(op: BinaryOp, left: Range, right: Range) -> Option<Range> {
    let constant = (right.min == right.max).then_some(right.min);
    match op {
        BinaryOp::Add => Some(left.add(right)),
        BinaryOp::Subtract => Some(left.add(right.scale(-1))),
        BinaryOp::Multiply => {
            let ends = [left.scale(right.min), left.scale(right.max)];
            Some(Range { min: ends[0].min.min(ends[1].min), max: ends[0].max.max(ends[1].max) })
        }
        BinaryOp::FloorDivide => {
            let divisor = constant.filter(|divisor| *divisor > 0)?;
            Some(Range { min: left.min.div_euclid(divisor), max: left.max.div_euclid(divisor) })
        }
        BinaryOp::Modulo => {
            let divisor = constant.filter(|divisor| *divisor > 0)?;
            let same_quotient = left.min.div_euclid(divisor) == left.max.div_euclid(divisor);
            Some(if same_quotient {
                Range { min: left.min.rem_euclid(divisor), max: left.max.rem_euclid(divisor) }
            } else {
                Range::extent(divisor)
            })
        }
        BinaryOp::Minimum => {
            Some(Range { min: left.min.min(right.min), max: left.max.min(right.max) })
        }
        BinaryOp::Maximum => {
            Some(Range { min: left.min.max(right.min), max: left.max.max(right.max) })
        }
        _ => None,
    }
}

/// An equal expression in simplest form, given the ranges of variables. Values that are not indices
/// keep their structure; their operands are simplified.
pub fn simplify(expr: &Expr, range: &dyn Fn(VarId) -> Option<Range>) -> Expr {
    simplify_by(expr, &|index| bounds(index, range))
}

/// As [`simplify`], with whatever is known about the range of an index expression.
pub(crate) fn simplify_by(expr: &Expr, range: Known) -> Expr {
    let expr = expr.map_operands(&mut |operand| simplify_by(operand, range));
    match &expr {
        Expr::Binary(op, left, right) if is_index(left) && is_index(right) => {
            simplify_binary(*op, left, right, range).unwrap_or(expr)
        }
        Expr::Binary(op, left, right) => simplify_logic(*op, left, right).unwrap_or(expr),
        Expr::Select(condition, then, otherwise) => match truth(condition) {
            Some(true) => (**then).clone(),
            Some(false) => (**otherwise).clone(),
            None => expr,
        },
        _ => expr,
    }
}

/// Whether an expression is an index by its form.
fn is_index(expr: &Expr) -> bool {
    match expr {
        Expr::Integer(_) | Expr::Var(_) | Expr::Cast(DataType::I64, _) => true,
        Expr::Binary(op, left, right) => !op.is_comparison() && is_index(left) && is_index(right),
        _ => false,
    }
}

fn truth(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Constant(value, DataType::Bool) => Some(*value != 0.0),
        _ => None,
    }
}

fn simplify_logic(op: BinaryOp, left: &Expr, right: &Expr) -> Option<Expr> {
    let (known, other) = match (truth(left), truth(right)) {
        (Some(known), _) => (known, right),
        (_, Some(known)) => (known, left),
        _ => return None,
    };
    match (op, known) {
        (BinaryOp::And, true) | (BinaryOp::Or, false) => Some(other.clone()),
        (BinaryOp::And, false) => Some(Expr::Constant(0.0, DataType::Bool)),
        (BinaryOp::Or, true) => Some(Expr::Constant(1.0, DataType::Bool)),
        _ => None,
    }
}

fn simplify_binary(op: BinaryOp, left: &Expr, right: &Expr, range: Known) -> Option<Expr> {
    match op {
        BinaryOp::Add => Some(Sum::of(left).plus(Sum::of(right), 1).into_expr()),
        BinaryOp::Subtract => Some(Sum::of(left).plus(Sum::of(right), -1).into_expr()),
        BinaryOp::Multiply => match (left.as_integer(), right.as_integer()) {
            (_, Some(factor)) => Some(Sum::of(left).scaled(factor).into_expr()),
            (Some(factor), _) => Some(Sum::of(right).scaled(factor).into_expr()),
            _ => None,
        },
        BinaryOp::FloorDivide | BinaryOp::Modulo => {
            let divisor = right.as_integer().filter(|divisor| *divisor > 0)?;
            Some(divide(op, Sum::of(left), divisor, range))
        }
        BinaryOp::Divide | BinaryOp::Remainder => {
            let (left, right) = (left.as_integer()?, right.as_integer()?);
            let value = match op {
                BinaryOp::Divide => left.checked_div(right)?,
                _ => left.checked_rem(right)?,
            };
            Some(Expr::Integer(value))
        }
        BinaryOp::Minimum | BinaryOp::Maximum => {
            let (smaller, larger) = ordered(left, right, range)?;
            Some(if op == BinaryOp::Minimum { smaller.clone() } else { larger.clone() })
        }
        BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Equal => compare(op, left, right, range)
            .map(|known| Expr::Constant(known.into(), DataType::Bool)),
        _ => None,
    }
}

/// `left` and `right` in order, where it is the same for all values of the variables.
fn ordered<'a>(left: &'a Expr, right: &'a Expr, range: Known) -> Option<(&'a Expr, &'a Expr)> {
    let difference = difference(left, right, range)?;
    if difference.max <= 0 {
        Some((left, right))
    } else if difference.min >= 0 {
        Some((right, left))
    } else {
        None
    }
}

fn difference(left: &Expr, right: &Expr, range: Known) -> Option<Range> {
    range(&Sum::of(left).plus(Sum::of(right), -1).into_expr())
}

fn compare(op: BinaryOp, left: &Expr, right: &Expr, range: Known) -> Option<bool> {
    let Range { min, max } = difference(left, right, range)?;
    match op {
        BinaryOp::Less if max < 0 => Some(true),
        BinaryOp::Less if min >= 0 => Some(false),
        BinaryOp::LessEqual if max <= 0 => Some(true),
        BinaryOp::LessEqual if min > 0 => Some(false),
        BinaryOp::Equal if min == 0 && max == 0 => Some(true),
        BinaryOp::Equal if min > 0 || max < 0 => Some(false),
        _ => None,
    }
}

/// `sum / divisor` or `sum % divisor`: multiples of the divisor are taken out, and what remains is
/// resolved where its range lies within one quotient.
fn divide(op: BinaryOp, sum: Sum, divisor: i64, range: Known) -> Expr {
    let (mut quotient, mut rest) = (Sum::default(), Sum::default());
    quotient.constant = sum.constant.div_euclid(divisor);
    rest.constant = sum.constant.rem_euclid(divisor);
    for (atom, factor) in sum.terms {
        if factor % divisor == 0 {
            quotient.terms.push((atom, factor / divisor));
        } else {
            rest.terms.push((atom, factor));
        }
    }
    if let Some((shared, whole, below)) = common_factor(&rest, divisor, range) {
        // (whole * shared + below) by (divisor / shared * shared), `below` less than `shared`.
        let inner = divide(op, whole, divisor / shared, range);
        return match op {
            BinaryOp::FloorDivide => quotient.plus(Sum::of(&inner), 1).into_expr(),
            _ => Sum::of(&inner).scaled(shared).plus(below, 1).into_expr(),
        };
    }
    let rest = rest.into_expr();
    let within = range(&rest)
        .map(|bounds| (bounds.min.div_euclid(divisor), bounds.max.div_euclid(divisor)))
        .filter(|(first, last)| first == last)
        .map(|(first, _)| first);
    match (op, within) {
        (BinaryOp::FloorDivide, Some(whole)) => {
            quotient.constant += whole;
            quotient.into_expr()
        }
        (BinaryOp::FloorDivide, None) => {
            let rest = Sum::atom(rest.floor_divide(Expr::Integer(divisor)));
            quotient.plus(rest, 1).into_expr()
        }
        (_, Some(whole)) => Sum::of(&rest).plus(Sum::constant(whole * divisor), -1).into_expr(),
        (_, None) => rest.modulo(Expr::Integer(divisor)),
    }
}

/// A factor of `divisor`, the part of `sum` that is a multiple of it (divided by it), and what is left,
/// where that is never negative and always less than the factor.
fn common_factor(sum: &Sum, divisor: i64, range: Known) -> Option<(i64, Sum, Sum)> {
    let mut factors: Vec<i64> =
        sum.terms.iter().map(|(_, factor)| common_divisor(*factor, divisor)).collect();
    factors.sort_unstable_by_key(|factor| -factor);
    factors.dedup();
    factors.retain(|factor| (2..divisor).contains(factor));
    factors.into_iter().find_map(|shared| {
        let (whole, below): (Vec<_>, Vec<_>) =
            sum.terms.iter().cloned().partition(|(_, factor)| factor % shared == 0);
        let whole = whole.into_iter().map(|(atom, factor)| (atom, factor / shared)).collect();
        let whole = Sum { constant: sum.constant.div_euclid(shared), terms: whole };
        let below = Sum { constant: sum.constant.rem_euclid(shared), terms: below };
        let bounds = range(&below.clone().into_expr())?;
        (bounds.min >= 0 && bounds.max < shared).then_some((shared, whole, below))
    })
}

/// The largest number that divides both.
fn common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a.saturating_abs() } else { common_divisor(b, a % b) }
}

/// A sum of atoms with integer factors, plus a constant.
#[derive(Clone, Default)]
pub(crate) struct Sum {
    pub(crate) constant: i64,
    pub(crate) terms: Vec<(Expr, i64)>,
}

impl Sum {
    pub(crate) fn constant(constant: i64) -> Self {
        Self { constant, terms: vec![] }
    }

    pub(crate) fn atom(atom: Expr) -> Self {
        Self { constant: 0, terms: vec![(atom, 1)] }
    }

    pub(crate) fn of(expr: &Expr) -> Self {
        match expr {
            Expr::Integer(value) => Self::constant(*value),
            Expr::Binary(BinaryOp::Add, left, right) => Self::of(left).plus(Self::of(right), 1),
            Expr::Binary(BinaryOp::Subtract, left, right) => {
                Self::of(left).plus(Self::of(right), -1)
            }
            Expr::Binary(BinaryOp::Multiply, left, right) => match right.as_integer() {
                Some(factor) => Self::of(left).scaled(factor),
                None => Self::atom(expr.clone()),
            },
            _ => Self::atom(expr.clone()),
        }
    }

    pub(crate) fn scaled(mut self, factor: i64) -> Self {
        self.constant *= factor;
        self.terms.iter_mut().for_each(|(_, own)| *own *= factor);
        self.terms.retain(|(_, own)| *own != 0);
        self
    }

    pub(crate) fn plus(mut self, other: Self, factor: i64) -> Self {
        self.constant += other.constant * factor;
        for (atom, own) in other.terms {
            match self.terms.iter_mut().find(|(existing, _)| *existing == atom) {
                Some((_, existing)) => *existing += own * factor,
                None => self.terms.push((atom, own * factor)),
            }
        }
        self.terms.retain(|(_, own)| *own != 0);
        self
    }

    /// Terms that are added, then those that are subtracted, the constant where it reads best.
    pub(crate) fn into_expr(self) -> Expr {
        let Sum { constant, terms } = self;
        let (added, subtracted): (Vec<_>, Vec<_>) =
            terms.into_iter().partition(|(_, factor)| *factor > 0);
        let product = |(atom, factor): (Expr, i64)| if factor == 1 { atom } else { atom * factor };
        let mut sum = added.into_iter().map(product).reduce(|sum, term| sum + term);
        let leads = sum.is_none() && (constant > 0 || subtracted.is_empty());
        if leads {
            sum = Some(Expr::Integer(constant));
        }
        for (atom, factor) in subtracted {
            sum = Some(match sum {
                Some(sum) => sum - product((atom, factor.saturating_neg())),
                None => atom * factor,
            });
        }
        match sum {
            Some(sum) if leads || constant == 0 => sum,
            Some(sum) if constant < 0 => sum - constant.saturating_neg(),
            Some(sum) => sum + constant,
            None => Expr::Integer(constant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_types::Id;

    fn var(index: usize) -> Expr {
        Expr::Var(VarId::from_index(index))
    }

    /// Every variable runs over `0..8`.
    fn octet(_: VarId) -> Option<Range> {
        Some(Range::extent(8))
    }

    #[test]
    fn split_index_divides_back() {
        let fused = var(0) * 8 + var(1);
        assert_eq!(simplify(&fused.clone().floor_divide(Expr::Integer(8)), &octet), var(0));
        assert_eq!(simplify(&fused.modulo(Expr::Integer(8)), &octet), var(1));
    }

    #[test]
    fn a_common_factor_divides_out() {
        let index = var(0) * 8 + var(1) + 16;
        let by = Expr::Integer(32);
        let expected = (var(0) + 2).floor_divide(Expr::Integer(4));
        assert_eq!(simplify(&index.clone().floor_divide(by.clone()), &octet), expected);
        let expected = (var(0) + 2).modulo(Expr::Integer(4)) * 8 + var(1);
        assert_eq!(simplify(&index.modulo(by), &octet), expected);
        // Nine is no factor of 32.
        let odd = (var(0) * 9 + var(1)).floor_divide(Expr::Integer(32));
        assert_eq!(simplify(&odd, &octet), odd);
    }

    #[test]
    fn minimum_resolves_by_range() {
        let rest = Expr::Integer(100) - var(0) * 8;
        let simplified = simplify(&Expr::Integer(8).minimum(rest.clone()), &octet);
        assert_eq!(simplified, Expr::Integer(8));
        let rest = Expr::Integer(60) - var(0) * 8;
        assert!(simplify(&Expr::Integer(8).minimum(rest), &octet).as_integer().is_none());
    }

    #[test]
    fn comparison_resolves_by_range() {
        let truth = |expr: Expr| super::truth(&simplify(&expr, &octet));
        assert_eq!(truth(var(0).less(Expr::Integer(8))), Some(true));
        assert_eq!(truth(var(0).less(Expr::Integer(7))), None);
        assert_eq!(truth(Expr::Integer(9).less_equal(var(0))), Some(false));
    }
}
