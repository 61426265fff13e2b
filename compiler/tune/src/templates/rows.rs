//! Several stages over the same rows, such as softmax and normalisations: each row is finished while
//! it is in cache. Reductions along the row are done in vectors of partial results.

use super::outer::spread;
use super::unfit;
use crate::Machine;
use crate::access::{Use, is_reduction, loads, usage, value};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Expr, IteratorKind, Scope, VarId};

/// Vectors of partial results of one reduction.
const PARTS: usize = 4;

/// Computes every stage at the row loop of the output.
pub(super) fn apply(schedule: &mut Schedule, machine: &Machine) -> Result<(), ScheduleError> {
    let blocks = schedule.program().blocks_in_order();
    let (output, stages) =
        blocks.split_last().ok_or_else(|| unfit("rows", "the program is empty"))?;
    if !stages.iter().any(|stage| is_reduction(&schedule.program().blocks[*stage])) {
        return Err(unfit("rows", "nothing is reduced"));
    }
    let rows = row_loops(schedule, *output, stages)?;
    let at = *rows.last().ok_or_else(|| unfit("rows", "there is one row only"))?;
    for stage in stages.iter().rev() {
        schedule.compute_at(*stage, at)?;
    }
    for block in &blocks {
        write_stage(schedule, *block, rows.len(), machine)?;
    }
    spread(schedule, &rows)
}

/// The output's loops along which each stage's result is another one; they must be the outermost.
fn row_loops(
    schedule: &Schedule,
    output: BlockId,
    stages: &[BlockId],
) -> Result<Vec<VarId>, ScheduleError> {
    let program = schedule.program();
    let reduced: Vec<_> = stages
        .iter()
        .map(|stage| &program.blocks[*stage])
        .filter(|stage| is_reduction(stage))
        .map(|stage| stage.buffer)
        .collect();
    let storing = &program.blocks[output];
    let mut rows = 0;
    for load in loads(value(storing)) {
        let Expr::Load(buffer, indices) = load else { continue };
        if reduced.contains(buffer) {
            let mentioned = (0..storing.iterators.len()).filter(|place| {
                indices.iter().any(|own| own.mentions(storing.iterators[*place].var))
            });
            rows = rows.max(mentioned.max().map_or(0, |last| last + 1));
        }
    }
    let loops = schedule.loops(output);
    if rows == 0 {
        return Err(unfit("rows", "the result does not depend on rows"));
    }
    Ok(loops[..rows].to_vec())
}

/// Vectorizes one stage within the row.
fn write_stage(
    schedule: &mut Schedule,
    block: BlockId,
    outer: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(block)[outer..].to_vec();
    let Some(last) = loops.last() else { return Ok(()) };
    if is_reduction(&schedule.program().blocks[block]) {
        return reduce_in_vectors(schedule, block, *last, machine);
    }
    let own = &schedule.program().blocks[block];
    let var = own.iterators[own.iterators.len() - 1].var;
    let contiguous = own.indices.last() == Some(&Expr::Var(var))
        || own.indices.last().is_some_and(|index| index.mentions(var));
    let extent = schedule.extent(*last).unwrap_or(1);
    if contiguous && extent > 1 {
        let vector =
            if extent > machine.lanes { schedule.split(*last, machine.lanes)?.1 } else { *last };
        schedule.vectorize(vector)?;
    }
    Ok(())
}

/// Splits the summed axis into vectors of partial results in registers, where its length allows.
fn reduce_in_vectors(
    schedule: &mut Schedule,
    block: BlockId,
    last: VarId,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let own = &schedule.program().blocks[block];
    let Some(axis) = own.iterators.last().filter(|own| own.kind == IteratorKind::Reduction) else {
        return Ok(());
    };
    let contiguous =
        loads(value(own)).into_iter().all(|load| usage(load, axis.var) != Use::Strided);
    let extent = schedule.extent(last).unwrap_or(1);
    let width = (1..=PARTS)
        .rev()
        .map(|parts| parts * machine.lanes)
        .find(|width| extent.is_multiple_of(*width) && extent > *width);
    let (true, Some(width)) = (contiguous, width) else { return Ok(()) };
    let (_, lanes) = schedule.split(last, width)?;
    let partial = schedule.rfactor(block, lanes)?;
    schedule.set_scope(partial, Scope::Register)?;
    write_partial(schedule, partial, width, machine)?;
    combine(schedule, block, width, machine)
}

/// Reduces the partial results: vectors into one, then its lanes, all written out.
fn combine(
    schedule: &mut Schedule,
    block: BlockId,
    width: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let innermost = |schedule: &Schedule, block: BlockId| schedule.loops(block).last().copied();
    if width > machine.lanes
        && let Some(last) = innermost(schedule, block)
    {
        let (_, lanes) = schedule.split(last, machine.lanes)?;
        let partial = schedule.rfactor(block, lanes)?;
        schedule.set_scope(partial, Scope::Register)?;
        write_partial(schedule, partial, machine.lanes, machine)?;
        let loops = schedule.loops(partial);
        schedule.unroll(loops[loops.len() - 2])?;
    }
    match innermost(schedule, block) {
        Some(last) => schedule.unroll(last),
        None => Ok(()),
    }
}

/// Orders the loops of partial results with the lanes innermost.
fn write_partial(
    schedule: &mut Schedule,
    partial: BlockId,
    width: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(partial);
    let iterators = &schedule.program().blocks[partial].iterators;
    let reduced = iterators.iter().filter(|own| own.kind == IteratorKind::Reduction).count();
    let nest = &loops[loops.len() - reduced - 1..];
    let (lanes, steps) =
        nest.iter().partition::<Vec<VarId>, _>(|own| schedule.extent(**own) == Some(width));
    let [lanes] = lanes[..] else { return Ok(()) };
    schedule.reorder(&[steps.clone(), vec![lanes]].concat())?;
    let first = *steps.first().ok_or_else(|| unfit("rows", "nothing is summed"))?;
    let initial = schedule.decompose_reduction(partial, first)?;
    for block in [initial, partial] {
        let loops = schedule.loops(block);
        let mut vector = loops[loops.len() - 1];
        if width > machine.lanes {
            let (parts, lanes) = schedule.split(vector, machine.lanes)?;
            schedule.unroll(parts)?;
            vector = lanes;
        }
        schedule.vectorize(vector)?;
    }
    Ok(())
}
