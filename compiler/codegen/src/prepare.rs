//! Moves the initial value of a reduction in front of its outermost reduction loop.
//!
//! A block that was not decomposed sets its initial value "where all reduction iterators are at
//! their first value". Tested inside the loops that would cost a branch per point; as a separate
//! block before the loops it costs nothing. Where a loop binds both spatial and reduction
//! axes, the test remains, as a predicate of the initial block.

use hone_tensor::{
    Block, BlockBody, BlockId, Expr, IteratorKind, Launch, Loop, Program, Realize, Statement, VarId,
};
use hone_types::DataType;
use std::collections::HashMap;

/// The program with explicit initial blocks, and the statements of each top-level statement.
pub(crate) fn prepare(program: &Program) -> (Program, Vec<Vec<Statement>>) {
    let mut program = program.clone();
    let body = std::mem::take(&mut program.body);
    let kernels = body
        .into_iter()
        .map(|statement| {
            let mut kernel = Vec::new();
            insert(&mut program, statement, &mut vec![], &mut kernel);
            kernel
        })
        .collect();
    (program, kernels)
}

/// The program with explicit initial blocks in one launch, and what each block of the device then does there.
pub(crate) fn prepare_launch(program: &Program, body: &[Statement]) -> (Program, Vec<Statement>) {
    let mut program = program.clone();
    let mut prepared = Vec::new();
    let mut guarded = vec![];
    for statement in body {
        insert(&mut program, statement.clone(), &mut guarded, &mut prepared);
    }
    (program, prepared)
}

/// Puts `statement` into `out`, after the initial blocks that belong before it. Blocks in `guarded` get theirs where
/// they stand.
fn insert(
    program: &mut Program,
    statement: Statement,
    guarded: &mut Vec<BlockId>,
    out: &mut Vec<Statement>,
) {
    match statement {
        Statement::Loop(mut outer) => {
            let mut started = started_by(program, &outer);
            started.retain(|realize| !guarded.contains(&realize.block));
            // In front of a loop in which lanes part or wait, an initial value would be stored before others
            // have read what stood there.
            if outer.axis().is_some() || outer.body.iter().any(Launch::has_lanes) {
                guarded.extend(started.drain(..).map(|realize| realize.block));
            }
            for realize in started {
                if let Some(initial) = initial_nest(program, &outer, &realize) {
                    out.push(initial);
                    forget_initial(program, realize.block);
                }
            }
            let body = std::mem::take(&mut outer.body);
            for inner in body {
                insert(program, inner, guarded, &mut outer.body);
            }
            out.push(Statement::Loop(outer));
        }
        Statement::Realize(realize) => {
            if let Some(initial) = guarded_initial(program, &realize) {
                out.push(initial);
                forget_initial(program, realize.block);
            }
            out.push(Statement::Realize(realize));
        }
        Statement::Sync(_) => out.push(statement),
    }
}

/// The realizations in `outer` whose reduction starts with it: it binds reduction iterators only.
fn started_by(program: &Program, outer: &Loop) -> Vec<Realize> {
    let mut found = Vec::new();
    realizations(&outer.body, &mut |realize| {
        let starts = has_initial(&program.blocks[realize.block])
            && mentioned(program, realize, IteratorKind::Reduction, outer.var)
            && !mentioned(program, realize, IteratorKind::Spatial, outer.var);
        if starts {
            found.push(realize.clone());
        }
    });
    found
}

fn realizations(statements: &[Statement], visit: &mut dyn FnMut(&Realize)) {
    for statement in statements {
        match statement {
            Statement::Loop(inner) => realizations(&inner.body, visit),
            Statement::Realize(realize) => visit(realize),
            Statement::Sync(_) => {}
        }
    }
}

fn has_initial(block: &Block) -> bool {
    matches!(&block.body, BlockBody::Reduce { initial: Some(_), .. })
}

fn mentioned(program: &Program, realize: &Realize, kind: IteratorKind, var: VarId) -> bool {
    let iterators = &program.blocks[realize.block].iterators;
    iterators
        .iter()
        .zip(&realize.bindings)
        .any(|(iterator, binding)| iterator.kind == kind && binding.mentions(var))
}

fn forget_initial(program: &mut Program, block: BlockId) {
    if let BlockBody::Reduce { initial, .. } = &mut program.blocks[block].body {
        *initial = None;
    }
}

/// The loops inside `outer` around `realize`, without those of its reduction, around a store
/// of the initial value. `None` where a loop is bound to both kinds of axes.
fn initial_nest(program: &mut Program, outer: &Loop, realize: &Realize) -> Option<Statement> {
    let path = path_to(&outer.body, realize.block)?;
    let (kept, dropped): (Vec<&Loop>, Vec<&Loop>) = path
        .into_iter()
        .partition(|inner| mentioned(program, realize, IteratorKind::Spatial, inner.var));
    let shared = |inner: &&Loop| mentioned(program, realize, IteratorKind::Reduction, inner.var);
    let gone: Vec<VarId> = dropped.iter().map(|inner| inner.var).chain([outer.var]).collect();
    let depends = |inner: &&Loop| gone.iter().any(|var| inner.extent.mentions(*var));
    if kept.iter().any(shared) || kept.iter().any(depends) {
        return None;
    }
    let mut renamed: HashMap<VarId, Expr> =
        gone.iter().map(|var| (*var, Expr::Integer(0))).collect();
    let mut shells = Vec::new();
    for inner in kept {
        let name = format!("{}_initial", program.vars[inner.var].name);
        let var = program.add_var(name);
        let extent = substitute(&inner.extent, &renamed);
        renamed.insert(inner.var, Expr::Var(var));
        shells.push(Loop { var, extent, kind: inner.kind, body: vec![] });
    }
    let predicate = realize.predicate.as_ref().map(|predicate| substitute(predicate, &renamed));
    let initial = initial_realize(program, realize, predicate, &renamed)?;
    Some(shells.into_iter().rev().fold(Statement::Realize(initial), |body, mut shell| {
        shell.body = vec![body];
        Statement::Loop(Box::new(shell))
    }))
}

/// The initial value inside the loops, under the predicate that all reduction axes are at 0.
fn guarded_initial(program: &mut Program, realize: &Realize) -> Option<Statement> {
    let zero = |binding: &Expr| binding.clone().equal(Expr::Integer(0));
    let iterators = &program.blocks[realize.block].iterators;
    let tests = iterators
        .iter()
        .zip(&realize.bindings)
        .filter(|(iterator, binding)| {
            iterator.kind == IteratorKind::Reduction && binding.as_integer() != Some(0)
        })
        .map(|(_, binding)| zero(binding));
    let predicate = realize.predicate.clone().into_iter().chain(tests).reduce(Expr::and);
    initial_realize(program, realize, predicate, &HashMap::new()).map(Statement::Realize)
}

/// A new block that stores the initial value, realized at `realize`'s spatial bindings.
fn initial_realize(
    program: &mut Program,
    realize: &Realize,
    predicate: Option<Expr>,
    renamed: &HashMap<VarId, Expr>,
) -> Option<Realize> {
    let block = &program.blocks[realize.block];
    let BlockBody::Reduce { initial: Some(initial), .. } = &block.body else { return None };
    let spatial = |kind: IteratorKind| kind == IteratorKind::Spatial;
    let bindings = block
        .iterators
        .iter()
        .zip(&realize.bindings)
        .filter(|(iterator, _)| spatial(iterator.kind))
        .map(|(_, binding)| substitute(binding, renamed))
        .collect();
    let block = Block {
        name: format!("{}.initial", block.name),
        iterators: block
            .iterators
            .iter()
            .filter(|iterator| spatial(iterator.kind))
            .cloned()
            .collect(),
        buffer: block.buffer,
        // Indices into a shrunk buffer speak of loops around the block as well.
        indices: block.indices.iter().map(|index| substitute(index, renamed)).collect(),
        body: BlockBody::Map(substitute(initial, renamed)),
    };
    Some(Realize { block: program.blocks.push(block), bindings, predicate })
}

fn substitute(expr: &Expr, renamed: &HashMap<VarId, Expr>) -> Expr {
    expr.substitute(&|var| renamed.get(&var).cloned())
}

/// The loops from `statements` down to where `block` is realized, outermost first.
fn path_to(statements: &[Statement], block: BlockId) -> Option<Vec<&Loop>> {
    statements.iter().find_map(|statement| match statement {
        Statement::Sync(_) => None,
        Statement::Realize(realize) => (realize.block == block).then(Vec::new),
        Statement::Loop(inner) => path_to(&inner.body, block).map(|mut path| {
            path.insert(0, inner);
            path
        }),
    })
}

/// The value of a simplified predicate, where it is known.
pub(crate) fn predicate_value(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Constant(value, DataType::Bool) => Some(*value != 0.0),
        _ => None,
    }
}
