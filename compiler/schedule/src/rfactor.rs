//! `rfactor`: a reduction is computed in parts, one per iteration of a loop, then the parts are
//! reduced.
//!
//! The parts go to a new buffer with the loop as its innermost axis. The block of the parts, named as
//! the old one with `_parts` added, takes the old one's loops; the old block, behind the outermost
//! loop that is reduced over, gets copies of the loops from there inwards that its place depends on,
//! and one over the parts.
//!
//! Legal: the loop is one that the block reduces over, with a constant extent or one that is largest
//! where all others are at 0; the loops from the outermost reduced one inwards hold only this block;
//! its initial value is not decomposed yet.
//! Buys: parts are independent, so that the loop can be vectorized, or several accumulators kept.
//! Costs: a buffer and a second, short reduction. The order of additions changes.

use crate::compact::compact;
use crate::decompose_reduction::spatial_loops;
use crate::edit::{
    below, block_path, copy_nest, insert, loop_path, must_hold, realize_at, reduces_over, replace,
    unique_name,
};
use crate::error::{Outcome, loop_name, refuse_block};
use hone_tensor::{
    Block, BlockBody, BlockId, Buffer, BufferId, Combiner, Domain, Expr, Iterator, IteratorKind,
    Loop, LoopKind, Program, Realize, Role, Scope, Statement, VarId,
};

pub(crate) fn apply(program: &mut Program, block: BlockId, target: VarId) -> Outcome<BlockId> {
    let path = block_path(program, block)?;
    let own = program.blocks[block].clone();
    let realize = realize_at(program, block)?;
    let BlockBody::Reduce { combiner, initial: Some(initial), value } = own.body.clone() else {
        return refuse_block(program, block, "it is not a reduction with its initial value");
    };
    let count = check(program, block, &own, &realize, target)?;
    let depth = first_reduced(program, &own, &realize, &path);
    let nest_path = path[..depth + 1].to_vec();
    if program.statement(&nest_path).is_none_or(|nest| nest.blocks().len() > 1) {
        return refuse_block(program, block, "other blocks share the loops it reduces over");
    }
    let partial = add_partial(program, &own, count);
    let identity = combiner.identity(program.buffers[own.buffer].dtype);
    let parts = Parts { block, own: &own, realize: &realize, target, partial, count };
    let loops = spatial_loops(program, &own, &realize, &path, depth);
    let body = BlockBody::Reduce { combiner, initial: Some(identity), value };
    let (first, first_realize) = parts.first(program, body)?;
    replace(program, &path, Statement::Realize(first_realize));
    let last = parts.last(program, combiner, initial, &loops);
    if let Some((place, above)) = nest_path.split_last() {
        insert(program, above, place + 1, last);
    }
    let outer = program.enclosing(&nest_path).last().map(|own| own.var);
    if let Some(outer) = outer {
        compact(program, partial, outer);
    }
    must_hold(program, block)?;
    Ok(first)
}

/// Checks the loop; its largest extent.
fn check(
    program: &Program,
    block: BlockId,
    own: &Block,
    realize: &Realize,
    target: VarId,
) -> Outcome<usize> {
    let path = loop_path(program, target)?;
    let name = loop_name(program, target);
    if !below(&path, &block_path(program, block)?) {
        return refuse_block(program, block, format!("{name} is not around it"));
    }
    let pairs = own.iterators.iter().zip(&realize.bindings);
    let spatial = pairs.filter(|(own, _)| own.kind == IteratorKind::Spatial);
    if !reduces_over(own, realize, target)
        || spatial.into_iter().any(|(_, binding)| binding.mentions(target))
    {
        return refuse_block(program, block, format!("it does not reduce over {name}"));
    }
    if realize.predicate.is_some() {
        return refuse_block(program, block, "it runs under a condition");
    }
    let extent = program.loop_of(target).map(|own| own.extent.clone());
    let extent = extent.unwrap_or(Expr::Integer(0));
    let first = extent.substitute(&|_| Some(Expr::Integer(0)));
    let first = Domain::default().simplify(&first).as_integer();
    let largest = program.domain_at(&path).bounds(&extent).map(|range| range.max);
    match first.and_then(|first| usize::try_from(first).ok()) {
        Some(count) if largest.is_some_and(|largest| largest <= count as i64) => Ok(count),
        _ => refuse_block(
            program,
            block,
            format!("the extent of {name} is largest in a later round"),
        ),
    }
}

/// Depth of the outermost loop around the block that it reduces over.
fn first_reduced(program: &Program, own: &Block, realize: &Realize, path: &[usize]) -> usize {
    let loops = program.enclosing(path);
    loops.iter().position(|around| reduces_over(own, realize, around.var)).unwrap_or(0)
}

fn add_partial(program: &mut Program, own: &Block, count: usize) -> BufferId {
    let whole = &program.buffers[own.buffer];
    let mut shape = whole.shape.clone();
    shape.push(count);
    let (name, dtype) = (format!("{}_parts", whole.name), whole.dtype);
    program.buffers.push(Buffer { name, dtype, shape, role: Role::Temporary, scope: Scope::Global })
}

struct Parts<'a> {
    block: BlockId,
    own: &'a Block,
    realize: &'a Realize,
    target: VarId,
    partial: BufferId,
    count: usize,
}

impl Parts<'_> {
    /// The block of the parts. A reduction iterator that the loop feeds gives way to one per other
    /// loop that feeds it.
    fn first(&self, program: &mut Program, body: BlockBody) -> Outcome<(BlockId, Realize)> {
        let (mut spatial, mut reduced) = (Vec::new(), Vec::new());
        let mut values: Vec<(VarId, Expr)> = Vec::new();
        for (old, binding) in self.own.iterators.iter().zip(&self.realize.bindings) {
            if binding.mentions(self.target) {
                values.push((old.var, binding.clone()));
                continue;
            }
            let var = program.add_var(program.vars[old.var].name.clone());
            values.push((old.var, Expr::Var(var)));
            let entry = (Iterator { var, ..old.clone() }, binding.clone());
            match old.kind {
                IteratorKind::Spatial => spatial.push(entry),
                IteratorKind::Reduction => reduced.push(entry),
            }
        }
        let part = program.add_var(program.vars[self.target].name.clone());
        let mut loops: Vec<(VarId, VarId)> = vec![(self.target, part)];
        let own = Iterator { var: part, extent: self.count, kind: IteratorKind::Spatial };
        spatial.push((own, Expr::Var(self.target)));
        for around in loops_around(program, self.block, self.realize, self.target) {
            let Some(extent) = around.extent.as_integer().and_then(|own| usize::try_from(own).ok())
            else {
                let reason = format!(
                    "{} feeds the same iterator and has no constant extent",
                    loop_name(program, around.var)
                );
                return refuse_block(program, self.block, reason);
            };
            let var = program.add_var(program.vars[around.var].name.clone());
            loops.push((around.var, var));
            let own = Iterator { var, extent, kind: IteratorKind::Reduction };
            reduced.push((own, Expr::Var(around.var)));
        }
        let to_iterators =
            |var: VarId| loops.iter().find(|(old, _)| *old == var).map(|(_, new)| Expr::Var(*new));
        let change = |var: VarId| {
            let (_, value) = values.iter().find(|(old, _)| *old == var)?;
            Some(value.substitute(&to_iterators))
        };
        let mut block = Block { body, ..self.own.clone() };
        block.map_expressions(&mut |expr| expr.substitute(&change));
        block.name = unique_name(program, &format!("{}_parts", self.own.name));
        block.buffer = self.partial;
        block.indices.push(Expr::Var(part));
        let (iterators, bindings) = spatial.into_iter().chain(reduced).unzip();
        block.iterators = iterators;
        let block = program.blocks.push(block);
        Ok((block, Realize { block, bindings, predicate: None }))
    }

    /// The old block, now over the parts, under its loops.
    fn last(
        &self,
        program: &mut Program,
        combiner: Combiner,
        initial: Expr,
        loops: &[Loop],
    ) -> Statement {
        let block = self.block;
        let name = program.vars[self.target].name.clone();
        let (part, around) =
            (program.add_var(name.clone()), program.add_var(format!("{name}_loop")));
        let pairs = self.own.iterators.iter().zip(&self.realize.bindings);
        let spatial: Vec<(Iterator, Expr)> = pairs
            .filter(|(own, _)| own.kind == IteratorKind::Spatial)
            .map(|(own, binding)| (own.clone(), binding.clone()))
            .collect();
        let mut indices = self.own.indices.clone();
        indices.push(Expr::Var(part));
        let value = Expr::Load(self.partial, indices);
        let own = Iterator { var: part, extent: self.count, kind: IteratorKind::Reduction };
        let iterators = spatial.iter().map(|(own, _)| own.clone()).chain([own]).collect();
        program.blocks[block].iterators = iterators;
        program.blocks[block].body = BlockBody::Reduce { combiner, initial: Some(initial), value };
        let count = Expr::from(self.count);
        copy_nest(program, loops, "_final", |program, change| {
            program.blocks[block].map_expressions(&mut |expr| expr.substitute(change));
            let bindings = spatial.iter().map(|(_, binding)| binding.substitute(change));
            let bindings = bindings.chain([Expr::Var(around)]).collect();
            let realize = Statement::Realize(Realize { block, bindings, predicate: None });
            let kind = LoopKind::Serial;
            Statement::Loop(Box::new(Loop {
                var: around,
                extent: count,
                kind,
                body: vec![realize],
            }))
        })
    }
}

/// The other loops that feed the iterators which the target feeds.
fn loops_around(program: &Program, block: BlockId, realize: &Realize, target: VarId) -> Vec<Loop> {
    let shared: Vec<&Expr> =
        realize.bindings.iter().filter(|binding| binding.mentions(target)).collect();
    let loops = program.enclosing(&program.find_block(block).unwrap_or_default());
    let feeds = |around: &&Loop| {
        around.var != target && shared.iter().any(|binding| binding.mentions(around.var))
    };
    loops.into_iter().filter(feeds).cloned().collect()
}
