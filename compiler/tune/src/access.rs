//! Reads the form of a computation off its block: which axis is the vector axis, and along which ones an
//! operand is reused.

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

/// Whether a load is guarded by a condition; one that says which index is read, as a gather's does, is none.
pub(crate) fn is_guarded(expr: &Expr) -> bool {
    match expr {
        Expr::Load(..) => false,
        Expr::Select(_, then, otherwise) => {
            let guards = !loads(then).is_empty() || !loads(otherwise).is_empty();
            guards || expr.operands().into_iter().any(is_guarded)
        }
        _ => expr.operands().into_iter().any(is_guarded),
    }
}

/// Whether a condition says which index is read.
pub(crate) fn selects_index(expr: &Expr) -> bool {
    loads(expr).into_iter().any(|load| match load {
        Expr::Load(_, indices) => indices.iter().any(|index| {
            let mut selects = false;
            index.visit(&mut |part| selects |= matches!(part, Expr::Select(..)));
            selects
        }),
        _ => false,
    })
}

/// How a load's address depends on a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Not at all: the same element for all its values.
    Invariant,
    /// By one element per step, in the last index alone: neighbouring elements.
    Contiguous,
    /// In another way.
    Strided,
}

/// How a load's address depends on a variable.
pub(crate) fn access(load: &Expr, var: VarId) -> Access {
    let Expr::Load(_, indices) = load else { return Access::Invariant };
    let Some((last, outer)) = indices.split_last() else { return Access::Invariant };
    let in_outer = outer.iter().any(|index| index.mentions(var));
    match (in_outer, last.mentions(var)) {
        (false, false) => Access::Invariant,
        (false, true) if has_unit_stride(last, var) => Access::Contiguous,
        _ => Access::Strided,
    }
}

/// How many elements apart a load reads neighbours of a variable: 2 in `x[.., 2 * v + 1]`. `None` where that is not known, and
/// where the variable is in another index than the last.
pub(crate) fn distance(load: &Expr, var: VarId) -> Option<i64> {
    let Expr::Load(_, indices) = load else { return None };
    let (last, outer) = indices.split_last()?;
    if outer.iter().any(|index| index.mentions(var)) { None } else { step(last, var) }
}

/// By how much an index grows when a variable grows by one, where that is always the same.
fn step(index: &Expr, var: VarId) -> Option<i64> {
    match index {
        _ if !index.mentions(var) => Some(0),
        Expr::Var(_) => Some(1),
        Expr::Binary(BinaryOp::Add, left, right) => step(left, var)?.checked_add(step(right, var)?),
        Expr::Binary(BinaryOp::Subtract, left, right) => {
            step(left, var)?.checked_sub(step(right, var)?)
        }
        Expr::Binary(BinaryOp::Multiply, left, right) => {
            match (left.as_integer(), right.as_integer()) {
                (Some(factor), None) => step(right, var)?.checked_mul(factor),
                (None, Some(factor)) => step(left, var)?.checked_mul(factor),
                _ => None,
            }
        }
        _ => None,
    }
}

/// How many neighbouring elements a load reads while a variable runs from any multiple of that number on: as many as a block
/// has where elements lie in blocks (`x[.., v / 16, .., v % 16]`, or `v / 32 % 4` and the like beside it), and `usize::MAX` where all are neighbours or the same one.
/// `None` for other forms.
pub(crate) fn run_length(load: &Expr, var: VarId) -> Option<usize> {
    if access(load, var) != Access::Strided {
        return Some(usize::MAX);
    }
    let Expr::Load(_, indices) = load else { return None };
    let (last, outer) = indices.split_last()?;
    let Expr::Binary(BinaryOp::Modulo, lane, block) = last else { return None };
    let block = block.as_integer().filter(|_| **lane == Expr::Var(var))?;
    let is_by_block = outer.iter().all(|index| changes_by_block(index, var, block));
    usize::try_from(block).ok().filter(|_| is_by_block)
}

/// Whether an index stays as it is while a variable runs through a block of so many.
fn changes_by_block(index: &Expr, var: VarId, block: i64) -> bool {
    match index {
        Expr::Var(other) => *other != var,
        Expr::Binary(BinaryOp::FloorDivide, dividend, divisor) if **dividend == Expr::Var(var) => {
            divisor.as_integer().is_some_and(|divisor| block > 0 && divisor % block == 0)
        }
        _ => index.operands().into_iter().all(|part| changes_by_block(part, var, block)),
    }
}

/// Whether an index grows by one when a variable does.
fn has_unit_stride(index: &Expr, var: VarId) -> bool {
    match index {
        Expr::Var(other) => *other == var,
        Expr::Binary(BinaryOp::Add, left, right) => {
            (has_unit_stride(left, var) && !right.mentions(var))
                || (has_unit_stride(right, var) && !left.mentions(var))
        }
        Expr::Binary(BinaryOp::Subtract, left, right) => {
            has_unit_stride(left, var) && !right.mentions(var)
        }
        _ => false,
    }
}

/// A sum of products in which one operand is read along the vector axis and the other is not: each
/// is reused along an axis that the other alone has. The names are those of Goto and van de Geijn (2008).
#[derive(Clone, Debug)]
pub(crate) struct Contraction {
    /// Index of the vector axis among the block's axes.
    pub(crate) vector_axis: usize,
    /// Index of the axis along which a vector of the panel is reused: the rows of the result.
    pub(crate) row_axis: Option<usize>,
    /// Index of the axis along which a broadcast element is reused: the columns of the result, or their blocks.
    pub(crate) column_axis: Option<usize>,
    /// How many columns, from a multiple of that on, reuse it: those of a group. `None` where all do.
    pub(crate) column_group: Option<usize>,
    /// The operand read along the vector axis, whose packed panel stays in cache: `B` of `A * B`.
    pub(crate) panel: BufferId,
    /// The operand of which one element at a time is broadcast to all lanes: `A` of `A * B`.
    pub(crate) broadcast: BufferId,
    /// The instruction that sums short runs of products, where the operands are laid out for it; the run is
    /// the last axis.
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
        let vector_axis = vector_axis(block)?;
        let var = block.iterators[vector_axis].var;
        let intrinsic = intrinsic_of(program, block, [left, right]);
        let access = |load: &Expr, var: VarId| match intrinsic {
            Some(_) => access(&without_run(load, block), var),
            None => access(load, var),
        };
        let (broadcast, panel) = match (access(left, var), access(right, var)) {
            (Access::Invariant, Access::Contiguous) => (left, right),
            (Access::Contiguous, Access::Invariant) => (right, left),
            _ => return None,
        };
        let reused = |by: &Expr, not_by: &Expr, groups: bool| {
            let mut spatial = spatial(block).filter(|(axis, _)| *axis != vector_axis);
            let fits = |iterator: &Iterator| {
                iterator.extent > 1
                    && access(by, iterator.var) != Access::Invariant
                    && (access(not_by, iterator.var) == Access::Invariant
                        || groups && group(not_by, iterator).is_some())
            };
            let mut last = None;
            spatial
                .by_ref()
                .filter(|(_, iterator)| fits(iterator))
                .for_each(|(axis, _)| last = Some(axis));
            last
        };
        let column_axis = reused(panel, broadcast, true);
        let column = column_axis.map(|axis| &block.iterators[axis]);
        Some(Self {
            vector_axis,
            row_axis: reused(broadcast, panel, false),
            column_axis,
            column_group: column.and_then(|column| group(broadcast, column)),
            panel: loaded(panel)?,
            broadcast: loaded(broadcast)?,
            intrinsic,
        })
    }
}

/// For how many values of an iterator in a row, from a multiple of that on, a load's address is the same: those that
/// have one quotient by it. `None` where that is no quotient, or does not divide the extent.
fn group(load: &Expr, iterator: &Iterator) -> Option<usize> {
    let Expr::Load(_, indices) = load else { return None };
    let mut found = None;
    let mut is_quotient = true;
    indices.iter().for_each(|index| quotients(index, iterator.var, &mut found, &mut is_quotient));
    let size = found.filter(|_| is_quotient).and_then(|size| usize::try_from(size).ok())?;
    (size > 1 && iterator.extent.is_multiple_of(size)).then_some(size)
}

/// Notes by which constant a variable is divided in an expression, and whether it is in all of its occurrences.
fn quotients(expr: &Expr, var: VarId, divisor: &mut Option<i64>, is_quotient: &mut bool) {
    match expr {
        Expr::Var(other) => *is_quotient &= *other != var,
        Expr::Binary(BinaryOp::FloorDivide, left, right) if **left == Expr::Var(var) => {
            let by = right.as_integer();
            *is_quotient &= by.is_some() && divisor.is_none_or(|divisor| Some(divisor) == by);
            *divisor = by;
        }
        _ => expr
            .operands()
            .into_iter()
            .for_each(|operand| quotients(operand, var, divisor, is_quotient)),
    }
}

/// The instruction for products of these loads, summed over a last axis of exactly its length.
fn intrinsic_of(program: &Program, block: &Block, loads: [&Expr; 2]) -> Option<Intrinsic> {
    let run = block.iterators.last().filter(|iterator| iterator.kind == IteratorKind::Reduction)?;
    let types = loads.map(|load| load.dtype(program));
    let sum = program.buffers[block.buffer].dtype;
    let fits = |intrinsic: &Intrinsic| {
        let reversed = [types[1], types[0]];
        (intrinsic.operands() == types || intrinsic.operands() == reversed)
            && sum == intrinsic.result()
            && run.extent == intrinsic.depth() as usize
    };
    Intrinsic::ALL.into_iter().find(fits)
}

/// A load without its last index, where that is the block's last axis alone.
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
    block
        .iterators
        .iter()
        .enumerate()
        .filter(|(_, iterator)| iterator.kind == IteratorKind::Spatial)
}

/// Index of the spatial axis along which the block stores the buffer's last axis.
pub(crate) fn vector_axis(block: &Block) -> Option<usize> {
    let Expr::Var(var) = block.indices.last()? else { return None };
    let axis = block.iterators.iter().position(|iterator| iterator.var == *var)?;
    (block.iterators[axis].extent > 1).then_some(axis)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_tensor::Builder;
    use hone_types::{DataType, TensorType};

    /// For how many of `extent` values `x` at the indices of one value has the same address.
    fn found(extent: usize, indices: impl Fn(Expr) -> [Expr; 2]) -> Option<usize> {
        let mut builder = Builder::new();
        let x = builder.input("x", &TensorType::new(DataType::F32, [64, 64]));
        let y = builder.map("y", &TensorType::new(DataType::F32, [extent]), |point| {
            Expr::Load(x, indices(point[0].clone()).to_vec())
        });
        builder.output(y);
        let program = builder.finish();
        let block = &program.blocks[program.blocks_in_order()[0]];
        let load = loads(value(block))[0];
        group(load, &block.iterators[0])
    }

    #[test]
    fn groups_are_quotients() {
        let quotient = |value: Expr, by: i64| value.floor_divide(by.into());
        assert_eq!(found(8, |i| [quotient(i, 4), 0.into()]), Some(4));
        assert_eq!(found(8, |i| [quotient(i.clone(), 4) * 3, quotient(i, 4)]), Some(4));
        assert_eq!(found(6, |i| [quotient(i, 4), 0.into()]), None, "a part of a group");
        assert_eq!(found(8, |i| [quotient(i.clone(), 4), i]), None, "another place for each");
        assert_eq!(found(8, |i| [quotient(i.clone(), 4), quotient(i, 2)]), None, "two sizes");
        assert_eq!(found(8, |_| [0.into(), 0.into()]), None, "no groups");
    }
}
