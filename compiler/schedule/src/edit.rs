//! Changes to the loop tree that several primitives share.

use crate::error::{Outcome, Refusal, loop_name, refuse_block, refuse_loop};
use hone_tensor::{
    Block, BlockBody, BlockId, BufferId, Domain, Expr, IteratorKind, Loop, LoopKind, Program,
    Realize, Statement, VarId,
};

/// The place of a loop.
pub(crate) fn loop_path(program: &Program, target: VarId) -> Outcome<Vec<usize>> {
    match program.find_loop(target) {
        Some(path) => Ok(path),
        None => refuse_loop(program, target, "it is not a loop of the program"),
    }
}

/// The loop, copied.
pub(crate) fn loop_at(program: &Program, target: VarId) -> Outcome<Loop> {
    match program.loop_of(target) {
        Some(own) => Ok(own.clone()),
        None => refuse_loop(program, target, "it is not a loop of the program"),
    }
}

/// The place of a block.
pub(crate) fn block_path(program: &Program, block: BlockId) -> Outcome<Vec<usize>> {
    match program.find_block(block) {
        Some(path) => Ok(path),
        None => refuse_block(program, block, "it does not stand in the loop tree"),
    }
}

/// The block's realization, copied.
pub(crate) fn realize_at(program: &Program, block: BlockId) -> Outcome<Realize> {
    match program.realize_of(block) {
        Some(realize) => Ok(realize.clone()),
        None => refuse_block(program, block, "it does not stand in the loop tree"),
    }
}

/// Refuses a loop that carries an annotation, or that runs in waves.
pub(crate) fn must_be_serial(program: &Program, own: &Loop) -> Outcome<()> {
    match own.kind {
        LoopKind::Serial => must_not_wait(program, own),
        kind => {
            let kind = match kind {
                LoopKind::Bound(axis) => axis.name().to_string(),
                kind => format!("{kind:?}").to_lowercase(),
            };
            refuse_loop(program, own.var, format!("it is {kind}: make it serial first"))
        }
    }
}

/// Refuses a loop directly around a parallel one, which has to stay so.
pub(crate) fn must_not_wait(program: &Program, own: &Loop) -> Outcome<()> {
    let parallel = own.body.iter().find_map(|inner| match inner {
        Statement::Loop(inner) if inner.kind == LoopKind::Parallel => Some(inner.var),
        _ => None,
    });
    match parallel {
        None => Ok(()),
        Some(inner) => {
            let inner = loop_name(program, inner);
            let reason = format!("it is directly around {inner}, which is parallel");
            refuse_loop(program, own.var, reason)
        }
    }
}

/// Whether `inner` lies below `outer`.
pub(crate) fn below(outer: &[usize], inner: &[usize]) -> bool {
    inner.len() > outer.len() && inner.starts_with(outer)
}

/// Puts another statement at a place.
pub(crate) fn replace(program: &mut Program, path: &[usize], statement: Statement) {
    if let Some(place) = program.statement_mut(path) {
        *place = statement;
    }
}

/// Replaces loop variables in statements and in the blocks below them, and simplifies.
pub(crate) fn substitute(
    program: &mut Program,
    body: &mut [Statement],
    domain: &Domain,
    change: &dyn Fn(VarId) -> Option<Expr>,
) {
    let renew = |expr: &Expr, domain: &Domain| domain.simplify(&expr.substitute(change));
    for statement in body {
        match statement {
            Statement::Loop(own) => {
                own.extent = domain.simplify_extent(&own.extent.substitute(change));
                let mut inner = domain.clone();
                inner.push(own.var, &own.extent);
                substitute(program, &mut own.body, &inner, change);
            }
            Statement::Realize(realize) => {
                realize.bindings.iter_mut().for_each(|binding| *binding = renew(binding, domain));
                realize.predicate.iter_mut().for_each(|own| *own = renew(own, domain));
                let inner = block_domain(&program.blocks[realize.block], domain);
                let block = &mut program.blocks[realize.block];
                if block.expressions().into_iter().any(|expr| changes(expr, change)) {
                    block.map_expressions(&mut |expr| renew(expr, &inner));
                }
            }
            Statement::Sync(_) => {}
        }
    }
}

fn changes(expr: &Expr, change: &dyn Fn(VarId) -> Option<Expr>) -> bool {
    let mut found = false;
    expr.visit(&mut |part| {
        found |= matches!(part, Expr::Var(var) if change(*var).is_some());
    });
    found
}

/// The loops around a block, and its own iterators inside them.
pub(crate) fn block_domain(block: &Block, loops: &Domain) -> Domain {
    let mut domain = loops.clone();
    for iterator in &block.iterators {
        domain.push(iterator.var, &Expr::from(iterator.extent));
    }
    domain
}

/// Takes a block out of the tree, with the loops that have nothing else to repeat.
pub(crate) fn detach(program: &mut Program, block: BlockId) {
    fn prune(body: &mut Vec<Statement>, block: BlockId) {
        body.retain_mut(|statement| match statement {
            Statement::Realize(realize) => realize.block != block,
            Statement::Sync(_) => true,
            Statement::Loop(own) => {
                prune(&mut own.body, block);
                !own.body.is_empty()
            }
        });
    }
    prune(&mut program.body, block);
}

/// Puts statements into the body at a place, in front of position `place`.
pub(crate) fn insert(program: &mut Program, body: &[usize], place: usize, statement: Statement) {
    if let Some(body) = program.body_at_mut(body) {
        body.insert(place.min(body.len()), statement);
    }
}

/// A nest of serial loops, outermost first, around one statement.
pub(crate) fn nest(loops: Vec<(VarId, Expr)>, inside: Statement) -> Statement {
    loops.into_iter().rev().fold(inside, |body, (var, extent)| {
        Statement::Loop(Box::new(Loop { var, extent, kind: LoopKind::Serial, body: vec![body] }))
    })
}

/// New loops like `loops`, with variables of their own: the nest around `inside`, and what each old
/// variable has become. `inside` is given that replacement.
pub(crate) fn copy_nest(
    program: &mut Program,
    loops: &[Loop],
    suffix: &str,
    inside: impl FnOnce(&mut Program, &dyn Fn(VarId) -> Option<Expr>) -> Statement,
) -> Statement {
    let pairs: Vec<(VarId, VarId)> = loops
        .iter()
        .map(|own| {
            let name = format!("{}{suffix}", program.vars[own.var].name);
            (own.var, program.add_var(name))
        })
        .collect();
    let change =
        |var: VarId| pairs.iter().find(|(old, _)| *old == var).map(|(_, new)| Expr::Var(*new));
    let inside = inside(program, &change);
    loops.iter().zip(&pairs).rev().fold(inside, |body, (own, (_, var))| {
        let extent = own.extent.substitute(&change);
        Statement::Loop(Box::new(Loop { var: *var, extent, kind: own.kind, body: vec![body] }))
    })
}

/// The loops around a place that lie at depth `from` or deeper, copied.
pub(crate) fn loops_from(program: &Program, path: &[usize], from: usize) -> Vec<Loop> {
    let loops = program.enclosing(path).into_iter().skip(from);
    loops
        .map(|own| Loop { var: own.var, extent: own.extent.clone(), kind: own.kind, body: vec![] })
        .collect()
}

/// Rewrites the indices of every load from `buffer`, the innermost ones first.
pub(crate) fn map_loads(
    expr: &Expr,
    buffer: BufferId,
    change: &mut dyn FnMut(Vec<Expr>) -> Expr,
) -> Expr {
    let expr = expr.map_operands(&mut |operand| map_loads(operand, buffer, change));
    match expr {
        Expr::Load(own, indices) if own == buffer => change(indices),
        _ => expr,
    }
}

/// The bindings of a block's iterators of one kind.
pub(crate) fn bindings_of<'a>(
    block: &'a Block,
    realize: &'a Realize,
    kind: IteratorKind,
) -> impl Iterator<Item = &'a Expr> {
    let pairs = block.iterators.iter().zip(&realize.bindings);
    pairs.filter(move |(own, _)| own.kind == kind).map(|(_, binding)| binding)
}

/// Whether a block's reduction goes over the loop `var`.
pub(crate) fn reduces_over(block: &Block, realize: &Realize, var: VarId) -> bool {
    bindings_of(block, realize, IteratorKind::Reduction).any(|binding| binding.mentions(var))
}

/// Whether the loop `var` runs over elements and over what is reduced into them alike, as a fused one
/// may, in a block that sets its own initial value: then only the order as it is visits the first
/// point of a reduction first.
pub(crate) fn runs_over_both(block: &Block, realize: &Realize, var: VarId) -> bool {
    let sets = matches!(block.body, BlockBody::Reduce { initial: Some(_), .. });
    let mut spatial = bindings_of(block, realize, IteratorKind::Spatial);
    sets && reduces_over(block, realize, var) && spatial.any(|binding| binding.mentions(var))
}

/// Makes a refusal of what the verifier finds after a block was moved.
pub(crate) fn must_hold(program: &Program, block: BlockId) -> Outcome<()> {
    hone_tensor::verify(program).map_err(|error| Refusal {
        object: crate::error::block_name(program, block),
        reason: format!("then {error}"),
    })
}

/// `name`, or with a number added where a block has it already.
pub(crate) fn unique_name(program: &Program, name: &str) -> String {
    let taken = |name: &str| program.block_named(name).is_some();
    if !taken(name) {
        return name.to_string();
    }
    let mut number = 2;
    while taken(&format!("{name}.{number}")) {
        number += 1;
    }
    format!("{name}.{number}")
}
