//! Bindings inside domains, accesses inside buffers.
//!
//! What a predicate, the condition of a `Select` or an extent that may be zero protects has to be
//! inside where these hold.

use super::VerifyError;
use super::facts::Facts;
use crate::sum::Sum;
use crate::{BinaryOp, Block, BufferId, Domain, Expr, Program, Range, Realize, Statement};

pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    check_body(program, &program.body, &Domain::default(), &Facts::default())
}

fn check_body(
    program: &Program,
    body: &[Statement],
    domain: &Domain,
    facts: &Facts,
) -> Result<(), VerifyError> {
    for statement in body {
        match statement {
            Statement::Loop(inner) => {
                let mut below = domain.clone();
                below.push(inner.var, &inner.extent);
                if below.never_runs(inner.var) {
                    // Nothing below it runs.
                    continue;
                }
                let mut facts = facts.clone();
                if !domain.is_at_least(&inner.extent, 1) {
                    facts.add(inner.extent.clone() - 1, domain);
                }
                check_body(program, &inner.body, &below, &facts)?;
            }
            Statement::Realize(realize) => {
                let block = &program.blocks[realize.block];
                let mut facts = facts.clone();
                if let Some(predicate) = &realize.predicate {
                    facts.assume(&domain.simplify(predicate), true, program, domain);
                }
                Site { program, block, realize, domain }.check(&facts)?;
            }
            Statement::Sync(_) => {}
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
    fn check(&self, facts: &Facts) -> Result<(), VerifyError> {
        for (iterator, binding) in self.block.iterators.iter().zip(&self.realize.bindings) {
            let binding = self.domain.simplify(binding);
            if facts.within(&binding, iterator.extent, self.program, self.domain) {
                continue;
            }
            let (block, var, extent) = (self.block.name.clone(), iterator.var, iterator.extent);
            let Some(Range { min, max }) = self.taken(&binding) else {
                return Err(VerifyError::BindingUnshown { block, var, extent });
            };
            return Err(VerifyError::LeavesDomain { block, var, min, max, extent });
        }
        self.access(self.block.buffer, &self.resolved(&self.block.indices), facts)?;
        for expr in self.block.expressions() {
            self.loads(&self.realize.resolve(self.block, expr, self.domain), facts)?;
        }
        Ok(())
    }

    fn resolved(&self, indices: &[Expr]) -> Vec<Expr> {
        indices.iter().map(|index| self.realize.resolve(self.block, index, self.domain)).collect()
    }

    /// Checks every load in a resolved expression.
    fn loads(&self, expr: &Expr, facts: &Facts) -> Result<(), VerifyError> {
        if let Expr::Select(condition, then, otherwise) = expr {
            self.loads(condition, facts)?;
            for (branch, outcome) in [(then, true), (otherwise, false)] {
                let mut facts = facts.clone();
                facts.assume(condition, outcome, self.program, self.domain);
                self.loads(branch, &facts)?;
            }
            return Ok(());
        }
        if let Expr::Load(buffer, indices) = expr {
            self.access(*buffer, indices, facts)?;
        }
        expr.operands().into_iter().try_for_each(|operand| self.loads(operand, facts))
    }

    fn access(&self, buffer: BufferId, indices: &[Expr], facts: &Facts) -> Result<(), VerifyError> {
        let entry = &self.program.buffers[buffer];
        for (axis, (index, extent)) in indices.iter().zip(&entry.shape).enumerate() {
            if facts.within(index, *extent, self.program, self.domain) {
                continue;
            }
            let (block, buffer) = (self.block.name.clone(), entry.name.clone());
            let extent = *extent;
            let Some(Range { min, max }) = self.taken(index) else {
                return Err(VerifyError::AccessUnshown { block, buffer, axis, extent });
            };
            return Err(VerifyError::OutOfBounds { block, buffer, axis, min, max, extent });
        }
        Ok(())
    }

    /// The range of an index, where both of its ends are taken.
    fn taken(&self, index: &Expr) -> Option<Range> {
        let range = self.domain.bounds(index)?;
        reaches_ends(index, self.domain).then_some(range)
    }
}

/// Whether both ends of the index' range are taken: a sum of different loop variables of constant
/// extent, or a quotient of one.
pub(super) fn reaches_ends(index: &Expr, domain: &Domain) -> bool {
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
