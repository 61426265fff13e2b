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
    /// The sum that a simplified expression is.
    pub(crate) fn of(expr: &Expr) -> Self {
        let mut linear = Self::default();
        linear.add(expr, 1);
        linear.terms.retain(|(_, factor)| *factor != 0);
        linear
    }

    fn add(&mut self, expr: &Expr, factor: i64) {
        match expr {
            Expr::Integer(value) => {
                self.constant = self.constant.wrapping_add(value.wrapping_mul(factor))
            }
            Expr::Binary(BinaryOp::Add, left, right) => {
                self.add(left, factor);
                self.add(right, factor);
            }
            Expr::Binary(BinaryOp::Subtract, left, right) => {
                self.add(left, factor);
                self.add(right, factor.wrapping_neg());
            }
            Expr::Binary(BinaryOp::Multiply, left, right) => {
                match (left.as_integer(), right.as_integer()) {
                    (_, Some(own)) => self.add(left, factor.wrapping_mul(own)),
                    (Some(own), _) => self.add(right, factor.wrapping_mul(own)),
                    _ => self.term(expr, factor),
                }
            }
            _ => self.term(expr, factor),
        }
    }

    fn term(&mut self, expr: &Expr, factor: i64) {
        match self.terms.iter_mut().find(|(own, _)| own == expr) {
            Some((_, own)) => *own = own.wrapping_add(factor),
            None => self.terms.push((expr.clone(), factor)),
        }
    }
}

/// The element number of `indices` in a row-major buffer of the given shape.
pub(crate) fn flatten(indices: &[Expr], shape: &[usize]) -> Expr {
    let mut stride = 1i64;
    let mut flat = Expr::Integer(0);
    for (index, extent) in indices.iter().zip(shape).rev() {
        flat = flat + index.clone() * Expr::Integer(stride);
        stride = stride.wrapping_mul(*extent as i64);
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_tensor::VarId;
    use hone_types::Id;

    #[test]
    fn row_major_index_is_a_sum_of_strides() {
        let (row, column) = (Expr::Var(VarId::from_index(0)), Expr::Var(VarId::from_index(1)));
        let linear = Linear::of(&flatten(&[row.clone(), column.clone() + 3], &[5, 7]));
        assert_eq!(linear.constant, 3);
        assert_eq!(linear.terms, vec![(column, 1), (row, 7)]);
    }

    #[test]
    fn terms_that_cancel_vanish() {
        let x = Expr::Var(VarId::from_index(0));
        assert_eq!(Linear::of(&(x.clone() * 4 - x.clone() * 4)), Linear::default());
    }
}
