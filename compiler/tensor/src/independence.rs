//! Whether the iterations of a loop write different elements, or visit different points.
//!
//! A block's store indices, over the loops around it, are read as sums of atoms (variables, quotients
//! and remainders). Where each atom's factor exceeds the span of all smaller ones together, the index
//! determines every atom; a quotient and a remainder by the same number determine what was divided.
//! An iteration is independent where the indices determine the loop's variable.

use crate::affine::Sum;
use crate::{
    BinaryOp, BlockId, BufferId, Domain, Expr, IteratorKind, Program, Scope, Statement, VarId,
};

impl Program {
    /// Whether no two iterations of the loop over `var` write the same element; the reason where
    /// this cannot be shown. A loop that runs at most once always is.
    pub fn independent(&self, var: VarId) -> Result<(), String> {
        self.apart(var, false)
    }

    /// As [`Program::independent`], for iterations on different threads: memory of one thread may
    /// be shared by name, but has to be used below the loop only.
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
            let buffer = self.blocks[block].buffer;
            if threads && self.buffers[buffer].scope != Scope::Global {
                self.stays_below(buffer, &path)?;
                continue;
            }
            self.writes_apart(block, var)?;
        }
        Ok(())
    }

    /// Whether a buffer is used below the statement at `path` only.
    fn stays_below(&self, buffer: BufferId, path: &[usize]) -> Result<(), String> {
        let users = [self.writers(buffer), self.readers(buffer)].concat();
        let below =
            |user: &BlockId| self.find_block(*user).is_some_and(|own| own.starts_with(path));
        match users.iter().find(|user| !below(user)) {
            None => Ok(()),
            Some(user) => {
                let (name, user) = (&self.buffers[buffer].name, &self.blocks[*user].name);
                Err(format!("'{name}' is memory of one thread, and '{user}' uses it outside"))
            }
        }
    }

    fn writes_apart(&self, block: BlockId, var: VarId) -> Result<(), String> {
        let own = &self.blocks[block];
        let Some(path) = self.find_block(block) else { return Ok(()) };
        let Some(realize) = self.realize_of(block) else { return Ok(()) };
        let domain = self.domain_at(&path);
        let indices: Vec<Expr> =
            own.indices.iter().map(|index| realize.resolve(own, index, &domain)).collect();
        if determines(&indices, var, &domain, &|_| false) {
            return Ok(());
        }
        let name = &self.blocks[block].name;
        let buffer = &self.buffers[own.buffer].name;
        Err(format!(
            "several iterations may write the same element of '{buffer}' in block '{name}'"
        ))
    }
}

impl Program {
    /// Whether, in one iteration of the outermost `depth` loops around a reduction, no point is
    /// combined into an element twice; the loop that may repeat points where this cannot be shown.
    pub fn updates_once(&self, block: BlockId, depth: usize) -> Result<(), VarId> {
        let own = &self.blocks[block];
        let (Some(path), Some(realize)) = (self.find_block(block), self.realize_of(block)) else {
            return Ok(());
        };
        let domain = self.domain_at(&path);
        let pairs = own.iterators.iter().zip(&realize.bindings);
        let reductions = pairs.filter(|(own, _)| own.kind == IteratorKind::Reduction);
        let points = own.indices.iter().chain(reductions.map(|(_, binding)| binding));
        let points: Vec<Expr> = points.map(|point| realize.resolve(own, point, &domain)).collect();
        let inner: Vec<VarId> =
            self.enclosing(&path).iter().skip(depth).map(|own| own.var).collect();
        let fixed = |atom: &Expr| !inner.iter().any(|var| atom.mentions(*var));
        let repeats = |var: &&VarId| {
            let several = domain.range(**var).is_none_or(|range| range.max > 0);
            several && !determines(&points, **var, &domain, &fixed)
        };
        match inner.iter().find(repeats) {
            Some(var) => Err(*var),
            None => Ok(()),
        }
    }
}

/// Whether equal values of all `indices` mean equal values of `var`, where what is `fixed` does not
/// change.
fn determines(
    indices: &[Expr],
    var: VarId,
    domain: &Domain,
    fixed: &dyn Fn(&Expr) -> bool,
) -> bool {
    let mut known: Vec<Expr> = Vec::new();
    for index in indices {
        atoms(index, domain, fixed, &mut known);
    }
    let mut place = 0;
    while place < known.len() {
        let atom = known[place].clone();
        if let Expr::Binary(BinaryOp::FloorDivide, whole, divisor) = &atom
            && known.contains(&(**whole).clone().modulo((**divisor).clone()))
            && !known.contains(whole)
        {
            atoms(whole, domain, fixed, &mut known);
            known.push((**whole).clone());
            place = 0;
            continue;
        }
        place += 1;
    }
    known.contains(&Expr::Var(var))
}

/// Adds the atoms that the value of `index` determines.
fn atoms(index: &Expr, domain: &Domain, fixed: &dyn Fn(&Expr) -> bool, known: &mut Vec<Expr>) {
    let mut terms = Sum::of(index).terms;
    terms.retain(|(atom, _)| !fixed(atom));
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
