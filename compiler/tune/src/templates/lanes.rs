//! Depthwise convolutions and poolings on channel-packed values, and every other reduction whose operands are
//! all read along the vector axis, or few elements apart: neighbouring results, or vectors of a row, stay in registers.

use super::parallel::spread;
use super::register_sums::unroll_tile;
use super::unfit;
use crate::Machine;
use crate::access::{
    Access, access, distance, is_costly, is_guarded, is_reduction, loads, value, vector_axis,
};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{Block, BlockId, BufferId, Expr, Iterator, IteratorKind, Scope, VarId};

/// Maximum vectors of results at a time: neighbouring results read overlapping windows, so that beside a
/// sum for each of them the values that they read stay in registers, and one weight.
fn max_vectors(machine: &Machine) -> usize {
    (machine.registers.saturating_sub(2) / 2).max(1)
}

/// Maximum points of the reduction that are unrolled.
const UNROLLED: usize = 9;

/// Vectors of a longer row that are reduced at a time: an addition takes four cycles, and two begin in each.
const ROW_VECTORS: usize = 8;

/// As [`ROW_VECTORS`], where a function that is a long chain of instructions is computed of each.
const COSTLY_VECTORS: usize = 4;

/// How many elements apart the lanes of an operand may be: as many vectors hold those of one.
const MAX_DISTANCE: i64 = 4;

/// Tiles the axis before the vector and reduces in registers.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let (reduction, output) = form(schedule)?;
    let loops = schedule.loops(output);
    let (vector, outer) = loops.split_last().ok_or_else(|| unfit("lanes", "no loops"))?;
    let mut outer = outer.to_vec();
    let mut inner = Vec::new();
    let mut vector = *vector;
    let extent = schedule.extent(vector).unwrap_or(1);
    if extent > machine.lanes {
        let size = vectors_of_row(schedule, (reduction, output), extent, machine, decisions);
        let (tiles, within) = schedule.split(vector, size * machine.lanes)?;
        let (parts, lanes) = schedule.split(within, machine.lanes)?;
        outer.push(tiles);
        inner.push(parts);
        vector = lanes;
    } else if let Some(tiled) = outer.pop() {
        let extent = schedule.extent(tiled).unwrap_or(1);
        let maximum = extent.min(max_vectors(machine));
        let size = best_size(extent, max_vectors(machine));
        let sizes: Vec<usize> = (1..=maximum).collect();
        let size = decisions.factor("vectors", maximum, &sizes, size);
        let (tiles, within) = schedule.split(tiled, size)?;
        outer.push(tiles);
        inner.push(within);
    }
    let at = *outer.last().ok_or_else(|| unfit("lanes", "no loop to compute at"))?;
    schedule.compute_at(reduction, at)?;
    schedule.set_scope(reduction, Scope::Register)?;
    let unrolled = decisions.number("unrolled", [1, 3, 5, 9, 25], UNROLLED);
    reduce_in_registers(schedule, reduction, (outer.len(), unrolled), machine)?;
    for within in &inner {
        schedule.unroll(*within)?;
    }
    schedule.vectorize(vector)?;
    spread(schedule, &outer, decisions)
}

/// How many vectors of a row are reduced at a time.
fn vectors_of_row(
    schedule: &Schedule,
    blocks: (BlockId, BlockId),
    extent: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> usize {
    let vectors = extent.div_ceil(machine.lanes);
    let program = schedule.program();
    let costly = [blocks.0, blocks.1].iter().any(|id| is_costly(value(&program.blocks[*id])));
    let together = if costly { COSTLY_VECTORS } else { ROW_VECTORS };
    let maximum = vectors.min(max_vectors(machine));
    let sizes: Vec<usize> = (1..=maximum).collect();
    decisions.factor("vectors", maximum, &sizes, best_size(vectors, together.min(maximum)))
}

/// The reduction and the map that stores its result.
fn form(schedule: &Schedule) -> Result<(BlockId, BlockId), ScheduleError> {
    let program = schedule.program();
    let blocks = program.blocks_in_order();
    let [reduction, output] = blocks[..] else {
        return Err(unfit("lanes", "not one reduction and one map"));
    };
    let (reducing, storing) = (&program.blocks[reduction], &program.blocks[output]);
    if !is_reduction(reducing) || is_reduction(storing) {
        return Err(unfit("lanes", "not one reduction and one map"));
    }
    let axis = vector_axis(reducing).ok_or_else(|| unfit("lanes", "no vector axis"))?;
    let var = reducing.iterators[axis].var;
    let stores = vector_axis(storing) == Some(storing.iterators.len() - 1);
    let same = reads_in_order(value(storing), reducing.buffer, storing);
    if !stores || !same || !is_read_in_vectors(value(reducing), var) {
        return Err(unfit("lanes", "an operand is not read along the vector axis"));
    }
    Ok((reduction, output))
}

/// Whether all operands are neighbours along the vector axis, or so few elements apart that whole vectors are loaded and
/// shuffled. Behind a condition such a vector is loaded lane by lane.
fn is_read_in_vectors(summand: &Expr, var: VarId) -> bool {
    let guarded = is_guarded(summand);
    loads(summand).into_iter().all(|load| match access(load, var) {
        Access::Invariant | Access::Contiguous => true,
        Access::Strided => {
            let apart = distance(load, var);
            !guarded && apart.is_some_and(|apart| (1..=MAX_DISTANCE).contains(&apart))
        }
    })
}

/// Whether a map reads a buffer only at the index that it stores, axes of extent 1 aside.
fn reads_in_order(value: &Expr, buffer: BufferId, block: &Block) -> bool {
    let long: Vec<_> = block.iterators.iter().filter(|iterator| iterator.extent > 1).collect();
    let is_unit = |index: &Expr| {
        let unit = |iterator: &Iterator| iterator.extent == 1 && *index == Expr::Var(iterator.var);
        *index == Expr::Integer(0) || block.iterators.iter().any(unit)
    };
    loads(value).into_iter().all(|load| match load {
        Expr::Load(read, indices) if *read == buffer => {
            let indices = indices.iter().filter(|index| !is_unit(index));
            indices.cloned().eq(long.iter().map(|iterator| Expr::Var(iterator.var)))
        }
        _ => true,
    })
}

/// The tile size that covers an extent with the fewest elements left over, larger ones first.
fn best_size(extent: usize, maximum: usize) -> usize {
    let maximum = extent.min(maximum);
    let waste = |size: usize| extent.div_ceil(size) * size - extent;
    (maximum.div_ceil(2)..=maximum).rev().min_by_key(|size| waste(*size)).unwrap_or(1)
}

/// Puts the reduction's loops outside its tile, with the initial value in front; unrolls the innermost ones
/// while their points are few.
fn reduce_in_registers(
    schedule: &mut Schedule,
    reduction: BlockId,
    (outer, max_points): (usize, usize),
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(reduction)[outer..].to_vec();
    let iterators = schedule.program().blocks[reduction].iterators.clone();
    let spatial =
        iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Spatial).count();
    let (tile, reduced) = loops.split_at(spatial);
    schedule.reorder(&[reduced, tile].concat())?;
    let initial = match reduced.first() {
        Some(first) => Some(schedule.decompose_reduction(reduction, *first)?),
        None => None,
    };
    let mut points = 1;
    for loop_ in reduced.iter().rev() {
        points *= schedule.extent(*loop_).unwrap_or(usize::MAX);
        if points > max_points {
            break;
        }
        schedule.unroll(*loop_)?;
    }
    for block in initial.into_iter().chain([reduction]) {
        let loops = schedule.loops(block);
        let tile = &loops[loops.len() - spatial..];
        unroll_tile(schedule, tile, None, machine)?;
    }
    Ok(())
}
