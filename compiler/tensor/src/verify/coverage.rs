//! What blocks read, and what the caller gets, was computed: bindings leave out nothing that is needed.
//!
//! What a block certainly reads is held against the box around everything that is written before, and
//! against the number of elements that can have been written: over all iterations, and in the first
//! iteration of the loops around both, in which nothing was written earlier. A hole inside the box that
//! the numbers do not show, and what is read under a condition, are left to the interpreter.

use super::VerifyError;
use super::bounds::reaches_ends;
use crate::sum::Sum;
use crate::{
    Block, BlockBody, BufferId, Domain, Expr, IteratorKind, Level, Loop, LoopKind, Program, Range,
    Realize, Role, Scope, Statement, VarId,
};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    let mut sites = Vec::new();
    collect(program, &program.body, &mut vec![], &mut sites);
    sites.iter().try_for_each(|site| site.check_reductions(&sites))?;
    for (buffer, entry) in program.buffers.iter() {
        let writers: Vec<&Site> = sites.iter().filter(|site| site.writes(buffer)).collect();
        if matches!(entry.role, Role::Output(_)) {
            check_output(program, buffer, &writers)?;
        }
        if matches!(entry.role, Role::Input(_)) || writers.is_empty() {
            continue;
        }
        sites.iter().try_for_each(|reader| reader.check_reads(buffer, &writers))?;
    }
    Ok(())
}

/// A block where it stands.
struct Site<'a> {
    program: &'a Program,
    /// Position among all blocks in order of execution.
    order: usize,
    block: &'a Block,
    realize: &'a Realize,
    loops: Vec<&'a Loop>,
    /// By number of outer loops in their first iteration, and whether those over lanes run all of theirs:
    /// the loops around the block.
    domains: RefCell<BTreeMap<(usize, bool), Rc<Domain>>>,
    /// By the same number: what it can write on each axis of its buffer.
    stored: RefCell<BTreeMap<usize, Rc<[Written]>>>,
    /// Whether all loops around it run, once that was asked.
    runs: OnceCell<bool>,
}

fn collect<'a>(
    program: &'a Program,
    body: &'a [Statement],
    loops: &mut Vec<&'a Loop>,
    sites: &mut Vec<Site<'a>>,
) {
    for statement in body {
        match statement {
            // What stands in a loop that never runs computes nothing.
            Statement::Loop(inner) if inner.most().is_some_and(|most| most <= 0) => {}
            Statement::Loop(inner) => {
                loops.push(inner);
                collect(program, &inner.body, loops, sites);
                loops.pop();
            }
            Statement::Realize(realize) => sites.push(Site {
                program,
                order: sites.len(),
                block: &program.blocks[realize.block],
                realize,
                loops: loops.clone(),
                domains: RefCell::default(),
                stored: RefCell::default(),
                runs: OnceCell::new(),
            }),
            Statement::Sync(_) => {}
        }
    }
}

/// The caller gets every element of an output.
fn check_output(program: &Program, buffer: BufferId, writers: &[&Site]) -> Result<(), VerifyError> {
    let entry = &program.buffers[buffer];
    if entry.elements() == 0 {
        return Ok(());
    }
    for (axis, extent) in entry.shape.iter().enumerate() {
        let needed = Needed::all(*extent);
        let written = Written::of(writers.iter().map(|site| site.stored(0)[axis]));
        if let Some(written) = written.lacks(&needed) {
            let (buffer, needed) = (entry.name.clone(), needed.text());
            return Err(VerifyError::OutputNotCovered { buffer, axis, written, needed });
        }
    }
    Ok(())
}

impl Site<'_> {
    fn writes(&self, buffer: BufferId) -> bool {
        self.block.buffer == buffer
    }

    /// Number of loops around both.
    fn shared(&self, other: &Site) -> usize {
        let pairs = self.loops.iter().zip(&other.loops);
        pairs.take_while(|(a, b)| a.var == b.var).count()
    }

    /// The loops around the block, the outermost `first` of them in their first iteration.
    fn domain(&self, first: usize) -> Rc<Domain> {
        self.domain_of(first, false)
    }

    fn domain_of(&self, first: usize, all_lanes: bool) -> Rc<Domain> {
        let make = || {
            let mut domain = Domain::default();
            for (depth, inner) in self.loops.iter().enumerate() {
                let abreast = all_lanes && inner.is_bound_to(Level::Lane);
                let extent = match depth < first && !abreast {
                    true => Expr::Integer(1),
                    false => domain.simplify_extent(&inner.extent),
                };
                domain.push(inner.var, &extent);
            }
            Rc::new(domain)
        };
        self.domains.borrow_mut().entry((first, all_lanes)).or_insert_with(make).clone()
    }

    /// What the block can write on each axis of its buffer, the outermost `first` loops around it in
    /// their first iteration. What lanes share each finds written by all of them.
    fn stored(&self, first: usize) -> Rc<[Written]> {
        let shared = self.program.buffers[self.block.buffer].scope == Scope::Shared;
        let domain = self.domain_of(first, shared);
        let make = || {
            let indices = self.block.indices.iter();
            let written = indices.map(|index| {
                Written::taken(&self.realize.resolve(self.block, index, &domain), &domain)
            });
            written.collect()
        };
        self.stored.borrow_mut().entry(first).or_insert_with(make).clone()
    }

    /// How many of the outermost loops are over threads, of which an iteration finds nothing of others in
    /// memory of this scope.
    fn apart(&self, scope: Scope) -> usize {
        let apart = |outer: &&&Loop| match outer.kind {
            LoopKind::Parallel => true,
            LoopKind::Bound(axis) => axis.level != Level::Lane || scope != Scope::Shared,
            _ => false,
        };
        match scope {
            Scope::Global => 0,
            _ => self.loops.iter().take_while(apart).count(),
        }
    }

    /// As [`Self::apart`], with the serial loops around a parallel one: it begins with nothing in each of their iterations.
    fn apart_in_waves(&self, scope: Scope) -> Option<usize> {
        let is_parallel = |own: &&Loop| own.kind == LoopKind::Parallel;
        let last = self.loops.iter().rposition(is_parallel)?;
        matches!(scope, Scope::Scratch | Scope::Register).then_some(last + 1)
    }

    /// Whether all loops around the block run, whatever the loops outside them.
    fn runs(&self) -> bool {
        *self.runs.get_or_init(|| self.finds_that_it_runs())
    }

    fn finds_that_it_runs(&self) -> bool {
        let mut domain = Domain::default();
        self.realize.predicate.is_none()
            && self.loops.iter().all(|inner| {
                let runs = domain.is_at_least(&inner.extent, 1);
                domain.push(inner.var, &inner.extent);
                runs
            })
    }

    /// Whether some loop around the block cannot run.
    fn never_runs(&self) -> bool {
        let mut domain = Domain::default();
        self.loops.iter().any(|inner| {
            domain.push(inner.var, &inner.extent);
            domain.never_runs(inner.var)
        })
    }

    /// Holds what the block certainly reads of `buffer` against what the others write.
    fn check_reads(&self, buffer: BufferId, writers: &[&Site]) -> Result<(), VerifyError> {
        if !self.runs() {
            return Ok(());
        }
        let mut loads: Vec<Vec<Expr>> = Vec::new();
        unconditional(self.block.value(), buffer, &mut loads);
        if let BlockBody::Reduce { initial: None, .. } = self.block.body
            && self.writes(buffer)
        {
            loads.push(self.block.indices.clone());
        }
        let writers: Vec<&Site> =
            writers.iter().copied().filter(|writer| writer.order != self.order).collect();
        let before: Vec<&Site> =
            writers.iter().copied().filter(|writer| writer.order < self.order).collect();
        let shared = writers.iter().map(|writer| self.shared(writer)).max().unwrap_or(0);
        let scope = self.program.buffers[buffer].scope;
        let (apart, waves) = (self.apart(scope), self.apart_in_waves(scope));
        for indices in loads {
            self.check_load(buffer, &indices, &writers, apart)?;
            if let Some(apart) = waves {
                self.check_load(buffer, &indices, &writers, apart)?;
            }
            if shared > 0 {
                self.check_load(buffer, &indices, &before, shared)?;
            }
        }
        Ok(())
    }

    fn check_load(
        &self,
        buffer: BufferId,
        indices: &[Expr],
        writers: &[&Site],
        first: usize,
    ) -> Result<(), VerifyError> {
        let domain = self.domain(first);
        for (axis, index) in indices.iter().enumerate() {
            let index = self.realize.resolve(self.block, index, &domain);
            let Some(needed) = Needed::certainly(&index, &domain) else { continue };
            let written = Written::of(
                writers.iter().map(|writer| writer.stored(first.min(self.shared(writer)))[axis]),
            );
            if let Some(written) = written.lacks(&needed) {
                let (reader, needed) = (self.block.name.clone(), needed.text());
                let buffer = self.program.buffers[buffer].name.clone();
                return Err(VerifyError::NotCovered { reader, buffer, axis, written, needed });
            }
        }
        Ok(())
    }

    /// A reduction visits every point of its reduction iterators, alone or with the blocks that go on
    /// with it, and the first one first.
    fn check_reductions(&self, sites: &[Site]) -> Result<(), VerifyError> {
        let BlockBody::Reduce { initial, .. } = &self.block.body else { return Ok(()) };
        let extents = |site: &Site| -> Vec<usize> {
            site.block.iterators.iter().map(|iterator| iterator.extent).collect()
        };
        let alike = |site: &&Site| {
            site.writes(self.block.buffer)
                && matches!(site.block.body, BlockBody::Reduce { .. })
                && extents(site) == extents(self)
        };
        let parts: Vec<&Site> = sites.iter().filter(alike).collect();
        if parts.iter().all(|site| site.never_runs()) {
            return Ok(());
        }
        for (position, iterator) in self.block.iterators.iter().enumerate() {
            if iterator.kind != IteratorKind::Reduction || iterator.extent == 0 {
                continue;
            }
            let needed = Needed::all(iterator.extent);
            let bound = |site: &&Site| {
                let domain = site.domain(0);
                match site.realize.bindings.get(position) {
                    Some(binding) => Written::taken(&domain.simplify(binding), &domain),
                    None => Written::Anything,
                }
            };
            let (block, var) = (self.block.name.clone(), iterator.var);
            if let Some(written) = Written::of(parts.iter().map(bound)).lacks(&needed) {
                let needed = needed.text();
                return Err(VerifyError::ReductionNotCovered { block, var, written, needed });
            }
            if initial.is_some() && self.starts_late(position) {
                return Err(VerifyError::InitialLate { block, var });
            }
        }
        Ok(())
    }

    /// Whether the first iteration of the loops that a binding mentions is not that of its first point.
    fn starts_late(&self, position: usize) -> bool {
        let Some(binding) = self.realize.bindings.get(position) else { return false };
        let zero = |_: VarId| Some(Expr::Integer(0));
        let first = Domain::default().simplify(&binding.substitute(&zero));
        first.as_integer().is_some_and(|first| first != 0)
    }
}

/// The loads of `buffer` in an expression that do not depend on a condition.
fn unconditional(expr: &Expr, buffer: BufferId, loads: &mut Vec<Vec<Expr>>) {
    if let Expr::Select(condition, ..) = expr {
        return unconditional(condition, buffer, loads);
    }
    if let Expr::Load(loaded, indices) = expr
        && *loaded == buffer
    {
        loads.push(indices.clone());
    }
    expr.operands().into_iter().for_each(|operand| unconditional(operand, buffer, loads));
}

/// Indices on one axis that are certainly needed.
struct Needed {
    /// Both ends are needed.
    range: Range,
    /// At least so many different ones are.
    count: i64,
}

impl Needed {
    fn all(extent: usize) -> Self {
        let extent = i64::try_from(extent).unwrap_or(i64::MAX);
        Self { range: Range::extent(extent), count: extent }
    }

    /// The values that an index certainly takes; `None` where that is not known.
    fn certainly(index: &Expr, domain: &Domain) -> Option<Self> {
        if !reaches_ends(index, domain) {
            return None;
        }
        let range = domain.bounds(index)?;
        let mut terms = Sum::of(index).terms;
        terms.sort_by_key(|(_, factor)| factor.saturating_abs());
        let mut count = 1i64;
        for (atom, factor) in &terms {
            if factor.saturating_abs() > count || !matches!(atom, Expr::Var(_)) {
                break;
            }
            let span = domain.bounds(atom).and_then(|range| range.max.checked_sub(range.min))?;
            count = span.checked_mul(factor.checked_abs()?)?.checked_add(count)?;
        }
        Some(Self { range, count })
    }

    fn text(&self) -> String {
        format!("{}..={}", self.range.min, self.range.max)
    }
}

/// Indices on one axis that can have been written.
#[derive(Clone, Copy)]
enum Written {
    /// Any at all.
    Anything,
    /// At most `count` different ones, all of them inside `range`; none for no range.
    Within { range: Option<Range>, count: i64 },
}

impl Written {
    /// The values that an index can take.
    fn taken(index: &Expr, domain: &Domain) -> Self {
        let Some(range) = domain.bounds(index) else { return Written::Anything };
        let mut count = 1i64;
        for var in domain.variables() {
            if index.mentions(var) {
                let most = domain.range(var).map(|range| range.max.saturating_add(1).max(0));
                count = most.map_or(i64::MAX, |most| count.saturating_mul(most));
            }
        }
        Written::Within { range: (range.min <= range.max).then_some(range), count }
    }

    fn of(parts: impl Iterator<Item = Written>) -> Self {
        let nothing = Written::Within { range: None, count: 0 };
        parts.fold(nothing, |all, part| match (all, part) {
            (Written::Within { range: a, count }, Written::Within { range: b, count: more }) => {
                let range = match (a, b) {
                    (Some(a), Some(b)) => {
                        Some(Range { min: a.min.min(b.min), max: a.max.max(b.max) })
                    }
                    (a, b) => a.or(b),
                };
                Written::Within { range, count: count.saturating_add(more) }
            }
            _ => Written::Anything,
        })
    }

    /// In words, what is written where it cannot be all that is needed.
    fn lacks(&self, needed: &Needed) -> Option<String> {
        let Written::Within { range, count } = self else { return None };
        let Some(range) = range else { return Some("nothing".to_string()) };
        if range.min > needed.range.min || range.max < needed.range.max {
            return Some(format!("{}..={}", range.min, range.max));
        }
        (*count < needed.count).then(|| format!("at most {count} different indices"))
    }
}
