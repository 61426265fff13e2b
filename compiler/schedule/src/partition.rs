//! `partition`: the iterations in which the loops below have their full extent, and the last ones.
//!
//! The loop keeps those of its first iterations in which every extent below that depends on it is
//! constant. The others go to a loop behind it, with copies (`_tail` added to their names) of the
//! blocks below and of the temporaries used only there. Where the loop is one that a block reduces
//! over, the copy goes on from what the first iterations have reduced.
//!
//! Legal: the loop is serial, and there are such iterations and others.
//! Buys: constant extents, which can be vectorized and unrolled. Costs: the code twice.

use crate::edit::{
    block_domain, insert, loop_at, loop_path, map_loads, must_be_serial, must_hold, realize_at,
    reduces_over, replace, runs_over_both, substitute, unique_name,
};
use crate::error::{Outcome, refuse_loop};
use crate::region;
use hone_tensor::{
    Block, BlockBody, BlockId, BufferId, Domain, Expr, Loop, Program, Role, Statement, VarId,
};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<VarId> {
    let path = loop_path(program, target)?;
    let own = loop_at(program, target)?;
    must_be_serial(program, &own)?;
    let Some(count) = own.extent.as_integer() else {
        return refuse_loop(program, target, "its extent is not constant");
    };
    for block in program.statement(&path).map(Statement::blocks).unwrap_or_default() {
        let realize = realize_at(program, block)?;
        if runs_over_both(&program.blocks[block], &realize, target) {
            let name = &program.blocks[block].name;
            let reason =
                format!("it runs over elements and over what is reduced into them in '{name}'");
            return refuse_loop(program, target, reason);
        }
    }
    let outer = program.domain_at(&path);
    let full = |first: i64| {
        let mut domain = outer.clone();
        domain.push(target, &Expr::Integer(first));
        constant_below(&own.body, target, &domain)
    };
    if full(count) {
        return refuse_loop(program, target, "no extent below depends on it");
    }
    let (mut some, mut none) = (0, count);
    while none - some > 1 {
        let middle = some + (none - some) / 2;
        if full(middle) { some = middle } else { none = middle }
    }
    if some == 0 {
        return refuse_loop(
            program,
            target,
            "the loops below have their full extent in no iteration",
        );
    }
    let name = format!("{}_tail", program.vars[target].name);
    let tail = program.add_var(name);
    let mut copies =
        Copies { target, buffers: vec![], vars: vec![(target, Expr::Var(tail) + some)] };
    copies.own_buffers(program, &path);
    let rest = Expr::Integer(count - some);
    let body = copies.statements(program, &own.body);
    let mut last = Loop { var: tail, extent: rest, kind: own.kind, body };
    let mut domain = outer.clone();
    domain.push(tail, &last.extent);
    let vars = copies.vars.clone();
    let change = |var: VarId| vars.iter().find(|(old, _)| *old == var).map(|(_, new)| new.clone());
    substitute(program, &mut last.body, &domain, &change);
    let mut first = Loop { extent: Expr::Integer(some), ..own };
    let mut domain = outer;
    domain.push(target, &first.extent);
    substitute(program, &mut first.body, &domain, &|_| None);
    replace(program, &path, Statement::Loop(Box::new(first)));
    if let Some((place, above)) = path.split_last() {
        insert(program, above, place + 1, Statement::Loop(Box::new(last)));
    }
    copies.shrink(program, tail);
    match program.blocks_in_order().first() {
        Some(block) => must_hold(program, *block)?,
        None => return refuse_loop(program, target, "it is empty"),
    }
    Ok(tail)
}

/// Whether every extent in `body` that depends on `target` is constant in `domain`.
fn constant_below(body: &[Statement], target: VarId, domain: &Domain) -> bool {
    body.iter().all(|statement| match statement {
        Statement::Realize(_) | Statement::Sync(_) => true,
        Statement::Loop(own) => {
            let extent = domain.simplify_extent(&own.extent);
            let mut inner = domain.clone();
            inner.push(own.var, &extent);
            !extent.mentions(target) && constant_below(&own.body, target, &inner)
        }
    })
}

/// What the copies of variables and buffers are.
struct Copies {
    target: VarId,
    buffers: Vec<(BufferId, BufferId)>,
    vars: Vec<(VarId, Expr)>,
}

impl Copies {
    /// Copies the temporaries that are used below `path` only.
    fn own_buffers(&mut self, program: &mut Program, path: &[usize]) {
        let below =
            |block: &BlockId| program.find_block(*block).is_some_and(|own| own.starts_with(path));
        let private: Vec<BufferId> = program
            .buffers
            .iter()
            .filter(|(buffer, entry)| {
                let users = [program.writers(*buffer), program.readers(*buffer)].concat();
                entry.role == Role::Temporary && !users.is_empty() && users.iter().all(below)
            })
            .map(|(buffer, _)| buffer)
            .collect();
        for buffer in private {
            let mut copy = program.buffers[buffer].clone();
            copy.name = format!("{}_tail", copy.name);
            let copy = program.buffers.push(copy);
            self.buffers.push((buffer, copy));
        }
    }

    fn var(&mut self, program: &mut Program, old: VarId) -> VarId {
        let new = program.add_var(program.vars[old].name.clone());
        self.vars.push((old, Expr::Var(new)));
        new
    }

    /// The statements with variables of their own where they are bound; uses are left to be
    /// substituted.
    fn statements(&mut self, program: &mut Program, body: &[Statement]) -> Vec<Statement> {
        let each = body.iter().map(|statement| match statement {
            Statement::Loop(own) => {
                let var = self.var(program, own.var);
                let body = self.statements(program, &own.body);
                Statement::Loop(Box::new(Loop {
                    var,
                    extent: own.extent.clone(),
                    kind: own.kind,
                    body,
                }))
            }
            Statement::Realize(realize) => {
                let mut realize = realize.clone();
                let goes_on = reduces_over(&program.blocks[realize.block], &realize, self.target);
                realize.block = self.block(program, realize.block);
                if let (true, BlockBody::Reduce { initial, .. }) =
                    (goes_on, &mut program.blocks[realize.block].body)
                {
                    *initial = None;
                }
                Statement::Realize(realize)
            }
            Statement::Sync(level) => Statement::Sync(*level),
        });
        each.collect()
    }

    fn block(&mut self, program: &mut Program, block: BlockId) -> BlockId {
        let mut copy: Block = program.blocks[block].clone();
        copy.name = unique_name(program, &format!("{}_tail", copy.name));
        for iterator in &mut copy.iterators {
            iterator.var = self.var(program, iterator.var);
        }
        for (old, new) in &self.buffers {
            if copy.buffer == *old {
                copy.buffer = *new;
            }
            copy.map_expressions(&mut |expr| {
                map_loads(expr, *old, &mut |indices| Expr::Load(*new, indices))
            });
        }
        program.blocks.push(copy)
    }

    /// Cuts the copied buffers to what the last iterations use.
    fn shrink(&self, program: &mut Program, tail: VarId) {
        let Some(path) = program.find_loop(tail) else { return };
        for (_, buffer) in &self.buffers {
            let writers = program.writers(*buffer);
            let spans = region::of_stores(program, *buffer, &writers, path.len());
            for (axis, span) in spans.iter().enumerate() {
                if span.minimum() == Expr::Integer(0) {
                    let whole = program.buffers[*buffer].shape[axis];
                    program.buffers[*buffer].shape[axis] = span.limit(whole);
                }
            }
        }
        // Indices may be simpler within the smaller ranges.
        for block in program.blocks_in_order() {
            let Some(place) = program.find_block(block) else { continue };
            if place.starts_with(&path) {
                let domain = block_domain(&program.blocks[block], &program.domain_at(&place));
                program.blocks[block].map_expressions(&mut |expr| domain.simplify(expr));
            }
        }
    }
}
