//! Winograd's transforms, and other maps in stages over small tiles: each stage is computed for one tile in
//! registers. An axis is *within* a tile where its value, or its remainder by the tile's side, chooses between
//! expressions.

use super::parallel::spread;
use super::unfit;
use crate::Machine;
use crate::access::{is_reduction, loads, value, vector_axis};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BinaryOp, Block, BlockId, Expr, Program, Scope, VarId};

/// Maximum extent of a loop that is unrolled.
const MAX_UNROLLED: usize = 8;

/// Computes all stages of a tile after one another, unrolled.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let (output, stages) = form(schedule, machine)?;
    let loops = schedule.loops(output);
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    let choices = within_tile(schedule.program(), output, &stages);
    let (vector, others) = loops.split_last().ok_or_else(|| unfit("tiles", "no loops"))?;
    for (loop_, choice) in others.iter().zip(choices) {
        match choice {
            None => outer.push(*loop_),
            Some(None) => inner.push(*loop_),
            Some(Some(side)) => {
                let (tiles, within) = schedule.split(*loop_, side)?;
                outer.push(tiles);
                inner.push(within);
            }
        }
    }
    let small =
        |loop_: &VarId| schedule.extent(*loop_).is_some_and(|extent| extent <= MAX_UNROLLED);
    if inner.is_empty() || !inner.iter().all(small) {
        return Err(unfit("tiles", "nothing chooses between expressions, or too much"));
    }
    schedule.reorder(&[outer.clone(), inner.clone(), vec![*vector]].concat())?;
    let at = *outer.last().ok_or_else(|| unfit("tiles", "there is one tile only"))?;
    for stage in stages.iter().rev() {
        schedule.compute_at(*stage, at)?;
        schedule.set_scope(*stage, Scope::Register)?;
        unroll_tile(schedule, *stage, outer.len())?;
    }
    unroll_tile(schedule, output, outer.len())?;
    spread(schedule, &outer[..outer.len() - 1], decisions)
}

/// The output and the stages before it, if all are maps over whole vectors.
fn form(schedule: &Schedule, machine: &Machine) -> Result<(BlockId, Vec<BlockId>), ScheduleError> {
    let program = schedule.program();
    let mut stages = program.blocks_in_order();
    let output = stages.pop().ok_or_else(|| unfit("tiles", "the program is empty"))?;
    let whole = |id: &BlockId| {
        let block = &program.blocks[*id];
        let vector = vector_axis(block).filter(|axis| axis + 1 == block.iterators.len());
        !is_reduction(block)
            && vector.is_some_and(|axis| block.iterators[axis].extent <= machine.lanes)
    };
    if stages.is_empty() || !stages.iter().chain([&output]).all(whole) {
        return Err(unfit("tiles", "not several maps over vectors"));
    }
    Ok((output, stages))
}

/// For each of the output's axes but the last: whether it is within a tile, and of what side where it spans
/// several tiles.
fn within_tile(
    program: &Program,
    output: BlockId,
    stages: &[BlockId],
) -> Vec<Option<Option<usize>>> {
    let block = &program.blocks[output];
    let mut chosen = choosing(value(block));
    for load in loads(value(block)) {
        let Expr::Load(buffer, indices) = load else { continue };
        let stage =
            stages.iter().map(|id| &program.blocks[*id]).find(|stage| stage.buffer == *buffer);
        chosen.extend(stage.into_iter().flat_map(|stage| chosen_by_stage(stage, indices)));
    }
    let iterators = &block.iterators[..block.iterators.len() - 1];
    let found = |var: VarId| chosen.iter().find(|(other, _)| *other == var).map(|(_, side)| *side);
    iterators.iter().map(|iterator| found(iterator.var)).collect()
}

/// What chooses within `stage` when it is read at `indices`.
fn chosen_by_stage(stage: &Block, indices: &[Expr]) -> Vec<(VarId, Option<usize>)> {
    let chosen = choosing(value(stage));
    let bound = stage.iterators.iter().zip(indices);
    let read = bound.filter(|(iterator, _)| chosen.iter().any(|(var, _)| *var == iterator.var));
    read.filter_map(|(_, index)| chooser(index)).collect()
}

/// Variables whose value, or remainder by a side, decides a condition in an expression.
fn choosing(expr: &Expr) -> Vec<(VarId, Option<usize>)> {
    let mut found = Vec::new();
    expr.visit(&mut |part| {
        if let Expr::Select(condition, _, _) = part
            && let Expr::Binary(BinaryOp::Equal, index, position) = &**condition
            && position.as_integer().is_some()
        {
            found.extend(chooser(index));
        }
    });
    found
}

fn chooser(index: &Expr) -> Option<(VarId, Option<usize>)> {
    match index {
        Expr::Var(var) => Some((*var, None)),
        Expr::Binary(BinaryOp::Modulo, dividend, side) => match (&**dividend, side.as_integer()) {
            (Expr::Var(var), Some(side)) => Some((*var, Some(usize::try_from(side).ok()?))),
            _ => None,
        },
        _ => None,
    }
}

/// Unrolls what is inside the outermost `outer` loops, and makes the last loop a vector.
fn unroll_tile(schedule: &mut Schedule, block: BlockId, outer: usize) -> Result<(), ScheduleError> {
    let loops = schedule.loops(block)[outer..].to_vec();
    let (vector, others) = loops.split_last().ok_or_else(|| unfit("tiles", "no loops"))?;
    for loop_ in others {
        schedule.unroll(*loop_)?;
    }
    schedule.vectorize(*vector)
}
