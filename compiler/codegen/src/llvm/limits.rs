//! Loops whose last iterations nobody needs where a size is small ([`hone_tensor::Limit`]).

use super::emitter::Emitter;
use super::environment::Binding;
use crate::error::Result;
use hone_tensor::{BinaryOp, Expr, Limit, Loop, VarId};
use inkwell::values::IntValue;

impl<'c> Emitter<'c, '_> {
    /// What `body` emits, to be run in the iterations of the loop over `var` that are needed.
    pub(super) fn where_needed(
        &mut self,
        var: VarId,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let Some(limit) = self.program.limit_of(var) else { return body(self) };
        let condition = self.environment.simplify(&limit.condition());
        let condition = self.value(&condition)?;
        self.guarded(condition, body)
    }

    /// The body for one known value of the variable, where that is needed.
    pub(super) fn one_needed_value(&mut self, inner: &Loop, value: i64) -> Result<()> {
        self.environment.bind(inner.var, Binding::Constant(value));
        let result = self.where_needed(inner.var, |emitter| emitter.statements(&inner.body));
        self.environment.unbind(inner.var);
        result
    }

    /// The end of the iterations `0..extent` of a loop that are needed; `None` where all are, or where they are not the
    /// first ones.
    pub(super) fn limited_end(&mut self, var: VarId, extent: i64) -> Result<Option<IntValue<'c>>> {
        let Some(limit) = self.program.limit_of(var) else { return Ok(None) };
        let Some(count) = count(limit) else { return Ok(None) };
        let end = self.environment.simplify(&count.minimum(Expr::Integer(extent)));
        self.index(&end).map(Some)
    }
}

/// How many iterations are needed, where these are the first ones: of those with `factor * var + rest < size`, so many as
/// `(size - rest) / factor`, rounded up.
fn count(limit: &Limit) -> Option<Expr> {
    let (factor, rest) = linear_in(&limit.first, limit.target)?;
    let rounded_up = limit.size() - rest + factor.checked_sub(1)?;
    (factor > 0).then(|| rounded_up.floor_divide(Expr::Integer(factor)))
}

/// The factor of a variable in a sum, and the rest of the sum; `None` where it is no such sum.
fn linear_in(expr: &Expr, var: VarId) -> Option<(i64, Expr)> {
    if !expr.mentions(var) {
        return Some((0, expr.clone()));
    }
    match expr {
        Expr::Var(_) => Some((1, Expr::Integer(0))),
        Expr::Binary(BinaryOp::Add, left, right) => {
            let ((left, first), (right, second)) = (linear_in(left, var)?, linear_in(right, var)?);
            Some((left.checked_add(right)?, first + second))
        }
        Expr::Binary(BinaryOp::Subtract, left, right) if !right.mentions(var) => {
            let (factor, rest) = linear_in(left, var)?;
            Some((factor, rest - (**right).clone()))
        }
        Expr::Binary(BinaryOp::Multiply, left, right) => {
            let by = right.as_integer()?;
            let (factor, rest) = linear_in(left, var)?;
            Some((factor.checked_mul(by)?, rest * by))
        }
        _ => None,
    }
}
