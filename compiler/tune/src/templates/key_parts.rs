//! Attention's keys in parts: the maximum of a part's scores is taken, and later its exponentials are summed up and
//! multiplied with the values, while they lie in the first-level cache. What the parts give is added up at the end; all of
//! them have the maximum of the whole row, so that none needs a factor.
//!
//! ```text
//! part:
//!     scores    key_tile, query_part: size, key, [query] in registers, changed, stored
//!     maximum   key, [query]                            in registers, stored for each part
//! maximum       part, [query]                           in registers
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
use crate::decisions::{Decisions, KEYS_OF_A_PART};
use hone_schedule::{Layout, Schedule, ScheduleError};
use hone_tensor::{BlockId, BufferId, IteratorKind, Scope, VarId};

/// Least keys of a part: storing and adding up its results takes as long as some of them.
const LEAST_KEYS: usize = 64;

/// Most vectors of a row of the result whose parts are added up at a time.
const MAX_VECTORS: usize = 8;

/// What a softmax is between the scores and the result.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    /// The scores.
    pub(super) changed: BlockId,
    /// Their maximum.
    pub(super) maximum: BlockId,
    /// The exponentials.
    pub(super) powers: BlockId,
    /// Their sum.
    pub(super) sum: BlockId,
    /// Their product with the values.
    pub(super) values: BlockId,
}

impl Softmax {
    /// The stages `rows` by what they read; `None` where something else reads the scores or the exponentials.
    pub(super) fn of(
        schedule: &Schedule,
        rows: &[BlockId],
        [changed, powers, values]: [BlockId; 3],
    ) -> Option<Self> {
        // The reduction that reads a block, whose only other reader is known.
        let reduction = |block: BlockId, other: BlockId| {
            let readers = schedule.consumers(block);
            let found = *readers.iter().find(|reader| **reader != other)?;
            let expected = readers.len() == 2 && readers.contains(&other) && rows.contains(&found);
            (expected && is_reduction(&schedule.program().blocks[found])).then_some(found)
        };
        let (maximum, sum) = (reduction(changed, powers)?, reduction(powers, values)?);
        Some(Self { changed, maximum, powers, sum, values })
    }
}

/// The blocks of the parts, below the loop over these.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// The loop over the parts of exponentials.
    pub(super) loop_: VarId,
    /// The sum of a part's exponentials.
    pub(super) sum: BlockId,
    /// A part's product with the values.
    pub(super) values: BlockId,
    /// The maximum of a part's scores.
    pub(super) maximum: BlockId,
}

/// Keys of a part for a tile of `queries` and rows of `width` values: by default as many as divide the keys and keep both
/// the exponentials and the values of a part in the first-level cache. `None` where the keys stay together, as they do where
/// the exponentials of all of them fit.
///
/// Measured on Emerald Rapids, 64 queries at a time, width 64, in ms: of 2,048 keys 62.2 in parts of 64, 63.0 of 128, 66.2 of
/// 256, 66.2 whole; of 256 keys 1.53 in parts of 64 and 1.62 whole; of 128 keys 0.49 in parts of 64 and 0.48 whole.
pub(super) fn decide(
    keys: usize,
    [queries, width]: [usize; 2],
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Option<usize> {
    let fits = |count: usize, columns: usize| {
        count.saturating_mul(columns * size_of::<f32>()) <= machine.l1_bytes
    };
    if fits(keys, queries) {
        return None;
    }
    let stays = |count: &usize| fits(*count, queries + width);
    let counts: Vec<usize> =
        (LEAST_KEYS..=keys).filter(|count| keys.is_multiple_of(*count)).collect();
    let default = counts.iter().copied().rev().find(stays).unwrap_or(keys);
    let count = decisions.number(KEYS_OF_A_PART, counts, default);
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
    let loop_ = divide_keys(schedule, softmax.powers, &[sum, values], (depth, count))?;
    let maximum = part_of_reduction(schedule, softmax.maximum, (depth, count))?;
    divide_keys(schedule, softmax.changed, &[maximum], (depth, count))?;
    Ok(Parts { loop_, sum, values, maximum })
}

/// Cuts the keys of a block of keys and queries into parts of `count`, and moves blocks of such parts, which read it, below
/// the loop over these, which is returned.
fn divide_keys(
    schedule: &mut Schedule,
    producer: BlockId,
    readers: &[BlockId],
    (depth, count): (usize, usize),
) -> Result<VarId, ScheduleError> {
    let loops = schedule.loops(producer)[depth..].to_vec();
    let [units @ .., key, query] = &loops[..] else {
        return Err(unfit("attention", "a row has no keys"));
    };
    let (part, keys) = schedule.split(*key, count)?;
    schedule.reorder(&[&[part], units, &[keys, *query]].concat())?;
    for block in readers.iter().copied() {
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
    Ok(part)
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

/// Prefetches the values of the next part, where they are an input of the kernel.
pub(super) fn fetch(
    schedule: &mut Schedule,
    values: BufferId,
    parts: Parts,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let is_input = schedule.program().writers(values).is_empty();
    if is_input && decisions.choose("fetch values", 2, 1) == 1 {
        schedule.prefetch(parts.values, values, parts.loop_)?;
    }
    Ok(())
}

/// Reduces a part with the results of all queries in registers. The loop over the parts is the last of `depth`.
pub(super) fn reduce_in_registers(
    schedule: &mut Schedule,
    reduction: BlockId,
    depth: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let copy = schedule.cache_write(reduction, Scope::Register)?;
    let which = schedule.loops(copy)[depth];
    schedule.compute_at(reduction, which)?;
    let loops = schedule.loops(reduction)[depth + 1..].to_vec();
    let (spatial, reduced) = loops.split_at(loops.len() - reductions(schedule, reduction));
    let (Some(first), [units @ .., query, which]) = (reduced.first(), spatial) else {
        return Err(unfit("attention", "a part has no keys"));
    };
    schedule.reorder(&[units, &[*which], reduced, &[*query]].concat())?;
    let initial = schedule.decompose_reduction(reduction, *first)?;
    for block in [initial, reduction, copy] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::Preferred;

    fn part(keys: usize, sizes: [usize; 2], cpu: &str) -> Option<usize> {
        let machine = Machine::with_vectors(64, 32).of_processor(cpu);
        decide(keys, sizes, &machine, &mut Decisions::new(&mut Preferred))
    }

    #[test]
    fn a_part_fits_the_first_cache_and_divides_the_keys() {
        assert_eq!(part(2048, [64, 64], "sapphirerapids"), Some(64));
        assert_eq!(part(1500, [64, 64], "sapphirerapids"), Some(75));
        assert_eq!(part(2048, [16, 64], "sapphirerapids"), Some(128));
    }

    #[test]
    fn keys_stay_together_where_they_fit_or_have_no_parts() {
        assert_eq!(part(128, [64, 64], "sapphirerapids"), None);
        // A prime, as of images in patches with a token of their class: 14 x 14 + 1.
        assert_eq!(part(197, [197, 64], "sapphirerapids"), None);
        assert_eq!(part(0, [64, 64], "sapphirerapids"), None);
    }
}
