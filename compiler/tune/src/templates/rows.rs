//! Row-wise reductions, such as softmax and normalisations: all stages over a row are computed while it is in
//! cache. Reductions along the row are done in vectors of partial results.

use super::parallel::spread;
use super::{unfit, vector_width};
use crate::Machine;
use crate::access::{is_reduction, loads, run_length, value};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Expr, IteratorKind, Scope, VarId};

/// Maximum vectors of partial results of one reduction.
const MAX_PARTIAL: usize = 4;

/// Terms from which a reduction whose operands are not neighbours is computed in vectors, too, which gather them. One chain of
/// additions takes the latency of an addition for each term, and its error grows with their number; vectors of partial
/// results do neither.
const MANY_TERMS: usize = 256;

/// Computes every stage at the row loop of the output.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let blocks = schedule.program().blocks_in_order();
    let (output, stages) =
        blocks.split_last().ok_or_else(|| unfit("rows", "the program is empty"))?;
    if !stages.iter().any(|stage| is_reduction(&schedule.program().blocks[*stage])) {
        return Err(unfit("rows", "nothing is reduced"));
    }
    if schedule.loops(*output).is_empty() {
        // One result: there is no row to finish while it is in cache.
        return blocks
            .iter()
            .try_for_each(|block| schedule_stage(schedule, *block, 0, machine, decisions));
    }
    let rows = row_loops(schedule, *output, stages)?;
    let at = *rows.last().ok_or_else(|| unfit("rows", "there is one row only"))?;
    for stage in stages.iter().rev() {
        schedule.compute_at(*stage, at)?;
    }
    for block in &blocks {
        schedule_stage(schedule, *block, rows.len(), machine, decisions)?;
    }
    spread(schedule, &rows, decisions)
}

/// The output's loops along which each stage's result is another one; they must be the outermost.
fn row_loops(
    schedule: &Schedule,
    output: BlockId,
    stages: &[BlockId],
) -> Result<Vec<VarId>, ScheduleError> {
    let program = schedule.program();
    let elements = |block: BlockId| program.buffers[program.blocks[block].buffer].elements();
    let of_rows = |stage: &&BlockId| {
        is_reduction(&program.blocks[**stage]) || elements(**stage) < elements(output)
    };
    let reduced: Vec<_> =
        stages.iter().filter(of_rows).map(|stage| program.blocks[*stage].buffer).collect();
    let storing = &program.blocks[output];
    let mut rows = 0;
    for load in loads(value(storing)) {
        let Expr::Load(buffer, indices) = load else { continue };
        if reduced.contains(buffer) {
            let mentioned = (0..storing.iterators.len()).filter(|axis| {
                indices.iter().any(|index| index.mentions(storing.iterators[*axis].var))
            });
            rows = rows.max(mentioned.max().map_or(0, |last| last + 1));
        }
    }
    // An axis that no reduced value depends on lies between those that they do: each of them would be
    // computed again for all of it.
    let repeated = storing.iterators[..rows].iter().any(|iterator| {
        let depends = |load: &&Expr| match load {
            Expr::Load(buffer, indices) => {
                reduced.contains(buffer) && indices.iter().any(|index| index.mentions(iterator.var))
            }
            _ => false,
        };
        iterator.extent > 1 && !loads(value(storing)).iter().any(depends)
    });
    if repeated {
        return Err(unfit("rows", "what is reduced does not depend on an outer axis"));
    }
    let loops = schedule.loops(output);
    if rows == 0 && loops.first().is_some_and(|first| schedule.extent(*first) == Some(1)) {
        rows = 1;
    }
    if rows == 0 {
        return Err(unfit("rows", "the result does not depend on rows"));
    }
    Ok(loops[..rows].to_vec())
}

/// Vectorizes one stage within the row.
fn schedule_stage(
    schedule: &mut Schedule,
    block: BlockId,
    outer: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(block)[outer..].to_vec();
    let Some(last) = loops.last() else { return Ok(()) };
    if is_reduction(&schedule.program().blocks[block]) {
        return reduce_in_vectors(schedule, block, *last, outer > 0, machine, decisions);
    }
    let definition = &schedule.program().blocks[block];
    let var = definition.iterators[definition.iterators.len() - 1].var;
    let contiguous = definition.indices.last() == Some(&Expr::Var(var))
        || definition.indices.last().is_some_and(|index| index.mentions(var));
    let extent = schedule.extent(*last).unwrap_or(1);
    if contiguous && extent > 1 {
        let width = vector_width(schedule, block, machine, decisions);
        let vector = if extent > width { schedule.split(*last, width)?.1 } else { *last };
        schedule.vectorize(vector)?;
    }
    Ok(())
}

/// Splits the reduced axis into vectors of partial results, within a row in registers; the last
/// vectors may be shorter. Few terms that are not neighbours in memory are left in one chain.
pub(super) fn reduce_in_vectors(
    schedule: &mut Schedule,
    block: BlockId,
    last: VarId,
    in_row: bool,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let definition = &schedule.program().blocks[block];
    let Some(axis) =
        definition.iterators.last().filter(|iterator| iterator.kind == IteratorKind::Reduction)
    else {
        return Ok(());
    };
    let runs = loads(value(definition)).into_iter().map(|load| run_length(load, axis.var));
    let run = runs.min().unwrap_or(Some(usize::MAX)).unwrap_or(0);
    let extent = schedule.extent(last).unwrap_or(1);
    let lanes = machine.lanes.max(2);
    // Vectors do not cross blocks in which the elements lie, unless they are gathered.
    let fits_blocks = run != 0 && extent > lanes && run.is_multiple_of(lanes);
    let is_gathered = run != usize::MAX && !fits_blocks;
    let is_in_blocks = run != usize::MAX && !is_gathered;
    if extent < 4 || is_gathered && extent < MANY_TERMS {
        return Ok(());
    }
    let mut last = last;
    let mut width = match is_in_blocks {
        true => lanes * vectors_in_block(run, extent, lanes),
        false => partial_width(extent, machine),
    };
    if extent > lanes && !is_in_blocks {
        let maximum = extent / (2 * lanes);
        width = decisions.factor("partial vectors", maximum, &[1, 2, 4, 8], width / lanes) * lanes;
    }
    loop {
        let (_, lanes) = schedule.split(last, width)?;
        let partial = schedule.rfactor(block, lanes)?;
        if in_row {
            schedule.set_scope(partial, Scope::Register)?;
        }
        schedule_partial(schedule, partial, width, machine)?;
        let Some(next) = schedule.loops(block).last().copied() else { return Ok(()) };
        if width <= 2 {
            return schedule.unroll(next);
        }
        last = next;
        width = if width > machine.lanes { machine.lanes } else { half(width) };
    }
}

/// Vectors of partial results of many terms that lie in blocks: several where they divide a block.
fn vectors_in_block(run: usize, extent: usize, lanes: usize) -> usize {
    let fits = |vectors: &usize| extent >= MANY_TERMS && run.is_multiple_of(vectors * lanes);
    (2..=MAX_PARTIAL).rev().find(fits).unwrap_or(1)
}

/// Partial results of the first round: whole vectors, several where that leaves each enough to do.
fn partial_width(extent: usize, machine: &Machine) -> usize {
    let lanes = machine.lanes.max(2);
    if extent <= lanes {
        return half(extent);
    }
    let maximum = (extent / (2 * lanes)).clamp(1, MAX_PARTIAL);
    let even =
        (maximum.div_ceil(2)..=maximum).rev().find(|parts| extent.is_multiple_of(parts * lanes));
    even.unwrap_or(maximum) * lanes
}

/// The largest power of two below `extent`.
fn half(extent: usize) -> usize {
    extent.next_power_of_two() / 2
}

/// Orders the loops of partial results with the lanes innermost.
fn schedule_partial(
    schedule: &mut Schedule,
    partial: BlockId,
    width: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(partial);
    let iterators = &schedule.program().blocks[partial].iterators;
    let reduced =
        iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Reduction).count();
    let nest = &loops[loops.len() - reduced - 1..];
    // The loop over lanes is bound to the one element axis that rfactor added.
    let bindings = schedule.program().realize_of(partial).map(|realize| realize.bindings.clone());
    let spatial = iterators.iter().rposition(|iterator| iterator.kind == IteratorKind::Spatial);
    let binding = bindings.zip(spatial).and_then(|(bindings, axis)| bindings.get(axis).cloned());
    let is_bound =
        |loop_: &&VarId| binding.as_ref().is_some_and(|binding| binding.mentions(**loop_));
    let (lanes, steps) = nest.iter().partition::<Vec<VarId>, _>(is_bound);
    let [lanes] = lanes[..] else { return Ok(()) };
    schedule.reorder(&[steps.clone(), vec![lanes]].concat())?;
    let first = *steps.first().ok_or_else(|| unfit("rows", "nothing is summed"))?;
    let rounds = schedule.extent(first).unwrap_or(usize::MAX);
    let initial = schedule.decompose_reduction(partial, first)?;
    if width <= machine.lanes && rounds <= MAX_PARTIAL {
        schedule.unroll(first)?;
    }
    for block in [initial, partial] {
        let loops = schedule.loops(block);
        schedule.vectorize(loops[loops.len() - 1])?;
    }
    Ok(())
}
