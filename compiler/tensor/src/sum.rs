//! Index expressions as sums of atoms with integer factors.

use crate::{BinaryOp, Expr};

/// A sum of atoms with integer factors, plus a constant. An atom is an expression that is not itself
/// a sum; the same atom stands once. Operations give `None` where a factor does not fit `i64`.
#[derive(Clone, Debug, Default, PartialEq)]
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

    /// The sum that `expr` is. A part whose factors do not fit `i64` is taken as an atom.
    pub(crate) fn of(expr: &Expr) -> Self {
        let sum = match expr {
            Expr::Integer(value) => Some(Self::constant(*value)),
            Expr::Binary(BinaryOp::Add, left, right) => Self::of(left).plus(Self::of(right), 1),
            Expr::Binary(BinaryOp::Subtract, left, right) => {
                Self::of(left).plus(Self::of(right), -1)
            }
            Expr::Binary(BinaryOp::Multiply, left, right) => {
                right.as_integer().and_then(|factor| Self::of(left).scaled(factor))
            }
            _ => None,
        };
        sum.unwrap_or_else(|| Self::atom(expr.clone()))
    }

    /// `self * factor`
    pub(crate) fn scaled(mut self, factor: i64) -> Option<Self> {
        self.constant = self.constant.checked_mul(factor)?;
        for (_, existing) in &mut self.terms {
            *existing = existing.checked_mul(factor)?;
        }
        self.terms.retain(|(_, existing)| *existing != 0);
        Some(self)
    }

    /// `self + other * factor`
    pub(crate) fn plus(mut self, other: Self, factor: i64) -> Option<Self> {
        self.constant = self.constant.checked_add(other.constant.checked_mul(factor)?)?;
        for (atom, added) in other.terms {
            let added = added.checked_mul(factor)?;
            match self.terms.iter_mut().find(|(existing, _)| *existing == atom) {
                Some((_, existing)) => *existing = existing.checked_add(added)?,
                None => self.terms.push((atom, added)),
            }
        }
        self.terms.retain(|(_, existing)| *existing != 0);
        Some(self)
    }

    /// Terms that are added, then those that are subtracted, the constant where it reads best.
    pub(crate) fn into_expr(self) -> Expr {
        let Sum { constant, terms } = self;
        let (added, subtracted): (Vec<_>, Vec<_>) = terms
            .into_iter()
            .partition(|(_, factor)| *factor > 0 || factor.checked_neg().is_none());
        let product = |(atom, factor): (Expr, i64)| if factor == 1 { atom } else { atom * factor };
        let mut sum = added.into_iter().map(product).reduce(|sum, term| sum + term);
        let leads = sum.is_none() && (constant > 0 || subtracted.is_empty());
        if leads {
            sum = Some(Expr::Integer(constant));
        }
        for (atom, factor) in subtracted {
            sum = Some(match sum {
                Some(sum) => sum - product((atom, -factor)),
                None => atom * factor,
            });
        }
        match (sum, constant.checked_neg()) {
            (Some(sum), _) if leads || constant == 0 => sum,
            (Some(sum), Some(negated)) if constant < 0 => sum - negated,
            (Some(sum), _) => sum + constant,
            (None, _) => Expr::Integer(constant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VarId;
    use hone_types::Id;

    fn var() -> Expr {
        Expr::Var(VarId::from_index(0))
    }

    #[test]
    fn operations_stop_at_64_bits() {
        for extreme in [i64::MIN, i64::MAX] {
            assert_eq!(Sum::constant(extreme).scaled(2), None);
            assert_eq!(Sum::constant(extreme).plus(Sum::constant(extreme), 1), None);
            assert_eq!(Sum::of(&(var() * extreme)).scaled(-2), None);
            let twice = Sum::of(&(var() * extreme)).plus(Sum::of(&(var() * extreme)), 1);
            assert_eq!(twice, None);
            assert_eq!(Sum::of(&(var() + extreme)).constant, extreme);
        }
        assert_eq!(Sum::constant(0).plus(Sum::constant(i64::MIN), -1), None);
        assert_eq!(Sum::constant(i64::MAX).plus(Sum::constant(i64::MAX), -1), Some(Sum::default()));
    }

    #[test]
    fn parts_that_do_not_fit_are_atoms() {
        let product = var() * i64::MAX * 2;
        assert_eq!(Sum::of(&product), Sum::atom(product.clone()));
        let sum = Sum::of(&(product.clone() + 5));
        assert_eq!(sum, Sum { constant: 5, terms: vec![(product, 1)] });
    }

    #[test]
    fn extremes_survive_the_way_back() {
        for extreme in [i64::MIN, i64::MIN + 1, i64::MAX] {
            for expr in [var() * extreme, var() + extreme, var() * -3 + extreme] {
                let sum = Sum::of(&expr);
                assert_eq!(Sum::of(&sum.clone().into_expr()), sum, "{expr:?}");
            }
        }
    }
}
