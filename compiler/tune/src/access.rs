//! Reads the form of a computation off its block: which iterator is the vector axis, which ones let
//! an operand be used again.

use hone_tensor::{
    BinaryOp, Block, BlockBody, BlockId, BufferId, Combiner, Expr, Intrinsic, Iterator,
    IteratorKind, Program, UnaryOp, VarId,
};

/// Every load in an expression.
pub(crate) fn loads(expr: &Expr) -> Vec<&Expr> {
    let mut found = Vec::new();
    collect(expr, &mut found);
    found
}

fn collect<'a>(expr: &'a Expr, found: &mut Vec<&'a Expr>) {
    if matches!(expr, Expr::Load(..)) {
        found.push(expr);
    }
    expr.operands().into_iter().for_each(|operand| collect(operand, found));
}

/// The value a block computes, before combining.
pub(crate) fn value(block: &Block) -> &Expr {
    match &block.body {
        BlockBody::Map(value) | BlockBody::Reduce { value, .. } => value,
    }
}

/// Whether a block reduces.
pub(crate) fn is_reduction(block: &Block) -> bool {
    matches!(block.body, BlockBody::Reduce { .. })
}

/// Whether an expression has a function that costs more than a few cycles.
pub(crate) fn is_costly(expr: &Expr) -> bool {
    let mut costly = false;
    expr.visit(&mut |part| costly |= is_function(part));
    costly
}

/// Whether an expression's outermost operation is a function that costs more than a few cycles.
pub(crate) fn is_function(expr: &Expr) -> bool {
    match expr {
        Expr::Unary(op, _) => !matches!(
            op,
            UnaryOp::Negate | UnaryOp::Abs | UnaryOp::Not | UnaryOp::Floor | UnaryOp::Ceil
        ),
        Expr::Binary(op, ..) => matches!(op, BinaryOp::Power),
        _ => false,
    }
}

/// Whether a load is guarded by a condition.
pub(crate) fn is_guarded(expr: &Expr) -> bool {
    let mut guarded = false;
    expr.visit(&mut |part| {
        if let Expr::Select(_, then, otherwise) = part {
            guarded |= !loads(then).is_empty() || !loads(otherwise).is_empty();
        }
    });
    guarded
}

/// How a load uses a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Not at all: the same element for all its values.
    None,
    /// Bare, in the last index alone: neighbouring elements.
    Unit,
    /// In another way.
    Strided,
}

/// How a load uses a variable.
pub(crate) fn usage(load: &Expr, var: VarId) -> Use {
    let Expr::Load(_, indices) = load else { return Use::None };
    let Some((last, outer)) = indices.split_last() else { return Use::None };
    let in_outer = outer.iter().any(|index| index.mentions(var));
    match (in_outer, last.mentions(var)) {
        (false, false) => Use::None,
        (false, true) if is_unit(last, var) => Use::Unit,
        _ => Use::Strided,
    }
}

/// Whether an index grows by one with a variable.
fn is_unit(index: &Expr, var: VarId) -> bool {
    match index {
        Expr::Var(own) => *own == var,
        Expr::Binary(BinaryOp::Add, left, right) => {
            (is_unit(left, var) && !right.mentions(var))
                || (is_unit(right, var) && !left.mentions(var))
        }
        Expr::Binary(BinaryOp::Subtract, left, right) => is_unit(left, var) && !right.mentions(var),
        _ => false,
    }
}

/// A sum of products in which one operand is read along the vector axis and the other is not: each
/// is used again along an axis that the other alone has.
#[derive(Clone, Debug)]
pub(crate) struct Contraction {
    /// Place among the block's iterators of the vector axis.
    pub(crate) vector: usize,
    /// Place of the axis along which the vector operand is used again.
    pub(crate) rows: Option<usize>,
    /// Place of the axis along which the other operand is used again.
    pub(crate) columns: Option<usize>,
    /// The operand read along the vector axis.
    pub(crate) streamed: BufferId,
    /// The other operand.
    pub(crate) broadcast: BufferId,
    /// The instruction that sums short runs of products, where the operands lie for it; the run is
    /// the last iterator.
    pub(crate) intrinsic: Option<Intrinsic>,
}

impl Contraction {
    /// The contraction that a block is, if it is one.
    pub(crate) fn of(program: &Program, id: BlockId) -> Option<Self> {
        let block = &program.blocks[id];
        let BlockBody::Reduce { combiner: Combiner::Sum, value, .. } = &block.body else {
            return None;
        };
        let Expr::Binary(BinaryOp::Multiply, left, right) = value else { return None };
        let (left, right) = (single_load(left)?, single_load(right)?);
        let vector = vector_axis(block)?;
        let var = block.iterators[vector].var;
        let intrinsic = intrinsic_of(program, block, [left, right]);
        let usage = |load: &Expr, var: VarId| match intrinsic {
            Some(_) => usage(&without_run(load, block), var),
            None => usage(load, var),
        };
        let (broadcast, streamed) = match (usage(left, var), usage(right, var)) {
            (Use::None, Use::Unit) => (left, right),
            (Use::Unit, Use::None) => (right, left),
            _ => return None,
        };
        let reused = |by: &Expr, not_by: &Expr| {
            let mut spatial = spatial(block).filter(|(place, _)| *place != vector);
            let fits = |iterator: &Iterator| {
                iterator.extent > 1
                    && usage(by, iterator.var) != Use::None
                    && usage(not_by, iterator.var) == Use::None
            };
            let mut last = None;
            spatial
                .by_ref()
                .filter(|(_, iterator)| fits(iterator))
                .for_each(|(place, _)| last = Some(place));
            last
        };
        Some(Self {
            vector,
            rows: reused(broadcast, streamed),
            columns: reused(streamed, broadcast),
            streamed: loaded(streamed)?,
            broadcast: loaded(broadcast)?,
            intrinsic,
        })
    }
}

/// The instruction for products of these loads, summed over a last iterator of just its length.
fn intrinsic_of(program: &Program, block: &Block, loads: [&Expr; 2]) -> Option<Intrinsic> {
    let run = block.iterators.last().filter(|own| own.kind == IteratorKind::Reduction)?;
    let types = loads.map(|load| load.dtype(program));
    let sum = program.buffers[block.buffer].dtype;
    let fits = |own: &Intrinsic| {
        let [a, b] = own.factors();
        (types == [a, b] || types == [b, a])
            && sum == own.sum()
            && run.extent == own.depth() as usize
    };
    Intrinsic::ALL.into_iter().map(|(own, _)| own).find(fits)
}

/// A load without its last index, where that is the block's last iterator alone.
fn without_run(load: &Expr, block: &Block) -> Expr {
    if let (Expr::Load(buffer, indices), Some(run)) = (load, block.iterators.last())
        && let Some((Expr::Var(var), outer)) = indices.split_last()
        && *var == run.var
    {
        return Expr::Load(*buffer, outer.to_vec());
    }
    load.clone()
}

fn loaded(load: &Expr) -> Option<BufferId> {
    match load {
        Expr::Load(buffer, _) => Some(*buffer),
        _ => None,
    }
}

/// The one load in an operand that is a load, or a conversion of one.
fn single_load(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Load(..) => Some(expr),
        Expr::Cast(_, operand) => single_load(operand),
        _ => None,
    }
}

fn spatial(block: &Block) -> impl std::iter::Iterator<Item = (usize, &Iterator)> {
    block.iterators.iter().enumerate().filter(|(_, own)| own.kind == IteratorKind::Spatial)
}

/// Place of the spatial iterator that walks the stored buffer's last axis.
pub(crate) fn vector_axis(block: &Block) -> Option<usize> {
    let Expr::Var(var) = block.indices.last()? else { return None };
    let place = block.iterators.iter().position(|iterator| iterator.var == *var)?;
    (block.iterators[place].extent > 1).then_some(place)
}
