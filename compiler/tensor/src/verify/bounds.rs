//! Bindings inside domains, accesses inside buffers, as far as the extents decide.

use super::VerifyError;
use crate::affine::Sum;
use crate::{BinaryOp, Block, BufferId, Domain, Expr, Program, Range, Realize, Statement};

pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    check_body(program, &program.body, &Domain::default())
}

fn check_body(program: &Program, body: &[Statement], domain: &Domain) -> Result<(), VerifyError> {
    for statement in body {
        match statement {
            Statement::Loop(own) => {
                // A loop that may not run at all decides nothing about what is below it.
                if domain.bounds(&own.extent).is_some_and(|extent| extent.min >= 1) {
                    let mut inner = domain.clone();
                    inner.push(own.var, &own.extent);
                    check_body(program, &own.body, &inner)?;
                }
            }
            Statement::Realize(realize) if realize.predicate.is_none() => {
                let block = &program.blocks[realize.block];
                Site { program, block, realize, domain }.check()?;
            }
            Statement::Realize(_) => {}
        }
    }
    Ok(())
}

struct Site<'a> {
    program: &'a Program,
    block: &'a Block,
    realize: &'a Realize,
    domain: &'a Domain,
}

impl Site<'_> {
    fn check(&self) -> Result<(), VerifyError> {
        for (iterator, binding) in self.block.iterators.iter().zip(&self.realize.bindings) {
            if let Some(Range { min, max }) = self.outside(binding, iterator.extent) {
                let (block, var, extent) = (self.block.name.clone(), iterator.var, iterator.extent);
                return Err(VerifyError::LeavesDomain { block, var, min, max, extent });
            }
        }
        self.access(self.block.buffer, &self.block.indices)?;
        self.block.expressions().into_iter().try_for_each(|expr| self.loads(expr))
    }

    fn loads(&self, expr: &Expr) -> Result<(), VerifyError> {
        if let Expr::Select(condition, ..) = expr {
            return self.loads(condition);
        }
        if let Expr::Load(buffer, indices) = expr {
            self.access(*buffer, indices)?;
        }
        expr.operands().into_iter().try_for_each(|operand| self.loads(operand))
    }

    fn access(&self, buffer: BufferId, indices: &[Expr]) -> Result<(), VerifyError> {
        let own = &self.program.buffers[buffer];
        for (axis, (index, extent)) in indices.iter().zip(&own.shape).enumerate() {
            let index = self.realize.resolve(self.block, index, self.domain);
            if let Some(Range { min, max }) = self.outside(&index, *extent) {
                let (block, buffer) = (self.block.name.clone(), own.name.clone());
                return Err(VerifyError::OutOfBounds {
                    block,
                    buffer,
                    axis,
                    min,
                    max,
                    extent: *extent,
                });
            }
        }
        Ok(())
    }

    /// The range of `index` where it certainly takes a value outside `0..extent`.
    fn outside(&self, index: &Expr, extent: usize) -> Option<Range> {
        let index = self.domain.simplify(index);
        let range = self.domain.bounds(&index)?;
        let last = extent as i64 - 1;
        let somewhere = range.min < 0 || range.max > last;
        let everywhere = range.max < 0 || range.min > last;
        (everywhere || (somewhere && reaches_ends(&index, self.domain))).then_some(range)
    }
}

/// Whether both ends of the index' range are taken: a sum of different loop variables of constant
/// extent, or a quotient of one.
fn reaches_ends(index: &Expr, domain: &Domain) -> bool {
    if let Expr::Binary(BinaryOp::FloorDivide, inner, divisor) = index
        && divisor.as_integer().is_some()
    {
        return reaches_ends(inner, domain);
    }
    Sum::of(index).terms.iter().all(|(atom, _)| match atom {
        Expr::Var(var) => domain.constant_extent(*var),
        _ => false,
    })
}
