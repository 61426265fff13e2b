//! What is known about the variables of nested loops, extents that depend on outer loops included.
//!
//! Intervals alone lose the tie between a loop and the extent of the one inside it: for `o` in `0..8`
//! and `i` in `0..min(14, 100 - o * 14)` they put `o * 14 + i` below 112. A [`Domain`] removes
//! variables from the innermost out, putting in for each the ends of its own extent, and finds 100.

use crate::affine::{bounds, simplify, simplify_by};
use crate::sum::Sum;
use crate::{BinaryOp, Expr, Range, VarId};

/// More candidates for one bound than this are not followed; the first ones are valid by themselves.
const CANDIDATES: usize = 24;

/// Loops from the outermost in; each extent mentions only earlier variables.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    loops: Vec<Axis>,
}

#[derive(Clone, Debug)]
struct Axis {
    var: VarId,
    extent: Expr,
    range: Option<Range>,
}

impl Domain {
    /// Adds a loop inside the others.
    pub fn push(&mut self, var: VarId, extent: &Expr) {
        let range = self.largest(extent).map(Range::extent);
        self.loops.push(Axis { var, extent: extent.clone(), range });
    }

    /// Number of loops.
    pub fn len(&self) -> usize {
        self.loops.len()
    }

    /// Whether there is no loop.
    pub fn is_empty(&self) -> bool {
        self.loops.is_empty()
    }

    /// The number of loops around the one over `var`.
    pub(crate) fn position(&self, var: VarId) -> Option<usize> {
        self.loops.iter().position(|axis| axis.var == var)
    }

    /// The loops' variables and extents, outermost first.
    pub(crate) fn axes(&self) -> impl Iterator<Item = (VarId, &Expr)> {
        self.loops.iter().map(|axis| (axis.var, &axis.extent))
    }

    /// The variables, outermost first.
    pub(crate) fn variables(&self) -> impl Iterator<Item = VarId> {
        self.loops.iter().map(|axis| axis.var)
    }

    /// Whether every variable of an expression is one of these loops'.
    pub(crate) fn covers(&self, expr: &Expr) -> bool {
        let mut covered = true;
        expr.visit(&mut |part| {
            covered &= !matches!(part, Expr::Var(var) if self.position(*var).is_none());
        });
        covered
    }

    /// The outermost `depth` loops.
    pub fn outer(&self, depth: usize) -> Domain {
        Domain { loops: self.loops[..depth].to_vec() }
    }

    /// The range of a variable.
    pub fn range(&self, var: VarId) -> Option<Range> {
        self.loops.iter().find(|own| own.var == var)?.range
    }

    /// Whether the loop over `var` certainly has no iteration.
    pub(crate) fn never_runs(&self, var: VarId) -> bool {
        self.range(var).is_some_and(|range| range.max < range.min)
    }

    /// Whether the loop over `var` is one of these and has a constant extent.
    pub fn constant_extent(&self, var: VarId) -> bool {
        let mut loops = self.loops.iter();
        loops.any(|own| own.var == var && own.extent.as_integer().is_some())
    }

    /// The range of an index expression; `None` where it is unknown. Every value lies in it; its
    /// ends need not be reached.
    pub fn bounds(&self, expr: &Expr) -> Option<Range> {
        Some(Range { min: self.least(expr)?, max: self.largest(expr)? })
    }

    /// A number that no value of an index expression exceeds; `None` where none is known.
    fn largest(&self, expr: &Expr) -> Option<i64> {
        let loose = self.loose(expr).map(|range| range.max);
        match self.is_plain(expr) {
            true => loose,
            false => Self::constants(self.upper(expr, 0)).chain(loose).min(),
        }
    }

    /// A number below which no value of an index expression is; `None` where none is known.
    fn least(&self, expr: &Expr) -> Option<i64> {
        let loose = self.loose(expr).map(|range| range.min);
        match self.is_plain(expr) {
            true => loose,
            false => Self::constants(self.lower(expr, 0)).chain(loose).max(),
        }
    }

    /// Whether no value of an index expression is below `bound`. Often intervals alone show it.
    pub(crate) fn is_at_least(&self, expr: &Expr, bound: i64) -> bool {
        self.loose(expr).is_some_and(|range| range.min >= bound)
            || self.least(expr).is_some_and(|least| least >= bound)
    }

    /// The range of an index expression by intervals alone.
    fn loose(&self, expr: &Expr) -> Option<Range> {
        bounds(expr, &|var| self.range(var))
    }

    fn constants(candidates: Option<Vec<Expr>>) -> impl Iterator<Item = i64> {
        candidates.unwrap_or_default().into_iter().filter_map(|own| own.as_integer())
    }

    /// An equal expression in simplest form.
    pub fn simplify(&self, expr: &Expr) -> Expr {
        simplify_by(expr, &|index| self.bounds(index))
    }

    /// An equal expression in simplest form, for an extent: loops that run once are put in as 0, and
    /// an expression of only one value becomes that value.
    pub fn simplify_extent(&self, expr: &Expr) -> Expr {
        let once = |var: VarId| self.range(var).is_some_and(|own| own.min == 0 && own.max == 0);
        let expr = self.simplify(&expr.substitute(&|var| once(var).then_some(Expr::Integer(0))));
        match self.bounds(&expr) {
            Some(Range { min, max }) if min == max => Expr::Integer(min),
            _ => expr,
        }
    }

    /// An index as a constant and terms with their factors; the terms are variables and what is not
    /// a sum.
    pub fn terms(&self, expr: &Expr) -> (i64, Vec<(Expr, i64)>) {
        let sum = Sum::of(&self.simplify(expr));
        (sum.constant, sum.terms)
    }

    /// Upper bounds of an index over all values of the loops inside the outermost `depth`, in terms
    /// of the variables of those: each holds, the least of them is the closest. `None` where there
    /// is none.
    pub fn upper(&self, expr: &Expr, depth: usize) -> Option<Vec<Expr>> {
        self.extreme(expr, depth, true)
    }

    /// Lower bounds, as [`Domain::upper`]; the largest of them is the closest.
    pub fn lower(&self, expr: &Expr, depth: usize) -> Option<Vec<Expr>> {
        self.extreme(expr, depth, false)
    }

    /// Drops those of several upper (`up`) or lower bounds that others make superfluous.
    pub fn closest(&self, mut candidates: Vec<Expr>, up: bool) -> Vec<Expr> {
        let mut place = 0;
        while place < candidates.len() {
            let own = &candidates[place];
            let superfluous = candidates.iter().enumerate().any(|(other, better)| {
                let difference =
                    if up { own.clone() - better.clone() } else { better.clone() - own.clone() };
                let difference = self.bounds(&self.loosely(&difference));
                // Of equal ones the first stays.
                difference.is_some_and(|range| {
                    range.min > 0 || (range.min == 0 && (range.max > 0 || other < place))
                }) && other != place
            });
            if superfluous {
                candidates.remove(place);
            } else {
                place += 1;
            }
        }
        candidates
    }

    fn extreme(&self, expr: &Expr, depth: usize, up: bool) -> Option<Vec<Expr>> {
        let mut candidates = self.alternatives(self.loosely(expr), up, true);
        for place in (depth..self.loops.len()).rev() {
            let mut next: Vec<Expr> = Vec::new();
            for candidate in &candidates {
                let ends = self.eliminate(candidate, place, up).unwrap_or_default();
                for better in ends.into_iter().flat_map(|end| self.alternatives(end, up, false)) {
                    if !next.contains(&better) && next.len() < CANDIDATES {
                        next.push(better);
                    }
                }
            }
            candidates = next;
        }
        (!candidates.is_empty()).then_some(candidates)
    }

    /// Whether intervals lose nothing: no minimum or maximum, and no variable whose extent depends on
    /// another.
    fn is_plain(&self, expr: &Expr) -> bool {
        let mut plain = true;
        expr.visit(&mut |part| match part {
            Expr::Binary(BinaryOp::Minimum | BinaryOp::Maximum, ..) => plain = false,
            Expr::Var(var) => plain &= self.constant_extent(*var),
            _ => {}
        });
        plain
    }

    fn loosely(&self, expr: &Expr) -> Expr {
        simplify(expr, &|var| self.range(var))
    }

    /// The largest (`up`) or least values over the variable at `place`, all others fixed.
    fn eliminate(&self, expr: &Expr, place: usize, up: bool) -> Option<Vec<Expr>> {
        let var = self.loops[place].var;
        if !expr.mentions(var) {
            return Some(vec![expr.clone()]);
        }
        let Sum { constant, terms } = Sum::of(expr);
        let mut sums = vec![Sum::constant(constant)];
        for (atom, factor) in terms {
            let ends = if atom.mentions(var) {
                self.end_of_atom(&atom, place, up == (factor > 0))?
            } else {
                vec![atom]
            };
            sums = sums
                .iter()
                .flat_map(|sum| ends.iter().map(|end| sum.clone().plus(Sum::of(end), factor)))
                .take(CANDIDATES)
                .collect::<Option<_>>()?;
        }
        Some(sums.into_iter().map(|sum| self.loosely(&sum.into_expr())).collect())
    }

    fn end_of_atom(&self, atom: &Expr, place: usize, up: bool) -> Option<Vec<Expr>> {
        let symbolic = match atom {
            Expr::Var(_) if up => Some(self.last_values(place)),
            Expr::Var(_) => Some(vec![Expr::Integer(0)]),
            Expr::Binary(BinaryOp::FloorDivide, inner, divisor) => {
                divisor.as_integer().filter(|divisor| *divisor > 0).and_then(|_| {
                    let ends = self.eliminate(inner, place, up)?;
                    Some(
                        ends.into_iter().map(|end| end.floor_divide((**divisor).clone())).collect(),
                    )
                })
            }
            Expr::Binary(op @ (BinaryOp::Minimum | BinaryOp::Maximum), left, right) => {
                let left = self.eliminate(left, place, up)?;
                let right = self.eliminate(right, place, up)?;
                if up == (*op == BinaryOp::Minimum) {
                    Some(left.into_iter().chain(right).collect())
                } else {
                    let pairs = left.iter().flat_map(|left| {
                        right.iter().map(|right| left.clone().binary(*op, right.clone()))
                    });
                    Some(pairs.take(CANDIDATES).collect())
                }
            }
            _ => None,
        };
        symbolic.or_else(|| {
            let range = bounds(atom, &|var| self.range(var))?;
            Some(vec![Expr::Integer(if up { range.max } else { range.min })])
        })
    }

    /// Upper bounds of the variable at `place`.
    fn last_values(&self, place: usize) -> Vec<Expr> {
        self.alternatives(self.loosely(&(self.loops[place].extent.clone() - 1)), true, false)
    }

    /// Upper (`up`) or lower bounds without the minima and maxima of which every operand is one:
    /// `a + min(b, c)` is at most `a + b` and at most `a + c`. Those that are subtracted are opened
    /// where asked for: left closed, they may yet cancel.
    fn alternatives(&self, expr: Expr, up: bool, subtracted: bool) -> Vec<Expr> {
        let sum = Sum::of(&expr);
        let open = |(atom, factor): &(Expr, i64)| {
            let wanted = if up == (*factor > 0) { BinaryOp::Minimum } else { BinaryOp::Maximum };
            matches!(atom, Expr::Binary(op, ..) if *op == wanted) && (subtracted || *factor > 0)
        };
        let Some(place) = sum.terms.iter().position(open) else { return vec![expr] };
        let mut rest = sum.clone();
        let (atom, factor) = rest.terms.remove(place);
        let operands = atom.operands().into_iter();
        let each: Option<Vec<Sum>> =
            operands.map(|operand| rest.clone().plus(Sum::of(operand), factor)).collect();
        let Some(each) = each else { return vec![expr] };
        each.into_iter()
            .flat_map(|sum| self.alternatives(self.loosely(&sum.into_expr()), up, subtracted))
            .take(CANDIDATES)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_types::Id;

    fn var(index: usize) -> VarId {
        VarId::from_index(index)
    }

    /// `o` in `0..8`, `i` in `0..min(14, 100 - o * 14)`.
    fn tiles() -> (Domain, Expr, Expr) {
        let (outer, inner) = (Expr::Var(var(0)), Expr::Var(var(1)));
        let mut domain = Domain::default();
        domain.push(var(0), &Expr::Integer(8));
        domain.push(var(1), &Expr::Integer(14).minimum(Expr::Integer(100) - outer.clone() * 14));
        (domain, outer, inner)
    }

    #[test]
    fn last_tile_stays_inside() {
        let (domain, outer, inner) = tiles();
        let index = outer * 14 + inner;
        assert_eq!(domain.bounds(&index), Some(Range { min: 0, max: 99 }));
    }

    #[test]
    fn region_of_a_tile_keeps_both_ends() {
        let (domain, outer, inner) = tiles();
        let index = outer.clone() * 14 + inner;
        let upper = domain.upper(&index, 1).unwrap_or_default();
        assert_eq!(upper, vec![outer * 14 + 13, Expr::Integer(99)]);
    }

    #[test]
    fn quotients_follow_their_operand() {
        let (domain, outer, inner) = tiles();
        let index = (outer.clone() * 14 + inner).floor_divide(Expr::Integer(2));
        let lower = domain.lower(&index, 1).unwrap_or_default();
        assert_eq!(lower, vec![outer * 7]);
        assert_eq!(domain.bounds(&index), Some(Range { min: 0, max: 49 }));
    }

    #[test]
    fn only_the_closest_bounds_stay() {
        let (domain, outer, _) = tiles();
        let integers = |values: &[i64]| values.iter().copied().map(Expr::Integer).collect();
        let closest = |values: &[i64], up| domain.closest(integers(values), up);
        assert_eq!(closest(&[3, 5, 3], true), vec![Expr::Integer(3)]);
        assert_eq!(closest(&[3, 5, 5], false), vec![Expr::Integer(5)]);
        // Neither is always the closer one.
        let open = vec![Expr::Integer(3), outer];
        assert_eq!(domain.closest(open.clone(), true), open);
        assert_eq!(domain.closest(open.clone(), false), open);
    }
}
