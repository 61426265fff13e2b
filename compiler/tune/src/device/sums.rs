//! Few results of many points each: a block per result, whose lanes reduce parts.
//!
//! ```text
//! for result                        for result                      (block.x)
//!   for k: sum += x[result, k]  ->    for part                      (lane.x)
//!                                       for k: parts[part] += ...   (shared)
//!                                     sync
//!                                     for part: sum += parts[part]  (the first lane)
//! ```
//!
//! Refused where there are many results, or few points.

use super::{flat, fuse_all, over_blocks, over_lanes};
use crate::access::is_reduction;
use crate::templates::unfit;
use hone_machine::WARP_LANES;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Dimension, IteratorKind, Limits, Scope};

/// Parts of a reduction: lanes of a block.
const PARTS: usize = 128;
/// Fewer parts than a warp leave lanes idle.
const LEAST_PARTS: usize = WARP_LANES;
/// Points for each part that make it worth a part of its own.
const POINTS: usize = 4;
/// Results from which on a lane for each keeps a device as busy.
const MOST_RESULTS: usize = 1024;

pub(super) fn apply(schedule: &mut Schedule, limits: &Limits) -> Result<(), ScheduleError> {
    if schedule.program().has_steps() {
        return Err(unfit("sums", "it goes in steps"));
    }
    let mut found = false;
    for block in schedule.program().blocks_in_order() {
        if is_worth_it(schedule, block) {
            reduce(schedule, block, PARTS.min(limits.lanes).min(limits.lanes_along[0]))?;
            found = true;
        }
    }
    match found {
        true => flat::apply(schedule, limits),
        false => Err(unfit("sums", "no reduction has few results of many points")),
    }
}

fn is_worth_it(schedule: &Schedule, id: BlockId) -> bool {
    let block = &schedule.program().blocks[id];
    let extents = |kind| {
        let iterators = block.iterators.iter().filter(move |iterator| iterator.kind == kind);
        iterators.map(|iterator| iterator.extent).product::<usize>()
    };
    let results = extents(IteratorKind::Spatial);
    let spatial = block.iterators.iter().any(|iterator| iterator.kind == IteratorKind::Spatial);
    is_reduction(block)
        && spatial
        && (1..MOST_RESULTS).contains(&results)
        && extents(IteratorKind::Reduction) >= PARTS * POINTS
}

fn reduce(schedule: &mut Schedule, block: BlockId, parts: usize) -> Result<(), ScheduleError> {
    let spatial = |iterator: &hone_tensor::Iterator| iterator.kind == IteratorKind::Spatial;
    let results = schedule.program().blocks[block]
        .iterators
        .iter()
        .filter(|iterator| spatial(iterator))
        .count();
    let loops = schedule.loops(block);
    if loops.len() != schedule.program().blocks[block].iterators.len() {
        return Err(unfit("sums", "its loops are not its own"));
    }
    let (results, points) = loops.split_at(results);
    let results = fuse_all(schedule, results)?;
    let points = fuse_all(schedule, points)?;
    let (Some(results), Some(points)) = (results, points) else {
        return Err(unfit("sums", "it has no loops"));
    };
    let count = schedule.extent(points).unwrap_or(1);
    let part = match (LEAST_PARTS..=parts).rev().find(|parts| count.is_multiple_of(*parts)) {
        // Neighbouring lanes take neighbouring points.
        Some(parts) => {
            let (rounds, part) = schedule.split(points, parts)?;
            schedule.reorder(&[part, rounds])?;
            part
        }
        // Each lane takes a row of points, the last one what is left.
        None => schedule.split(points, count.div_ceil(parts))?.0,
    };
    let partial = schedule.rfactor(block, part)?;
    schedule.set_scope(partial, Scope::Shared)?;
    schedule.bind(results, over_blocks(Dimension::X))?;
    schedule.bind(part, over_lanes(Dimension::X))?;
    schedule.insert_syncs()
}
