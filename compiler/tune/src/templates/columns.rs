//! Several stages that reduce other axes than the innermost one, such as a softmax over channels:
//! each is computed for some vectors of neighbouring places, which stay in the first-level cache.

use super::outer::spread;
use super::unfit;
use crate::Machine;
use crate::access::{Use, is_reduction, loads, usage, value, vector_axis};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Expr, IteratorKind, Program, VarId};

/// Vectors of places at a time, where what is kept of them stays in cache.
const VECTORS: usize = 4;

/// Computes every stage for the same vectors of places.
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
    let kept = kept_axes(program, *output, stages);
    let loops = schedule.loops(*output);
    let (Some((vector, others)), Some(true)) = (loops.split_last(), kept.last().copied()) else {
        return Err(unfit("columns", "what is reduced does not depend on the vector axis"));
    };
    if loops.len() != kept.len() || is_reduction(&schedule.program().blocks[*output]) {
        return Err(unfit("columns", "the result's loops are not its axes"));
    }
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    for (own, kept) in others.iter().zip(&kept) {
        if *kept { outer.push(*own) } else { inner.push(*own) }
    }
    if inner.is_empty() {
        return Err(unfit("columns", "every result is its own column"));
    }
    let points: usize = inner.iter().map(|own| schedule.extent(*own).unwrap_or(1)).product();
    let fits = points * VECTORS * machine.lanes * 8 <= machine.l1_bytes;
    let extent = schedule.extent(*vector).unwrap_or(1);
    let most = extent.div_ceil(machine.lanes);
    let vectors = if fits { VECTORS } else { 1 };
    let width = decisions.factor("vectors", most, &[1, 2, 4, 8], vectors) * machine.lanes;
    let (places, lanes) = schedule.split(*vector, width.min(extent))?;
    outer.push(places);
    schedule.reorder(&[outer.clone(), inner, vec![lanes]].concat())?;
    for stage in stages.iter().rev() {
        schedule.compute_at(*stage, places)?;
    }
    for stage in stages {
        write_stage(schedule, *stage, outer.len())?;
    }
    schedule.vectorize(lanes)?;
    spread(schedule, &outer, decisions)
}

/// Whether a block's last axis is one that every operand is read along, or not at all.
fn is_along_lanes(program: &Program, block: BlockId) -> bool {
    let own = &program.blocks[block];
    let Some(place) = vector_axis(own) else { return false };
    let var = own.iterators[place].var;
    let mut spatial = own.iterators.iter().filter(|own| own.kind == IteratorKind::Spatial);
    spatial.next_back().is_some_and(|last| last.var == var)
        && loads(value(own)).into_iter().all(|load| usage(load, var) != Use::Strided)
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
            for (kept, own) in kept.iter_mut().zip(&storing.iterators) {
                *kept |= own.extent == 1 || indices.iter().any(|index| index.mentions(own.var));
            }
        }
    }
    kept
}

/// Vectorizes a stage along its places; what it reduces goes outside.
fn write_stage(schedule: &mut Schedule, block: BlockId, outer: usize) -> Result<(), ScheduleError> {
    let innermost = |schedule: &Schedule, block: BlockId| -> Option<VarId> {
        schedule.loops(block).last().copied()
    };
    let mut written = vec![block];
    if is_reduction(&schedule.program().blocks[block]) {
        let iterators = &schedule.program().blocks[block].iterators;
        let spatial = iterators.iter().filter(|own| own.kind == IteratorKind::Spatial).count();
        let loops = schedule.loops(block)[outer..].to_vec();
        let (places, reduced) = loops.split_at(spatial.min(loops.len()));
        schedule.reorder(&[reduced, places].concat())?;
        if let Some(first) = reduced.first() {
            written.push(schedule.decompose_reduction(block, *first)?);
        }
    }
    for own in written {
        if let Some(last) = innermost(schedule, own) {
            schedule.vectorize(last)?;
        }
    }
    Ok(())
}
