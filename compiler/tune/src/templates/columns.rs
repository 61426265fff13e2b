//! Channel-wise reductions, such as a softmax over channels, and other stages that reduce other axes than the
//! innermost one: each is computed for some vectors of neighbouring columns, which stay in the first-level
//! cache.

use super::parallel::spread;
use super::unfit;
use crate::Machine;
use crate::access::{Access, access, is_reduction, loads, value, vector_axis};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Expr, Iterator, IteratorKind, Program, Scope, VarId};

/// Vectors of columns at a time, where what is kept of them stays in cache.
const VECTORS: usize = 4;

/// Computes every stage for the same vectors of columns.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let blocks = schedule.program().blocks_in_order();
    let (output, stages) =
        blocks.split_last().ok_or_else(|| unfit("columns", "the program is empty"))?;
    let program = schedule.program();
    let reduces = stages.iter().any(|stage| is_reduction(&program.blocks[*stage]));
    if !reduces || !blocks.iter().all(|block| is_along_lanes(program, *block)) {
        return Err(unfit("columns", "not stages along one vector axis, some of which reduce"));
    }
    if is_reduction(&program.blocks[*output]) {
        return Err(unfit("columns", "the result is not stored by a map"));
    }
    if blocks.iter().all(|block| is_of_columns(program, *block, stages)) {
        return reduce_columns(schedule, *output, stages, machine, decisions);
    }
    let kept = kept_axes(program, *output, stages);
    let loops = schedule.loops(*output);
    let (Some((vector, others)), Some(true)) = (loops.split_last(), kept.last().copied()) else {
        return Err(unfit("columns", "what is reduced does not depend on the vector axis"));
    };
    if loops.len() != kept.len() {
        return Err(unfit("columns", "the result's loops are not its axes"));
    }
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    for (loop_, kept) in others.iter().zip(&kept) {
        if *kept { outer.push(*loop_) } else { inner.push(*loop_) }
    }
    if inner.is_empty() {
        return Err(unfit("columns", "every result is its own column"));
    }
    let points: usize = inner.iter().map(|loop_| schedule.extent(*loop_).unwrap_or(1)).product();
    let fits = points * VECTORS * machine.lanes * 8 <= machine.l1_bytes;
    let vectors = if fits { VECTORS } else { 1 };
    let (columns, lanes, width) = split_columns(schedule, *vector, vectors, machine, decisions)?;
    outer.push(columns);
    schedule.reorder(&[outer.clone(), inner, vec![lanes]].concat())?;
    compute_stages(schedule, stages, &outer, width)?;
    schedule.vectorize(lanes)?;
    spread(schedule, &outer, decisions)
}

/// Splits the vector axis into some whole vectors, `vectors` where nobody decides otherwise: the loop over them, the one within,
/// and how many columns that is.
fn split_columns(
    schedule: &mut Schedule,
    vector: VarId,
    vectors: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(VarId, VarId, usize), ScheduleError> {
    let extent = schedule.extent(vector).unwrap_or(1);
    let maximum = extent.div_ceil(machine.lanes);
    let width = decisions.factor("vectors", maximum, &[1, 2, 4, 8], vectors) * machine.lanes;
    let width = width.min(extent);
    let (columns, lanes) = schedule.split(vector, width)?;
    Ok((columns, lanes, width))
}

/// Computes stages in the last of the loops around `width` columns, in vectors along them.
fn compute_stages(
    schedule: &mut Schedule,
    stages: &[BlockId],
    outer: &[VarId],
    width: usize,
) -> Result<(), ScheduleError> {
    let columns = *outer.last().ok_or_else(|| unfit("columns", "no loop to compute at"))?;
    for stage in stages.iter().rev() {
        schedule.compute_at(*stage, columns)?;
    }
    for stage in stages {
        keep_in_registers(schedule, *stage, width)?;
        schedule_stage(schedule, *stage, outer.len())?;
    }
    Ok(())
}

/// Keeps in registers what a stage reduces into, where that is one value of each of so many columns: in memory, each
/// addition would wait for the store of the one before.
fn keep_in_registers(
    schedule: &mut Schedule,
    stage: BlockId,
    width: usize,
) -> Result<(), ScheduleError> {
    let program = schedule.program();
    let block = &program.blocks[stage];
    match is_reduction(block) && program.buffers[block.buffer].elements() <= width {
        true => schedule.set_scope(stage, Scope::Register),
        false => Ok(()),
    }
}

/// Several reductions into the same columns, as a maximum and then its index: what they reduce into stays in registers.
fn reduce_columns(
    schedule: &mut Schedule,
    output: BlockId,
    stages: &[BlockId],
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(output);
    let (vector, others) = loops.split_last().ok_or_else(|| unfit("columns", "no loops"))?;
    let (columns, lanes, width) = split_columns(schedule, *vector, VECTORS, machine, decisions)?;
    let outer = [others, &[columns]].concat();
    compute_stages(schedule, stages, &outer, width)?;
    schedule.vectorize(lanes)?;
    spread(schedule, &outer, decisions)
}

/// Whether a block reads of other stages what belongs to its columns alone, so that nothing is computed again for others.
fn is_of_columns(program: &Program, block: BlockId, stages: &[BlockId]) -> bool {
    let definition = &program.blocks[block];
    let spatial = || {
        let of_result = |iterator: &&Iterator| iterator.kind == IteratorKind::Spatial;
        definition.iterators.iter().filter(of_result).filter(|iterator| iterator.extent > 1)
    };
    loads(value(definition)).into_iter().all(|load| match load {
        Expr::Load(buffer, indices) => {
            let is_stage = stages.iter().any(|stage| program.blocks[*stage].buffer == *buffer);
            let is_at = |iterator: &Iterator| indices.contains(&Expr::Var(iterator.var));
            !is_stage || spatial().all(is_at)
        }
        _ => true,
    })
}

/// Whether a block's last axis is one that every operand is read along, or not at all.
fn is_along_lanes(program: &Program, block: BlockId) -> bool {
    let definition = &program.blocks[block];
    let Some(axis) = vector_axis(definition) else { return false };
    let var = definition.iterators[axis].var;
    let mut spatial =
        definition.iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Spatial);
    spatial.next_back().is_some_and(|last| last.var == var)
        && loads(value(definition)).into_iter().all(|load| access(load, var) != Access::Strided)
}

/// For each axis of the result, whether what was reduced depends on it.
fn kept_axes(program: &Program, output: BlockId, stages: &[BlockId]) -> Vec<bool> {
    let storing = &program.blocks[output];
    let elements = |block: BlockId| program.buffers[program.blocks[block].buffer].elements();
    let mut kept = vec![false; storing.iterators.len()];
    for load in loads(value(storing)) {
        let Expr::Load(buffer, indices) = load else { continue };
        let of_reduction = stages.iter().any(|stage| {
            program.blocks[*stage].buffer == *buffer && elements(*stage) < elements(output)
        });
        if of_reduction {
            for (kept, iterator) in kept.iter_mut().zip(&storing.iterators) {
                *kept |= iterator.extent == 1
                    || indices.iter().any(|index| index.mentions(iterator.var));
            }
        }
    }
    kept
}

/// Vectorizes a stage along its columns; the loops over what it reduces go outside.
fn schedule_stage(
    schedule: &mut Schedule,
    block: BlockId,
    outer: usize,
) -> Result<(), ScheduleError> {
    let innermost = |schedule: &Schedule, block: BlockId| -> Option<VarId> {
        schedule.loops(block).last().copied()
    };
    let mut vectorized = vec![block];
    if is_reduction(&schedule.program().blocks[block]) {
        let iterators = &schedule.program().blocks[block].iterators;
        let spatial =
            iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Spatial).count();
        let loops = schedule.loops(block)[outer..].to_vec();
        let (kept, reduced) = loops.split_at(spatial.min(loops.len()));
        schedule.reorder(&[reduced, kept].concat())?;
        if let Some(first) = reduced.first() {
            vectorized.push(schedule.decompose_reduction(block, *first)?);
        }
    }
    for stage in vectorized {
        if let Some(last) = innermost(schedule, stage) {
            schedule.vectorize(last)?;
        }
    }
    Ok(())
}
