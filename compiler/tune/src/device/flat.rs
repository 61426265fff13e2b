//! Every element by a lane of its own: what programs get that no other template takes.
//!
//! ```text
//! for element                 ->  for group (block.x)
//!   for k: sum                      for item (lane.x)
//!                                     for k: sum
//! ```
//!
//! The spatial loops of a nest become one, divided among blocks; reductions stay in order within a lane, in memory
//! of its own where one map reads the result. A loop that carries values from one iteration to the next is a row of
//! launches where there is something to divide below it, and stays in order within a lane where there is none.

use super::{fuse_all, only_reader, over_blocks, over_lanes};
use crate::access::is_reduction;
use hone_machine::WARP_LANES;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{Axis, Dimension, Level, Limits, LoopKind, Statement, VarId};

/// Lanes of a block: a whole number of warps (32) and wavefronts (64) on every device, and few enough for all
/// to have registers.
const LANES: usize = 128;

/// Loops bound to the grid that may stand one in the other.
const GRIDS: [Dimension; 3] = [Dimension::X, Dimension::Y, Dimension::Z];

pub(super) fn apply(schedule: &mut Schedule, limits: &Limits) -> Result<(), ScheduleError> {
    for reduction in schedule.program().blocks_in_order() {
        let program = schedule.program();
        if !is_reduction(&program.blocks[reduction]) || program.has_steps() {
            continue;
        }
        let Some(reader) = only_reader(schedule, reduction) else { continue };
        let mut together = schedule.clone();
        let root = together.loops(reader).first().copied();
        let Some(root) = root else { continue };
        let Some(lane) = bind_nest(&mut together, root, limits)? else { continue };
        match together.compute_at(reduction, lane) {
            Ok(()) => *schedule = together,
            // It stays a launch of its own.
            Err(ScheduleError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let body = schedule.program().body.clone();
    body.iter().try_for_each(|statement| bind_statement(schedule, statement, limits, 0))
}

/// Binds the loops of a statement that is a launch, or becomes several.
fn bind_statement(
    schedule: &mut Schedule,
    statement: &Statement,
    limits: &Limits,
    grids: usize,
) -> Result<(), ScheduleError> {
    let Statement::Loop(root) = statement else { return Ok(()) };
    if root.axis().is_some() || bind_nest(schedule, root.var, limits)?.is_some() {
        return Ok(());
    }
    let carries = |statement: &Statement| match statement {
        Statement::Loop(loop_) => schedule.program().threads_apart(loop_.var).is_err(),
        _ => true,
    };
    let mut divisible = false;
    root.body.iter().for_each(|inner| inner.visit(&mut |inner| divisible |= !carries(inner)));
    if !divisible || grids == GRIDS.len() {
        return Ok(());
    }
    schedule.bind(root.var, Axis::new(Level::Grid, GRIDS[grids]))?;
    let body = schedule.program().loop_of(root.var).map(|loop_| loop_.body.clone());
    let mut body = body.unwrap_or_default().into_iter();
    body.try_for_each(|statement| bind_statement(schedule, &statement, limits, grids + 1))
}

/// Divides the perfect nest that begins with a loop among blocks and lanes; the loop over lanes, or `None` where
/// there is nothing to divide.
fn bind_nest(
    schedule: &mut Schedule,
    root: VarId,
    limits: &Limits,
) -> Result<Option<VarId>, ScheduleError> {
    let chain = perfect_nest(schedule, root);
    let free = |loop_: &VarId| {
        let extent = schedule.extent(*loop_);
        extent.is_some_and(|extent| extent > 0) && schedule.program().threads_apart(*loop_).is_ok()
    };
    let (mut divided, rest): (Vec<VarId>, Vec<VarId>) = chain.iter().partition(|loop_| free(loop_));
    if divided.is_empty() || chain.iter().any(|loop_| schedule.extent(*loop_) == Some(0)) {
        return Ok(None);
    }
    match schedule.reorder(&[&divided[..], &rest].concat()) {
        Ok(()) => {}
        Err(ScheduleError::Refused { .. }) => {
            let outermost = chain.iter().take_while(|loop_| divided.contains(loop_)).count();
            divided = chain[..outermost].to_vec();
        }
        Err(error) => return Err(error),
    }
    let Some(all) = fuse_all(schedule, &divided)? else { return Ok(None) };
    let count = schedule.extent(all).unwrap_or(1);
    let most = LANES.min(limits.lanes).min(limits.lanes_along[0]).min(count);
    // Without a last block that is not full no lane needs a condition.
    let even = (1..=most).rev().find(|lanes| count.is_multiple_of(*lanes)).unwrap_or(1);
    // Fewer lanes than a warp leave units idle.
    if even >= WARP_LANES.min(count) {
        return divide(schedule, all, even, limits).map(Some);
    }
    let mut uneven = schedule.clone();
    match divide(&mut uneven, all, most, limits) {
        Ok(lane) => {
            *schedule = uneven;
            Ok(Some(lane))
        }
        // What a condition keeps inside cannot always be shown to be.
        Err(ScheduleError::Refused { .. }) => divide(schedule, all, even, limits).map(Some),
        Err(error) => Err(error),
    }
}

/// Divides a loop among blocks of so many lanes; the loop over lanes.
fn divide(
    schedule: &mut Schedule,
    all: VarId,
    lanes: usize,
    limits: &Limits,
) -> Result<VarId, ScheduleError> {
    let (blocks, lane) = schedule.split(all, lanes)?;
    if schedule.extent(blocks).unwrap_or(1) > limits.blocks {
        let (far, near) = schedule.split(blocks, limits.blocks)?;
        schedule.bind(far, over_blocks(Dimension::Y))?;
        schedule.bind(near, over_blocks(Dimension::X))?;
    } else {
        schedule.bind(blocks, over_blocks(Dimension::X))?;
    }
    schedule.bind(lane, over_lanes(Dimension::X))?;
    Ok(lane)
}

/// The loops from `root` on that stand alone in one another.
fn perfect_nest(schedule: &Schedule, root: VarId) -> Vec<VarId> {
    let mut chain = Vec::new();
    let mut next = schedule.program().loop_of(root);
    while let Some(loop_) = next.filter(|loop_| loop_.kind == LoopKind::Serial) {
        chain.push(loop_.var);
        next = match &loop_.body[..] {
            [Statement::Loop(inner)] => Some(&**inner),
            _ => None,
        };
    }
    chain
}
