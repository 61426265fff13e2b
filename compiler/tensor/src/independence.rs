//! Whether the iterations of a loop write different elements, read none that another iteration
//! writes, or visit different points.
//!
//! A block's store indices, over the loops around it, are taken as sums of atoms (variables, quotients
//! and remainders). Where each atom's factor exceeds the span of all smaller ones together, the index
//! determines every atom; a quotient and a remainder by the same number determine what was divided.
//! An iteration is independent where the indices determine the loop's variable, and where a load and a
//! store of one element mean the same value of it.

use crate::sum::Sum;
use crate::{
    BinaryOp, BlockId, BufferId, Domain, Expr, IteratorKind, Loop, Program, Realize, Scope,
    Statement, VarId,
};

/// Who has memory that is not global.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// All iterations, the same.
    One,
    /// Each iteration its own.
    OfThreads,
    /// Each iteration its own, but for shared memory.
    OfLanes,
}

impl Program {
    /// Whether no iteration of the loop over `var` writes an element that another one writes or reads;
    /// the reason where this cannot be shown. A loop that runs at most once always is independent.
    pub fn independent(&self, var: VarId) -> Result<(), String> {
        self.apart(var, Memory::One)
    }

    /// As [`Program::independent`], for iterations on different threads: memory of one thread may
    /// be shared by name, but has to be used below the loop only. Of a loop below another one, what an iteration of that
    /// one has left in memory of a thread is not there in its next one, which another thread may run.
    pub fn threads_apart(&self, var: VarId) -> Result<(), String> {
        self.apart(var, Memory::OfThreads)
    }

    /// As [`Program::threads_apart`], for lanes of a block: what they share may be accessed by several, which
    /// [`Program::conflict`] finds where no `sync` stands between.
    pub fn lanes_apart(&self, var: VarId) -> Result<(), String> {
        self.apart(var, Memory::OfLanes)
    }

    fn apart(&self, var: VarId, memory: Memory) -> Result<(), String> {
        let Some(path) = self.find_loop(var) else { return Ok(()) };
        let Some(statement @ Statement::Loop(own)) = self.statement(&path) else { return Ok(()) };
        let extent = self.domain_at(&path).bounds(&own.extent);
        if extent.is_some_and(|extent| extent.max <= 1) {
            return Ok(());
        }
        let blocks = statement.blocks();
        if memory == Memory::OfLanes {
            self.own_memory_stays_below(&blocks, &path)?;
        }
        for block in &blocks {
            let buffer = self.blocks[*block].buffer;
            match (memory, self.buffers[buffer].scope) {
                (Memory::One, _) | (_, Scope::Global) => {}
                (Memory::OfLanes, Scope::Shared) => continue,
                _ => {
                    self.stays_below(buffer, &path)?;
                    self.stays_in_iteration(*block, &path)?;
                    continue;
                }
            }
            self.writes_apart(*block, var)?;
            for other in &blocks {
                let stores_too = other != block && self.blocks[*other].buffer == buffer;
                if stores_too || self.blocks[*other].reads(buffer) {
                    self.reads_apart(*block, *other, var)?;
                }
            }
        }
        Ok(())
    }

    /// Whether memory of one lane that `blocks` use is used below the statement at `path` only.
    fn own_memory_stays_below(&self, blocks: &[BlockId], path: &[usize]) -> Result<(), String> {
        let own = |scope| matches!(scope, Scope::Scratch | Scope::Register);
        let mut private = self.buffers.iter().filter(|(_, entry)| own(entry.scope));
        private.try_for_each(|(buffer, _)| {
            let uses = |block: &BlockId| {
                self.blocks[*block].buffer == buffer || self.blocks[*block].reads(buffer)
            };
            if blocks.iter().any(uses) { self.stays_below(buffer, path) } else { Ok(()) }
        })
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

    /// Whether the elements of one thread's memory that a block stores are the same ones in all iterations of the loops
    /// around the statement at `path`: then none is left from one to the next.
    fn stays_in_iteration(&self, block: BlockId, path: &[usize]) -> Result<(), String> {
        let around = self.enclosing(path);
        let Some(site) = self.site(block).filter(|_| !around.is_empty()) else { return Ok(()) };
        let own = &self.blocks[block];
        let stores = site.resolved(&own.indices);
        let tells = |outer: &&&Loop| stores.iter().any(|index| index.mentions(outer.var));
        match around.iter().find(tells) {
            None => Ok(()),
            Some(outer) => {
                let (name, var) = (&self.buffers[own.buffer].name, outer.var);
                Err(format!("'{name}' is memory of one thread that {var} indexes"))
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

/// A block where it stands.
struct Site<'a> {
    program: &'a Program,
    block: BlockId,
    realize: &'a Realize,
    domain: Domain,
}

impl Site<'_> {
    fn resolved(&self, indices: &[Expr]) -> Vec<Expr> {
        let block = &self.program.blocks[self.block];
        let resolve = |index| self.realize.resolve(block, index, &self.domain);
        indices.iter().map(resolve).collect()
    }
}

impl Program {
    fn site(&self, block: BlockId) -> Option<Site<'_>> {
        let domain = self.domain_at(&self.find_block(block)?);
        Some(Site { program: self, block, realize: self.realize_of(block)?, domain })
    }

    /// Whether an element that `writer` stores in one iteration of the loop over `var` is neither
    /// loaded nor stored by `other` in another one.
    fn reads_apart(&self, writer: BlockId, other: BlockId, var: VarId) -> Result<(), String> {
        let (Some(first), Some(second)) = (self.site(writer), self.site(other)) else {
            return Ok(());
        };
        let (block, buffer) = (&self.blocks[writer], self.blocks[writer].buffer);
        let stores = first.resolved(&block.indices);
        let mut accesses: Vec<&[Expr]> = self.blocks[other].loads(buffer);
        if writer != other && self.blocks[other].buffer == buffer {
            accesses.push(&self.blocks[other].indices);
        }
        for indices in accesses {
            let accessed = second.resolved(indices);
            if !same_iteration((&stores, &first.domain), (&accessed, &second.domain), var) {
                let (name, other) = (&block.name, &self.blocks[other].name);
                let buffer = &self.buffers[buffer].name;
                return Err(format!(
                    "block '{other}' may access elements of '{buffer}' that block '{name}' writes \
                     in other iterations"
                ));
            }
        }
        Ok(())
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
pub(crate) fn determines(
    indices: &[Expr],
    var: VarId,
    domain: &Domain,
    fixed: &dyn Fn(&Expr) -> bool,
) -> bool {
    let mut known: Vec<Expr> = Vec::new();
    for index in indices {
        atoms(index, domain, fixed, &mut known);
    }
    combine(&mut known, domain, fixed);
    known.contains(&Expr::Var(var))
}

/// Adds what is divided where its quotient and its remainder by the same number are known.
fn combine(known: &mut Vec<Expr>, domain: &Domain, fixed: &dyn Fn(&Expr) -> bool) {
    let mut place = 0;
    while place < known.len() {
        let atom = known[place].clone();
        if let Expr::Binary(BinaryOp::FloorDivide, whole, divisor) = &atom
            && known.contains(&(**whole).clone().modulo((**divisor).clone()))
            && !known.contains(whole)
        {
            atoms(whole, domain, fixed, known);
            known.push((**whole).clone());
            place = 0;
            continue;
        }
        place += 1;
    }
}

/// Whether equal indices of two accesses, each over the loops around it, mean equal values of `var`; also where the
/// indices are never equal. Variables of loops around the one over `var` have one value; those of loops inside are apart.
pub(crate) fn same_iteration(
    (first, first_domain): (&[Expr], &Domain),
    (second, second_domain): (&[Expr], &Domain),
    var: VarId,
) -> bool {
    let depth = first_domain.position(var).unwrap_or_default();
    let outer = first_domain.outer(depth);
    let with_var = first_domain.outer(depth + 1);
    let mut known: Vec<Expr> = Vec::new();
    for (first, second) in first.iter().zip(second) {
        let pair = Pair::of((first, first_domain), (second, second_domain), var, &with_var);
        if let Some(pair) = pair {
            if pair.differs() {
                return true;
            }
            known.extend(pair.determined(&with_var));
        }
    }
    let fixed = |atom: &Expr| !atom.mentions(var) && outer.covers(atom);
    combine(&mut known, &with_var, &fixed);
    known.contains(&Expr::Var(var))
}

/// One axis of two accesses: the same terms in a loop's variable, and how far the rest may differ.
struct Pair {
    terms: Vec<(Expr, i64)>,
    /// The least and the largest difference of the rest.
    least: i64,
    most: i64,
    reach: i64,
}

impl Pair {
    fn of(
        (first, first_domain): (&Expr, &Domain),
        (second, second_domain): (&Expr, &Domain),
        var: VarId,
        with_var: &Domain,
    ) -> Option<Self> {
        let outer_only = |atom: &Expr| !atom.mentions(var) && with_var.covers(atom);
        let of_var = |atom: &Expr| atom.mentions(var) && with_var.covers(atom);
        let (mut terms, mut rest) = (Vec::new(), [Sum::default(), Sum::default()]);
        let mut fixed = Sum::default();
        for (side, index) in [first, second].into_iter().enumerate() {
            let sum = Sum::of(index);
            rest[side].constant = sum.constant;
            let mut own_terms = Vec::new();
            for (atom, factor) in sum.terms {
                if of_var(&atom) {
                    own_terms.push((atom, factor));
                } else if outer_only(&atom) {
                    let term = Sum { constant: 0, terms: vec![(atom, factor)] };
                    fixed = fixed.plus(term, if side == 0 { 1 } else { -1 })?;
                } else {
                    rest[side].terms.push((atom, factor));
                }
            }
            own_terms.sort_by_key(|(_, factor)| factor.saturating_abs());
            terms.push(own_terms);
        }
        let same = |a: &[(Expr, i64)], b: &[(Expr, i64)]| {
            a.len() == b.len() && a.iter().all(|term| b.contains(term))
        };
        if !same(&terms[0], &terms[1]) {
            return None;
        }
        let [first, second] = rest;
        let first = first_domain.bounds(&first.into_expr())?;
        let second = second_domain.bounds(&second.into_expr())?;
        let fixed = with_var.bounds(&fixed.into_expr())?;
        let most = first.max.checked_sub(second.min)?.checked_add(fixed.max)?;
        let least = first.min.checked_sub(second.max)?.checked_add(fixed.min)?;
        let reach = most.checked_abs()?.max(least.checked_abs()?);
        Some(Self { terms: terms.swap_remove(0), least, most, reach })
    }

    /// Whether the two indices are never equal: nothing depends on the loop's variable, and the rest always differs.
    fn differs(&self) -> bool {
        self.terms.is_empty() && (self.least > 0 || self.most < 0)
    }

    /// The atoms whose values are equal where the two indices are.
    fn determined(self, domain: &Domain) -> Vec<Expr> {
        let mut reach = self.reach;
        for (atom, factor) in &self.terms {
            let (Some(factor), Some(range)) = (factor.checked_abs(), domain.bounds(atom)) else {
                return vec![];
            };
            let span = range.max.checked_sub(range.min).and_then(|span| span.checked_mul(factor));
            let next = span.and_then(|span| reach.checked_add(span));
            match next {
                Some(next) if reach < factor => reach = next,
                _ => return vec![],
            }
        }
        self.terms.into_iter().map(|(atom, _)| atom).collect()
    }
}

/// Adds the atoms that the value of `index` determines.
fn atoms(index: &Expr, domain: &Domain, fixed: &dyn Fn(&Expr) -> bool, known: &mut Vec<Expr>) {
    let mut terms = Sum::of(index).terms;
    terms.retain(|(atom, _)| !fixed(atom));
    terms.sort_by_key(|(_, factor)| factor.saturating_abs());
    for place in 0..terms.len() {
        let (rest, own) = (&terms[..place], &terms[place]);
        let rest =
            rest.iter().fold(Expr::Integer(0), |sum, (atom, factor)| sum + atom.clone() * *factor);
        let Some(range) = domain.bounds(&domain.simplify(&rest)) else { return };
        let span = range.max.checked_sub(range.min);
        if span.zip(own.1.checked_abs()).is_none_or(|(span, factor)| span >= factor) {
            return;
        }
    }
    known.extend(terms.into_iter().map(|(atom, _)| atom));
}
