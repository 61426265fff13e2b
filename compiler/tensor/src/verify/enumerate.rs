//! The last resort of showing that an index is inside: all values of its loop variables, one by one.
//!
//! Quotients and remainders of sums, such as shuffled channels make, are beyond intervals and differences,
//! but depend on few variables of constant extent. Of a variable with which the index only rises or only falls
//! the ends are enough.

use crate::sum::Sum;
use crate::{BinaryOp, Domain, Expr, UnaryOp, VarId};

/// Combinations of values that are tried: a tenth of a second.
const MOST: i64 = 1 << 20;

/// Whether `0 <= index < extent` for all values of the loop variables for which none of `not_negative` is
/// negative; false where there are too many of them, or the index is none that is known here. Of
/// `not_negative` only those over the variables of the index count.
pub(super) fn within(index: &Expr, extent: usize, not_negative: &[Expr], domain: &Domain) -> bool {
    let Some(mut loops) = loops_of(index, domain) else { return false };
    let covered = |fact: &&Expr| {
        let mut covered = true;
        fact.visit(&mut |part| {
            covered &= !matches!(part, Expr::Var(var) if !loops.iter().any(|own| own.var == *var));
        });
        covered
    };
    let facts: Vec<&Expr> = not_negative.iter().filter(covered).collect();
    let extents: Vec<&Expr> = loops.iter().map(|own| own.extent).collect();
    for own in &mut loops {
        let elsewhere = facts.iter().chain(&extents).any(|expr| mentions(expr, own.var));
        own.ends = !elsewhere && own.extent.as_integer().is_some() && is_monotone(index, own.var);
    }
    let combinations = loops.iter().try_fold(1i64, |product, own| {
        let values = if own.ends { 2 } else { domain.range(own.var)?.max.checked_add(1)?.max(1) };
        product.checked_mul(values).filter(|product| *product <= MOST)
    });
    if combinations.is_none() {
        return false;
    }
    let extent = i64::try_from(extent).unwrap_or(i64::MAX);
    let mut inside = |values: &Values| -> Option<bool> {
        for fact in &facts {
            if values.integer(fact)? < 0 {
                return Some(true);
            }
        }
        values.integer(index).map(|index| (0..extent).contains(&index))
    };
    every(&loops, &mut Values::default(), &mut inside) == Some(true)
}

/// A loop, and how its values are tried.
struct Loop<'a> {
    var: VarId,
    extent: &'a Expr,
    /// Only the first and the last value.
    ends: bool,
}

fn mentions(expr: &Expr, var: VarId) -> bool {
    let mut found = false;
    expr.visit(&mut |part| found |= *part == Expr::Var(var));
    found
}

/// Whether an index never falls, or never rises, with a variable, whatever the others are.
fn is_monotone(index: &Expr, var: VarId) -> bool {
    let sum = Sum::of(index);
    let mut terms = sum.terms.iter().filter(|(atom, _)| mentions(atom, var));
    let (Some((atom, _)), None) = (terms.next(), terms.next()) else { return false };
    match atom {
        Expr::Var(_) => true,
        Expr::Binary(BinaryOp::FloorDivide, dividend, divisor) => {
            divisor.as_integer().is_some_and(|own| own > 0) && is_monotone(dividend, var)
        }
        _ => false,
    }
}

/// The loops whose variables an index depends on, those of their extents among them, outermost first.
fn loops_of<'a>(index: &Expr, domain: &'a Domain) -> Option<Vec<Loop<'a>>> {
    let mut needed: Vec<VarId> = Vec::new();
    let collect = |expr: &Expr, needed: &mut Vec<VarId>| {
        expr.visit(&mut |part| {
            if let Expr::Var(var) = part
                && !needed.contains(var)
            {
                needed.push(*var);
            }
        });
    };
    collect(index, &mut needed);
    let mut loops = Vec::new();
    let axes: Vec<(VarId, &Expr)> = domain.axes().collect();
    for (var, extent) in axes.into_iter().rev() {
        if needed.contains(&var) {
            collect(extent, &mut needed);
            loops.push(Loop { var, extent, ends: false });
        }
    }
    loops.reverse();
    (loops.len() == needed.len()).then_some(loops)
}

/// Whether `holds` for all values of `loops`; `None` where something cannot be evaluated.
fn every(
    loops: &[Loop<'_>],
    values: &mut Values,
    holds: &mut dyn FnMut(&Values) -> Option<bool>,
) -> Option<bool> {
    let Some((own, inner)) = loops.split_first() else { return holds(values) };
    let extent = values.integer(own.extent)?;
    let step = if own.ends { (extent - 1).max(1) } else { 1 };
    let mut value = 0;
    while value < extent {
        values.0.push((own.var, value));
        value += step;
        let all = every(inner, values, holds);
        values.0.pop();
        if all != Some(true) {
            return all;
        }
    }
    Some(true)
}

/// One value for each variable so far.
#[derive(Default)]
struct Values(Vec<(VarId, i64)>);

impl Values {
    /// The value of an index; `None` where it overflows, or is made of loads or of floating-point numbers.
    fn integer(&self, expr: &Expr) -> Option<i64> {
        match expr {
            Expr::Integer(value) => Some(*value),
            Expr::Var(var) => self.0.iter().find(|own| own.0 == *var).map(|own| own.1),
            Expr::Select(condition, then, otherwise) => {
                self.integer(if self.truth(condition)? { then } else { otherwise })
            }
            Expr::Binary(op, left, right) => {
                let (left, right) = (self.integer(left)?, self.integer(right)?);
                match op {
                    BinaryOp::Add => left.checked_add(right),
                    BinaryOp::Subtract => left.checked_sub(right),
                    BinaryOp::Multiply => left.checked_mul(right),
                    BinaryOp::FloorDivide if right > 0 => Some(left.div_euclid(right)),
                    BinaryOp::Modulo if right > 0 => Some(left.rem_euclid(right)),
                    BinaryOp::Minimum => Some(left.min(right)),
                    BinaryOp::Maximum => Some(left.max(right)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn truth(&self, condition: &Expr) -> Option<bool> {
        match condition {
            Expr::Unary(UnaryOp::Not, inner) => self.truth(inner).map(|own| !own),
            Expr::Binary(BinaryOp::And, left, right) => {
                Some(self.truth(left)? && self.truth(right)?)
            }
            Expr::Binary(BinaryOp::Or, left, right) => {
                Some(self.truth(left)? || self.truth(right)?)
            }
            Expr::Binary(op, left, right) if op.is_comparison() => {
                let (left, right) = (self.integer(left)?, self.integer(right)?);
                Some(match op {
                    BinaryOp::Equal => left == right,
                    BinaryOp::Less => left < right,
                    _ => left <= right,
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhaustive::{Loops, condition, expression, id, value};
    use hone_types::{Id, Random};

    /// A domain of loops of constant extents, and their variables.
    fn domain(extents: &[i64]) -> (Domain, Vec<VarId>) {
        let mut domain = Domain::default();
        let mut vars = Vec::new();
        for (place, extent) in extents.iter().enumerate() {
            let var = VarId::from_index(place);
            domain.push(var, &Expr::Integer(*extent));
            vars.push(var);
        }
        (domain, vars)
    }

    #[test]
    fn a_shuffled_channel_is_inside() {
        // Channel 29 * (c % 2) + c / 2 of 58, from blocks of 8: its block is below 8, and not below 7.
        let (domain, vars) = domain(&[58]);
        let channel = Expr::Var(vars[0]);
        let shuffled = channel.clone().modulo(Expr::Integer(2)) * Expr::Integer(29)
            + channel.floor_divide(Expr::Integer(2));
        let block = shuffled.floor_divide(Expr::Integer(8));
        assert!(within(&block, 8, &[], &domain));
        assert!(!within(&block, 7, &[], &domain));
    }

    #[test]
    fn of_what_only_rises_the_ends_are_tried() {
        // Blocks of 64 rows of 272 split in halves: too many values but for the last variable's two.
        let (domain, vars) = domain(&[272, 1 << 20]);
        let index = Expr::Var(vars[0]).modulo(Expr::Integer(17)) * Expr::Integer(1 << 16)
            + Expr::Var(vars[1]).floor_divide(Expr::Integer(16));
        assert!(within(&index, 17 << 16, &[], &domain));
        assert!(!within(&index, (17 << 16) - 1, &[], &domain));
    }

    #[test]
    fn what_cannot_be_tried_is_not_shown() {
        let (domain, vars) = domain(&[1 << 21]);
        let index = Expr::Var(vars[0]).modulo(Expr::Integer(3));
        assert!(!within(&index, 3, &[], &domain), "too many values");
        let stranger = Expr::Var(VarId::from_index(9));
        assert!(!within(&stranger, 3, &[], &domain), "of no loop");
    }

    #[test]
    fn facts_over_the_same_variables_count() {
        let (domain, vars) = domain(&[10]);
        let index = Expr::Var(vars[0]);
        let fact = Expr::Integer(4) - index.clone();
        assert!(!within(&index, 5, &[], &domain));
        assert!(within(&index, 5, &[fact], &domain));
    }

    #[test]
    fn what_is_tried_is_what_holds() {
        let mut random = Random::new(14);
        let mut counts = [0, 0];
        for loops in Loops::several() {
            for _ in 0..400 {
                let chosen = expression(&mut random, 3, 2);
                let index = condition(&mut random, 3, 2).select(chosen.clone(), chosen + 1)
                    + expression(&mut random, 3, 2);
                let fact = expression(&mut random, 3, 2);
                let extent = random.below(16);
                let allowed = |point: &&Vec<i64>| value(&fact, point) >= 0;
                let inside = |point: &Vec<i64>| (0..extent as i64).contains(&value(&index, point));
                let known = std::slice::from_ref(&fact);
                let found = within(&index, extent, known, &loops.domain);
                let expected = loops.points.iter().filter(allowed).all(inside);
                assert!(expected || !found, "{index:?} below {extent} where {fact:?}");
                let told =
                    (0..3).all(|place| index.mentions(id(place)) || !fact.mentions(id(place)));
                assert!(found || !expected || !told, "{index:?} below {extent} where {fact:?}");
                counts[usize::from(found)] += 1;
            }
        }
        assert!(counts.into_iter().all(|count| count > 100), "{counts:?}");
    }

    #[test]
    fn as_many_values_as_are_tried_are_tried() {
        let index = |var: VarId| Expr::Var(var).modulo(Expr::Integer(3));
        let (few, vars) = domain(&[MOST]);
        assert!(within(&index(vars[0]), 3, &[], &few));
        let (many, vars) = domain(&[MOST + 1]);
        assert!(!within(&index(vars[0]), 3, &[], &many));
    }

    #[test]
    fn what_rises_with_each_loop_is_tried_at_its_ends() {
        let (large, vars) = domain(&[1 << 40, 1 << 40]);
        let (a, b) = (Expr::Var(vars[0]), Expr::Var(vars[1]));
        let quotient = |expr: Expr| expr.floor_divide(Expr::Integer(1 << 20));
        let shown = |index: &Expr| within(index, 1 << 22, &[], &large);
        assert!(shown(&quotient(a.clone())));
        assert!(shown(&(quotient(a.clone()) + quotient(b.clone()))));
        assert!(shown(&(quotient(a.clone()) - quotient(b.clone()) + (1 << 20))));
        assert!(!shown(&(quotient(a.clone()) - quotient(b.clone()))));
        // Of two terms with one variable it is not known which of them wins, nor of a remainder.
        assert!(!shown(&(quotient(a.clone()) - quotient(a.clone() * 2) + (1 << 21))));
        assert!(!shown(&a.modulo(Expr::Integer(7))));
        // Neither are ends enough where a fact speaks of the variable.
        let fact = Expr::Integer(1 << 39) - b.clone();
        assert!(!within(&quotient(b), 1 << 20, &[fact], &large));
    }
}
