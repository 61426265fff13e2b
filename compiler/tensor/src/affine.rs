//! Simplification and bounds of index expressions.
//!
//! An index expression is made of integers, variables, conversions to `i64`, and `+ - *`, floor
//! division, modulo, minimum and maximum over those. It is brought to a sum of *atoms* with integer
//! factors; division and modulo by a constant are resolved where the ranges of the variables allow.
//! All arithmetic is checked: what does not fit `i64` is left as it is, and has no known range.

mod digits;

use crate::sum::Sum;
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
        Self { min: 0, max: extent.saturating_sub(1) }
    }

    fn add(self, other: Self) -> Option<Self> {
        Some(Self { min: self.min.checked_add(other.min)?, max: self.max.checked_add(other.max)? })
    }

    fn scale(self, factor: i64) -> Option<Self> {
        let (a, b) = (self.min.checked_mul(factor)?, self.max.checked_mul(factor)?);
        Some(Self { min: a.min(b), max: a.max(b) })
    }
}

/// The range of an index expression, given those of variables; `None` where it is unknown or does
/// not fit `i64`.
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
        BinaryOp::Add => left.add(right),
        BinaryOp::Subtract => left.add(right.scale(-1)?),
        BinaryOp::Multiply => {
            let ends = [left.scale(right.min)?, left.scale(right.max)?];
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
        BinaryOp::Add => {
            Some(digits::joined(Sum::of(left).plus(Sum::of(right), 1)?, range)?.into_expr())
        }
        BinaryOp::Subtract => Some(Sum::of(left).plus(Sum::of(right), -1)?.into_expr()),
        BinaryOp::Multiply => match (left.as_integer(), right.as_integer()) {
            (_, Some(factor)) => Some(Sum::of(left).scaled(factor)?.into_expr()),
            (Some(factor), _) => Some(Sum::of(right).scaled(factor)?.into_expr()),
            _ => None,
        },
        BinaryOp::FloorDivide | BinaryOp::Modulo => {
            let divisor = right.as_integer().filter(|divisor| *divisor > 0)?;
            divide(op, Sum::of(left), divisor, range)
        }
        BinaryOp::Divide | BinaryOp::Remainder => {
            let (left, right) = (left.as_integer()?, right.as_integer()?);
            let value = match op {
                BinaryOp::Divide => left.checked_div(right)?,
                _ => left.checked_rem(right)?,
            };
            Some(Expr::Integer(value))
        }
        BinaryOp::Minimum | BinaryOp::Maximum => extreme(op, left, right, range),
        BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Equal => compare(op, left, right, range)
            .map(|known| Expr::Constant(known.into(), DataType::Bool)),
        _ => None,
    }
}

/// The minimum or maximum of all operands of two nested ones, without those that another one decides; `None` where none
/// is left out.
fn extreme(op: BinaryOp, left: &Expr, right: &Expr, range: Known) -> Option<Expr> {
    let (mut operands, mut kept) = (Vec::new(), Vec::<&Expr>::new());
    collect_operands(op, left, &mut operands);
    collect_operands(op, right, &mut operands);
    let decides = |first: &Expr, second: &Expr| {
        difference(first, second, range).is_some_and(|difference| match op {
            BinaryOp::Minimum => difference.max <= 0,
            _ => difference.min >= 0,
        })
    };
    for operand in &operands {
        if kept.iter().any(|other| decides(other, operand)) {
            continue;
        }
        kept.retain(|other| !decides(operand, other));
        kept.push(operand);
    }
    let (last, others) = kept.split_last().filter(|_| kept.len() < operands.len())?;
    let rest = (*last).clone();
    Some(others.iter().rev().fold(rest, |rest, operand| (*operand).clone().binary(op, rest)))
}

fn collect_operands<'a>(op: BinaryOp, expr: &'a Expr, operands: &mut Vec<&'a Expr>) {
    match expr {
        Expr::Binary(inner, left, right) if *inner == op => {
            collect_operands(op, left, operands);
            collect_operands(op, right, operands);
        }
        other => operands.push(other),
    }
}

fn difference(left: &Expr, right: &Expr, range: Known) -> Option<Range> {
    range(&Sum::of(left).plus(Sum::of(right), -1)?.into_expr())
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
/// resolved where its range lies within one quotient. `None` where a factor does not fit `i64`.
fn divide(op: BinaryOp, sum: Sum, divisor: i64, range: Known) -> Option<Expr> {
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
        let inner = divide(op, whole, divisor / shared, range)?;
        let sum = match op {
            BinaryOp::FloorDivide => quotient.plus(Sum::of(&inner), 1)?,
            _ => Sum::of(&inner).scaled(shared)?.plus(below, 1)?,
        };
        return Some(sum.into_expr());
    }
    let rest = rest.into_expr();
    let within = range(&rest)
        .map(|bounds| (bounds.min.div_euclid(divisor), bounds.max.div_euclid(divisor)))
        .filter(|(first, last)| first == last)
        .map(|(first, _)| first);
    Some(match (op, within) {
        (BinaryOp::FloorDivide, Some(whole)) => quotient.plus(Sum::constant(whole), 1)?.into_expr(),
        (BinaryOp::FloorDivide, None) => {
            let rest = match divide_extreme(&Sum::of(&rest), divisor, range) {
                Some(exact) => Sum::of(&exact),
                None => Sum::atom(rest.floor_divide(Expr::Integer(divisor))),
            };
            quotient.plus(rest, 1)?.into_expr()
        }
        (_, Some(whole)) => {
            let multiple = Sum::constant(whole.checked_mul(divisor)?);
            Sum::of(&rest).plus(multiple, -1)?.into_expr()
        }
        (_, None) => rest.modulo(Expr::Integer(divisor)),
    })
}

/// The quotient of a minimum or maximum as that of both quotients, where these are found without another division: how
/// many blocks a tile has at the end of an axis, `(min(96, 2048 - 96 q) + 31) // 32`, is `min(3, 64 - 3 q)`.
fn divide_extreme(sum: &Sum, divisor: i64, range: Known) -> Option<Expr> {
    let [(Expr::Binary(op, left, right), factor)] = &sum.terms[..] else { return None };
    if !matches!(op, BinaryOp::Minimum | BinaryOp::Maximum) || *factor <= 0 {
        return None;
    }
    let quotient = |operand: &Expr| {
        let whole = Sum::of(operand).scaled(*factor)?.plus(Sum::constant(sum.constant), 1)?;
        let quotient = divide(BinaryOp::FloorDivide, whole, divisor, range)?;
        (divisions(&quotient) <= divisions(operand)).then_some(quotient)
    };
    let (left, right) = (quotient(left)?, quotient(right)?);
    Some(extreme(*op, &left, &right, range).unwrap_or_else(|| left.binary(*op, right)))
}

/// How often an expression divides.
fn divisions(expr: &Expr) -> usize {
    let mut count = 0;
    expr.visit(&mut |part| {
        count += usize::from(matches!(part, Expr::Binary(BinaryOp::FloorDivide, ..)));
    });
    count
}

/// A factor of `divisor`, the part of `sum` that is a multiple of it (divided by it), and what is left,
/// where that is never negative and always less than the factor.
fn common_factor(sum: &Sum, divisor: i64, range: Known) -> Option<(i64, Sum, Sum)> {
    let mut factors: Vec<i64> =
        sum.terms.iter().map(|(_, factor)| common_divisor(*factor, divisor)).collect();
    factors.sort_unstable_by_key(|factor| std::cmp::Reverse(*factor));
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
    fn the_blocks_of_a_last_tile_are_counted_without_division() {
        let rest = Expr::Integer(2048) - var(0) * 96;
        let blocks = (Expr::Integer(96).minimum(rest) + 31).floor_divide(Expr::Integer(32));
        let ends = Expr::Integer(64) - var(0) * 3;
        let expected = Expr::Integer(3).minimum(Expr::Integer(64) - var(0) * 3);
        let tiles = |_: VarId| Some(Range::extent(22));
        assert_eq!(simplify(&blocks, &tiles), simplify(&expected, &tiles));
        // The end of the axis says the same once more.
        assert_eq!(simplify(&blocks.minimum(ends), &tiles), simplify(&expected, &tiles));
        // What does not divide stays.
        let uneven = (Expr::Integer(96).minimum(var(0) * 7) + 31).floor_divide(Expr::Integer(32));
        assert!(matches!(simplify(&uneven, &tiles), Expr::Binary(BinaryOp::FloorDivide, ..)));
    }

    #[test]
    fn a_common_factor_divides_out() {
        let index = var(0) * 8 + var(1) + 16;
        let by = Expr::Integer(32);
        let expected = (var(0) + 2).floor_divide(Expr::Integer(4));
        assert_eq!(simplify(&index.clone().floor_divide(by.clone()), &octet), expected);
        let expected = (var(0) + 2).modulo(Expr::Integer(4)) * 8 + var(1);
        assert_eq!(simplify(&index.modulo(by), &octet), expected);
        let one = |_: VarId| Some(Range::point(1));
        assert_eq!(simplify(&(var(0) * 20).modulo(Expr::Integer(16)), &one), var(0) * 20 - 16);
        let quotient = (var(0) * 20).floor_divide(Expr::Integer(16));
        assert_eq!(simplify(&quotient, &one), Expr::Integer(1));
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

    #[test]
    fn arithmetic_beyond_64_bits_is_left_alone() {
        for value in [i64::MIN, i64::MAX] {
            let sum = Expr::Integer(value) + value;
            assert_eq!(simplify(&sum, &octet), sum);
            let product = var(0) * value * 4;
            assert_eq!(simplify(&product, &octet), product);
            let cancelled = product.clone() - product.clone();
            assert_eq!(simplify(&cancelled, &octet), Expr::Integer(0));
            assert_eq!(bounds(&(Expr::Integer(value) * 2), &octet), None);
            let back = (var(0) + value + 1 + value) - value;
            let range = bounds(&back, &octet);
            assert!(range.is_none_or(|range| range.min <= value && value <= range.max), "{back:?}");
        }
        assert_eq!(bounds(&(Expr::Integer(0) - i64::MIN), &octet), None);
        let quotient = Expr::Integer(i64::MIN).floor_divide(Expr::Integer(3));
        assert_eq!(simplify(&quotient, &octet), Expr::Integer(i64::MIN.div_euclid(3)));
        assert_eq!(Range::extent(i64::MIN).max, i64::MIN);
    }

    fn truth_value(value: bool) -> Expr {
        Expr::Constant(value.into(), DataType::Bool)
    }

    #[test]
    fn known_truth_values_decide() {
        let open = var(0).less(Expr::Integer(3));
        let join = |op, known| simplify(&open.clone().binary(op, truth_value(known)), &octet);
        assert_eq!(join(BinaryOp::And, true), open);
        assert_eq!(join(BinaryOp::And, false), truth_value(false));
        assert_eq!(join(BinaryOp::Or, true), truth_value(true));
        assert_eq!(join(BinaryOp::Or, false), open);
        let chosen = |known: bool| simplify(&truth_value(known).select(var(0), var(1)), &octet);
        assert_eq!((chosen(true), chosen(false)), (var(0), var(1)));
    }

    #[test]
    fn values_that_are_not_indices_keep_their_structure() {
        let load = || Expr::Load(crate::BufferId::from_index(0), vec![var(0) + 1 - 1]);
        let simple = || Expr::Load(crate::BufferId::from_index(0), vec![var(0)]);
        for (value, expected) in [
            (load() + 0, simple() + 0),
            (Expr::Integer(1) + (load() + 2), Expr::Integer(1) + (simple() + 2)),
            (load() * (var(1) * 1), simple() * var(1)),
            ((var(1) + 0) - load(), var(1) - simple()),
        ] {
            assert_eq!(simplify(&value, &octet), expected);
        }
        let index = load().cast(DataType::I64);
        assert_eq!(simplify(&(index.clone() + 2 - index), &octet), Expr::Integer(2));
    }

    #[test]
    fn constants_are_computed() {
        let of = |op, left: i64, right: i64| {
            simplify(&Expr::Integer(left).binary(op, Expr::Integer(right)), &octet)
        };
        assert_eq!(of(BinaryOp::Divide, -7, 2), Expr::Integer(-3));
        assert_eq!(of(BinaryOp::Remainder, -7, 2), Expr::Integer(-1));
        assert_eq!(of(BinaryOp::FloorDivide, -7, 2), Expr::Integer(-4));
        assert_eq!(of(BinaryOp::Modulo, -7, 2), Expr::Integer(1));
        assert_eq!(of(BinaryOp::Multiply, -7, 2), Expr::Integer(-14));
        let by_zero = Expr::Integer(1).binary(BinaryOp::Divide, Expr::Integer(0));
        assert_eq!(simplify(&by_zero, &octet), by_zero);
        assert_eq!(simplify(&(Expr::Integer(3) * (var(0) + 2)), &octet), var(0) * 3 + 6);
        assert_eq!(simplify(&((var(0) + 2) * 3), &octet), var(0) * 3 + 6);
        let open = var(0) * var(1);
        assert_eq!(simplify(&open, &octet), open);
    }

    #[test]
    fn comparisons_resolve_by_range() {
        let of =
            |op, left: Expr, right: i64| simplify(&left.binary(op, Expr::Integer(right)), &octet);
        for (op, right, known) in [
            (BinaryOp::Less, 8, Some(true)),
            (BinaryOp::Less, 7, None),
            (BinaryOp::Less, 1, None),
            (BinaryOp::Less, 0, Some(false)),
            (BinaryOp::LessEqual, 7, Some(true)),
            (BinaryOp::LessEqual, 6, None),
            (BinaryOp::LessEqual, 0, None),
            (BinaryOp::LessEqual, -1, Some(false)),
            (BinaryOp::Equal, 8, Some(false)),
            (BinaryOp::Equal, 7, None),
            (BinaryOp::Equal, 0, None),
            (BinaryOp::Equal, -1, Some(false)),
        ] {
            let expected = match known {
                Some(known) => truth_value(known),
                None => var(0).binary(op, Expr::Integer(right)),
            };
            assert_eq!(of(op, var(0), right), expected, "{op:?} {right}");
        }
        assert_eq!(of(BinaryOp::Equal, var(0) - var(0), 0), truth_value(true));
    }

    #[test]
    fn ranges_are_those_of_all_values() {
        let range = |min, max| Some(Range { min, max });
        let of = |expr: Expr| bounds(&expr, &octet);
        assert_eq!(of(var(0) * -3 + 1), range(-20, 1));
        assert_eq!(of((var(0) - 2) * (var(1) - 5)), range(-25, 10));
        assert_eq!(of((var(0) - 2).floor_divide(Expr::Integer(3))), range(-1, 1));
        assert_eq!(of((var(0) + 8).modulo(Expr::Integer(16))), range(8, 15));
        assert_eq!(of((var(0) + 9).modulo(Expr::Integer(16))), range(0, 15));
        assert_eq!(of(var(0).floor_divide(Expr::Integer(0))), None);
        assert_eq!(of(var(0).modulo(Expr::Integer(-2))), None);
        assert_eq!(of((var(0) + 2).minimum(var(1))), range(0, 7));
        assert_eq!(of((var(0) + 2).maximum(var(1))), range(2, 9));
        assert_eq!(of(var(0).less(var(1))), None);
    }
}
