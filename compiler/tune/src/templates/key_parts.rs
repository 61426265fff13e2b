//! Attention's keys in parts: the exponentials of a part are summed up and multiplied with the values while they lie in
//! the first-level cache. What the parts give is added up at the end; all of them have the maximum of the whole row, so
//! that none needs a factor.
//!
//! ```text
//! part:
//!     exp       key, [query]
//!     sum       key, [query]                            in registers, stored for each part
//!     values    width_part, row_tile: key, row, [width] in registers, stored for each part
//! sum           part, [query]                           in registers
//! finish        [query]
//! result        query: part, [width]                    in registers, divided, stored
//! ```
//!
//! Without parts the exponentials of all keys lie in the second-level cache beside the scores, and every tile of rows
//! reads them from there.

use super::register_sums::unroll_tile;
use super::unfit;
use crate::Machine;
use crate::access::is_reduction;
use crate::decisions::Decisions;
use hone_schedule::{Layout, Schedule, ScheduleError};
use hone_tensor::{BlockId, IteratorKind, Scope, VarId};

/// Least keys of a part: storing and adding up its results takes as long as some of them.
const LEAST_KEYS: usize = 64;

/// Most vectors of a row of the result whose parts are added up at a time.
const MAX_VECTORS: usize = 8;

/// What a softmax is between the exponential and the result.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    /// The exponentials.
    pub(super) powers: BlockId,
    /// Their sum.
    pub(super) sum: BlockId,
    /// Their product with the values.
    pub(super) values: BlockId,
}

impl Softmax {
    /// The stages by what they read; `None` where something else reads the exponentials.
    pub(super) fn of(
        schedule: &Schedule,
        rows: &[BlockId],
        values: BlockId,
        powers: BlockId,
    ) -> Option<Self> {
        let readers = schedule.consumers(powers);
        let sum = *readers.iter().find(|reader| rows.contains(reader))?;
        let both = readers.len() == 2 && readers.contains(&values);
        let is_sum = is_reduction(&schedule.program().blocks[sum]);
        (both && is_sum).then_some(Self { powers, sum, values })
    }
}

/// The blocks of the parts, below the loop over these.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// The loop.
    pub(super) loop_: VarId,
    /// The sum of a part's exponentials.
    pub(super) sum: BlockId,
    /// A part's product with the values.
    pub(super) values: BlockId,
}

/// Keys of a part for a tile of `queries`: by default as many as divide the keys and keep the exponentials in the
/// first-level cache. `None` where the keys stay together.
pub(super) fn decide(
    keys: usize,
    queries: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Option<usize> {
    let column = queries * size_of::<f32>();
    if keys.saturating_mul(column) <= machine.l1_bytes {
        return None;
    }
    let divides = |count: &usize| *count == keys || keys.is_multiple_of(*count);
    let counts: Vec<usize> = (LEAST_KEYS..=keys).filter(divides).collect();
    let stays = |count: &usize| count * column <= machine.l1_bytes;
    let default = counts.iter().copied().rev().find(stays).unwrap_or(keys);
    let count = decisions.number("keys of a part", counts, default);
    (count < keys).then_some(count)
}

/// Cuts the keys into parts of `count`, where all stages are behind the first `depth` loops.
pub(super) fn cut(
    schedule: &mut Schedule,
    softmax: Softmax,
    (depth, count): (usize, usize),
) -> Result<Parts, ScheduleError> {
    let sum = part_of_reduction(schedule, softmax.sum, (depth, count))?;
    let values = part_of_reduction(schedule, softmax.values, (depth, count))?;
    let loops = schedule.loops(softmax.powers)[depth..].to_vec();
    let [units @ .., key, query] = &loops[..] else {
        return Err(unfit("attention", "a row has no keys"));
    };
    let (part, keys) = schedule.split(*key, count)?;
    schedule.reorder(&[&[part], units, &[keys, *query]].concat())?;
    for block in [sum, values] {
        schedule.reverse_compute_at(block, part)?;
        // Which part it is comes first.
        let loops = schedule.loops(block)[depth + 1..].to_vec();
        let reduced = reductions(schedule, block);
        let (spatial, rest) = loops.split_at(loops.len() - reduced);
        let [others @ .., which] = spatial else {
            return Err(unfit("attention", "a part has no axes"));
        };
        schedule.reorder(&[&[*which], others, rest].concat())?;
    }
    Ok(Parts { loop_: part, sum, values })
}

/// How many axes a block sums over.
fn reductions(schedule: &Schedule, block: BlockId) -> usize {
    let iterators = schedule.program().blocks[block].iterators.iter();
    iterators.filter(|iterator| iterator.kind == IteratorKind::Reduction).count()
}

/// Splits a reduction over keys, its innermost loop, into one for each part and one over the parts; the results of the
/// parts lie one after another.
fn part_of_reduction(
    schedule: &mut Schedule,
    block: BlockId,
    (depth, count): (usize, usize),
) -> Result<BlockId, ScheduleError> {
    let loops = schedule.loops(block)[depth..].to_vec();
    let [spatial @ .., key] = &loops[..] else {
        return Err(unfit("attention", "nothing is summed"));
    };
    let (part, keys) = schedule.split(*key, count)?;
    schedule.reorder(&[&[part], spatial, &[keys]].concat())?;
    let partial = schedule.rfactor(block, part)?;
    let buffer = schedule.buffer(partial);
    let axes = schedule.program().buffers[buffer].shape.len();
    let order: Vec<usize> = (axes - 1..axes).chain(0..axes - 1).collect();
    schedule.transform_layout(buffer, &Layout::permutation(&order))?;
    Ok(partial)
}

/// Sums up a part's exponentials with the results of all queries in registers. The loop over the parts is the last of
/// `depth`.
pub(super) fn sum_in_registers(
    schedule: &mut Schedule,
    sum: BlockId,
    depth: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let copy = schedule.cache_write(sum, Scope::Register)?;
    let which = schedule.loops(copy)[depth];
    schedule.compute_at(sum, which)?;
    let loops = schedule.loops(sum)[depth + 1..].to_vec();
    let (spatial, reduced) = loops.split_at(loops.len() - reductions(schedule, sum));
    let (Some(first), [units @ .., query, which]) = (reduced.first(), spatial) else {
        return Err(unfit("attention", "a part has no keys"));
    };
    schedule.reorder(&[units, &[*which], reduced, &[*query]].concat())?;
    let initial = schedule.decompose_reduction(sum, *first)?;
    for block in [initial, sum, copy] {
        let Some(query) = schedule.loops(block).last().copied() else { continue };
        unroll_tile(schedule, &[query], None, machine)?;
    }
    Ok(())
}

/// Adds up the products of the parts in registers, some vectors of a row of the result at a time. The row's loop `width` is
/// behind `depth` loops and the one over queries.
pub(super) fn add_up(
    schedule: &mut Schedule,
    values: BlockId,
    (depth, width): (usize, VarId),
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let (columns, within) = schedule.split(width, MAX_VECTORS * machine.lanes)?;
    schedule.compute_at(values, columns)?;
    schedule.set_scope(values, Scope::Register)?;
    // Behind the loops over queries and columns.
    let loops = schedule.loops(values)[depth + 2..].to_vec();
    let [spatial @ .., part] = &loops[..] else {
        return Err(unfit("attention", "there are no parts"));
    };
    schedule.reorder(&[&[*part], spatial].concat())?;
    let initial = schedule.decompose_reduction(values, *part)?;
    for block in [initial, values] {
        let loops = schedule.loops(block);
        unroll_tile(schedule, &loops[loops.len() - spatial.len()..], None, machine)?;
    }
    unroll_tile(schedule, &[within], None, machine)
}
