//! Whether the iterations of a loop write different elements.
//!
//! A block's store indices, over the loops around it, are read as sums of atoms (variables, quotients
//! and remainders). Where each atom's factor exceeds the span of all smaller ones together, the index
//! determines every atom; a quotient and a remainder by the same number determine what was divided.
//! An iteration is independent where the indices determine the loop's variable.

use crate::affine::Sum;
use crate::{BinaryOp, BlockId, Domain, Expr, Program, Scope, Statement, VarId};

impl Program {
    /// Whether no two iterations of the loop over `var` write the same element; the reason where
    /// this cannot be shown. A loop that runs at most once always is.
    pub fn independent(&self, var: VarId) -> Result<(), String> {
        self.apart(var, false)
    }

    /// As [`Program::independent`], for iterations on different threads: memory of one thread does
    /// not count.
    pub fn threads_apart(&self, var: VarId) -> Result<(), String> {
        self.apart(var, true)
    }

    fn apart(&self, var: VarId, threads: bool) -> Result<(), String> {
        let Some(path) = self.find_loop(var) else { return Ok(()) };
        let Some(statement @ Statement::Loop(own)) = self.statement(&path) else { return Ok(()) };
        let extent = self.domain_at(&path).bounds(&own.extent);
        if extent.is_some_and(|extent| extent.max <= 1) {
            return Ok(());
        }
        for block in statement.blocks() {
            if threads && self.buffers[self.blocks[block].buffer].scope != Scope::Global {
                continue;
            }
            self.writes_apart(block, var)?;
        }
        Ok(())
    }

    fn writes_apart(&self, block: BlockId, var: VarId) -> Result<(), String> {
        let own = &self.blocks[block];
        let Some(path) = self.find_block(block) else { return Ok(()) };
        let Some(realize) = self.realize_of(block) else { return Ok(()) };
        let domain = self.domain_at(&path);
        let indices: Vec<Expr> =
            own.indices.iter().map(|index| realize.resolve(own, index, &domain)).collect();
        if determines(&indices, var, &domain) {
            return Ok(());
        }
        let name = &self.blocks[block].name;
        let buffer = &self.buffers[own.buffer].name;
        Err(format!(
            "several iterations may write the same element of '{buffer}' in block '{name}'"
        ))
    }
}

/// Whether equal values of all `indices` mean equal values of `var`.
fn determines(indices: &[Expr], var: VarId, domain: &Domain) -> bool {
    let mut known: Vec<Expr> = Vec::new();
    for index in indices {
        atoms(index, domain, &mut known);
    }
    let mut place = 0;
    while place < known.len() {
        let atom = known[place].clone();
        if let Expr::Binary(BinaryOp::FloorDivide, whole, divisor) = &atom
            && known.contains(&(**whole).clone().modulo((**divisor).clone()))
            && !known.contains(whole)
        {
            atoms(whole, domain, &mut known);
            known.push((**whole).clone());
            place = 0;
            continue;
        }
        place += 1;
    }
    known.contains(&Expr::Var(var))
}

/// Adds the atoms that the value of `index` determines.
fn atoms(index: &Expr, domain: &Domain, known: &mut Vec<Expr>) {
    let mut terms = Sum::of(index).terms;
    terms.sort_by_key(|(_, factor)| factor.abs());
    for place in 0..terms.len() {
        let (rest, own) = (&terms[..place], &terms[place]);
        let rest =
            rest.iter().fold(Expr::Integer(0), |sum, (atom, factor)| sum + atom.clone() * *factor);
        let Some(range) = domain.bounds(&domain.simplify(&rest)) else { return };
        if range.max - range.min >= own.1.abs() {
            return;
        }
    }
    known.extend(terms.into_iter().map(|(atom, _)| atom));
}
