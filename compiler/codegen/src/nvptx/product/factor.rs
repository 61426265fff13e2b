//! The factors of a sum of products: where their elements lie by the iterators, and where they count as zero.

use crate::linear::{Linear, flatten};
use hone_tensor::{BinaryOp, BufferId, Expr, Program, VarId};
use hone_types::DataType;
use hone_types::Id;

/// A factor, by the iterators it depends on.
pub(in crate::nvptx) struct Factor {
    pub(in crate::nvptx) buffer: BufferId,
    /// The element that it is where all iterators are 0.
    pub(in crate::nvptx) start: i64,
    /// Distances of neighbours along iterators or their quotients.
    steps: Vec<(Term, i64)>,
    /// Outside of any of these it is zero.
    pub(in crate::nvptx) bounds: Vec<Bound>,
}

/// An iterator, or its quotient by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    var: VarId,
    /// 1 for the iterator itself.
    divisor: i64,
}

/// `low <= sum of iterators with factors < high`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvptx) struct Bound {
    /// In the order of the iterators, each once; the first factor is positive.
    pub(super) terms: Vec<(VarId, i64)>,
    pub(super) low: i64,
    pub(super) high: i64,
}

/// What takes the end of a bound that has none: beyond every coordinate, with room for a distance to it in 32 bits.
const UNBOUNDED: i64 = 1 << 29;

impl Factor {
    /// A load of the type of the sums, or widened to it, whose index is a sum of iterators and of their quotients, and
    /// which may be replaced by zero out of bounds.
    pub(in crate::nvptx) fn of(program: &Program, expr: &Expr, sum: DataType) -> Option<Self> {
        let (mut expr, mut bounds) = (expr, Vec::new());
        let (buffer, indices) = loop {
            match expr {
                Expr::Cast(to, value) if *to == sum => expr = value,
                Expr::Select(condition, value, otherwise) if is_zero(otherwise) => {
                    add_bounds(&mut bounds, condition)?;
                    expr = value;
                }
                Expr::Load(buffer, indices) => break (*buffer, indices),
                _ => return None,
            }
        };
        let linear = Linear::of(&flatten(indices, &program.buffers[buffer].shape)?);
        let steps = linear.terms.iter().map(|(term, step)| Some((Term::of(term)?, *step)));
        let steps = steps.collect::<Option<_>>()?;
        Some(Self { buffer, start: linear.constant, steps, bounds })
    }

    fn step(&self, var: VarId, divisor: i64) -> i64 {
        let term = Term { var, divisor };
        self.steps.iter().find(|(other, _)| *other == term).map_or(0, |(_, step)| *step)
    }

    /// The distance of neighbours along an axis: an iterator (divisor 1), or its quotient by a number.
    pub(in crate::nvptx) fn along(&self, var: VarId, divisor: usize) -> i64 {
        match divisor as i64 {
            1 => self.step(var, 1),
            divisor => self.step(var, 1) * divisor + self.step(var, divisor),
        }
    }

    /// Every iterator, with the number that it is divided by (1 for none) and the distance of neighbours along that.
    pub(in crate::nvptx) fn terms(&self) -> impl Iterator<Item = (VarId, i64, i64)> {
        self.steps.iter().map(|(term, step)| (term.var, term.divisor, *step))
    }

    /// The number that an iterator is divided by, where it is.
    pub(super) fn divisor(&self, var: VarId) -> Option<i64> {
        let divided = |(term, _): &&(Term, i64)| term.var == var && term.divisor != 1;
        self.steps.iter().find(divided).map(|(term, _)| term.divisor)
    }

    /// The iterators whose quotients it depends on, with the divisors.
    pub(super) fn divided(&self) -> impl Iterator<Item = (VarId, i64)> {
        let divided = self.steps.iter().filter(|(term, _)| term.divisor != 1);
        divided.map(|(term, _)| (term.var, term.divisor))
    }
}

impl Term {
    fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Var(var) => Some(Self { var: *var, divisor: 1 }),
            Expr::Binary(BinaryOp::FloorDivide, value, divisor) => match (&**value, &**divisor) {
                (Expr::Var(var), Expr::Integer(divisor @ 1..)) => {
                    Some(Self { var: *var, divisor: *divisor })
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn is_zero(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(_, value) => is_zero(value),
        Expr::Constant(value, _) => *value == 0.0,
        _ => false,
    }
}

/// Adds the bounds that a condition is made of; `None` where it is no such condition.
fn add_bounds(bounds: &mut Vec<Bound>, condition: &Expr) -> Option<()> {
    if let Expr::Binary(BinaryOp::And, left, right) = condition {
        add_bounds(bounds, left)?;
        return add_bounds(bounds, right);
    }
    let Expr::Binary(op, left, right) = condition else { return None };
    let strict = match op {
        BinaryOp::Less => 1,
        BinaryOp::LessEqual => 0,
        _ => return None,
    };
    // What has to be at least zero.
    let linear = Linear::of(&((**right).clone() - (**left).clone()));
    let constant = linear.constant - strict;
    let mut terms = Vec::with_capacity(linear.terms.len());
    for (term, factor) in &linear.terms {
        let Expr::Var(var) = term else { return None };
        terms.push((*var, *factor));
    }
    terms.sort_by_key(|(var, _)| var.index());
    let Some((_, first)) = terms.first() else { return (constant >= 0).then_some(()) };
    let negated = *first < 0;
    terms.iter_mut().for_each(|(_, factor)| *factor *= if negated { -1 } else { 1 });
    let known = bounds.iter_mut().find(|bound| bound.terms == terms);
    let bound = match known {
        Some(known) => known,
        None => {
            bounds.push(Bound { terms, low: -UNBOUNDED, high: UNBOUNDED });
            bounds.last_mut()?
        }
    };
    match negated {
        true => bound.high = bound.high.min(constant + 1),
        false => bound.low = bound.low.max(-constant),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_ends_of_a_window_are_one_bound() {
        let (row, position) = (VarId::from_index(0), VarId::from_index(1));
        let at = Expr::Var(row) * 2 + Expr::Var(position);
        let inside = Expr::Integer(1).less_equal(at.clone()).and(at.clone().less(Expr::Integer(8)));
        let mut bounds = Vec::new();
        add_bounds(&mut bounds, &inside).unwrap();
        assert_eq!(bounds, [Bound { terms: vec![(row, 2), (position, 1)], low: 1, high: 8 }]);
        add_bounds(&mut bounds, &at.clone().less(Expr::Integer(5))).unwrap();
        assert_eq!((bounds.len(), bounds[0].high), (1, 5));
        // What is always so is no bound; equality and quotients are none.
        assert!(add_bounds(&mut bounds, &Expr::Integer(1).less(Expr::Integer(2))).is_some());
        assert!(add_bounds(&mut bounds, &Expr::Integer(2).less(Expr::Integer(2))).is_none());
        assert!(add_bounds(&mut bounds, &at.clone().equal(Expr::Integer(2))).is_none());
        let quotient = at.floor_divide(Expr::Integer(3));
        assert!(add_bounds(&mut bounds, &quotient.less(Expr::Integer(2))).is_none());
        assert_eq!(bounds.len(), 1);
    }
}
