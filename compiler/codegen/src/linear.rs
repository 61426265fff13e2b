//! Index expressions as sums: a constant, and terms with integer factors.

use hone_tensor::{BinaryOp, Expr};

/// A sum of terms with factors, plus a constant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Linear {
    /// Expressions that are no sums themselves, each once, with their factors.
    pub(crate) terms: Vec<(Expr, i64)>,
    /// What is added.
    pub(crate) constant: i64,
}

impl Linear {
    /// The sum that a simplified expression is; one term where a factor does not fit `i64`.
    pub(crate) fn of(expr: &Expr) -> Self {
        let mut linear = Self::default();
        if linear.add(expr, 1).is_none() {
            return Self { terms: vec![(expr.clone(), 1)], constant: 0 };
        }
        linear.terms.retain(|(_, factor)| *factor != 0);
        linear
    }

    /// Adds `expr * factor`; `None` where a factor does not fit `i64`.
    fn add(&mut self, expr: &Expr, factor: i64) -> Option<()> {
        match expr {
            Expr::Integer(value) => {
                self.constant = self.constant.checked_add(value.checked_mul(factor)?)?;
                Some(())
            }
            Expr::Binary(BinaryOp::Add, left, right) => {
                self.add(left, factor)?;
                self.add(right, factor)
            }
            Expr::Binary(BinaryOp::Subtract, left, right) => {
                self.add(left, factor)?;
                self.add(right, factor.checked_neg()?)
            }
            Expr::Binary(BinaryOp::Multiply, left, right) => {
                match (left.as_integer(), right.as_integer()) {
                    (_, Some(other)) => self.add(left, factor.checked_mul(other)?),
                    (Some(other), _) => self.add(right, factor.checked_mul(other)?),
                    _ => self.term(expr, factor),
                }
            }
            _ => self.term(expr, factor),
        }
    }

    fn term(&mut self, expr: &Expr, factor: i64) -> Option<()> {
        match self.terms.iter_mut().find(|(existing, _)| existing == expr) {
            Some((_, existing)) => *existing = existing.checked_add(factor)?,
            None => self.terms.push((expr.clone(), factor)),
        }
        Some(())
    }
}

/// The element number of `indices` in a row-major buffer of the given shape; `None` where the shape
/// has more elements than `i64` counts.
pub(crate) fn flatten(indices: &[Expr], shape: &[usize]) -> Option<Expr> {
    let mut stride = 1i64;
    let mut flat = Expr::Integer(0);
    for (index, extent) in indices.iter().zip(shape).rev() {
        flat = flat + index.clone() * Expr::Integer(stride);
        stride = stride.checked_mul(i64::try_from(*extent).ok()?)?;
    }
    Some(flat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_tensor::VarId;
    use hone_types::Id;

    #[test]
    fn row_major_index_is_a_sum_of_strides() {
        let (row, column) = (Expr::Var(VarId::from_index(0)), Expr::Var(VarId::from_index(1)));
        let flat = flatten(&[row.clone(), column.clone() + 3], &[5, 7]);
        let linear = Linear::of(&flat.unwrap_or(Expr::Integer(0)));
        assert_eq!(linear.constant, 3);
        assert_eq!(linear.terms, vec![(column, 1), (row, 7)]);
    }

    #[test]
    fn terms_that_cancel_vanish() {
        let x = Expr::Var(VarId::from_index(0));
        assert_eq!(Linear::of(&(x.clone() * 4 - x.clone() * 4)), Linear::default());
    }

    #[test]
    fn what_does_not_fit_64_bits_is_one_term() {
        let x = Expr::Var(VarId::from_index(0));
        for extreme in [i64::MIN, i64::MAX] {
            let whole = |expr: Expr| assert_eq!(Linear::of(&expr).terms, vec![(expr, 1)]);
            whole(x.clone() * extreme * 2);
            whole(x.clone() * extreme + x.clone() * extreme);
            whole(Expr::Integer(extreme) + extreme);
            assert_eq!(Linear::of(&(x.clone() * extreme)).terms, vec![(x.clone(), extreme)]);
        }
        let index = [Expr::Integer(0), Expr::Integer(0), Expr::Integer(0)];
        assert_eq!(flatten(&index, &[2, 1 << 32, 1 << 31]), None);
        assert!(flatten(&index, &[2, 1 << 31, 1 << 30]).is_some());
    }
}
