//! Attention: a product, a softmax along its rows and a product with that, for some queries at a time.
//! What is computed of them lies in the thread's scratch memory, which stays in its caches.
//!
//! The plain program is one nest after another, over `batch.., keys, queries` (scores, weights) or
//! `batch.., queries, width` (the result). The nest that this template makes:
//!
//! ```text
//! parallel batch.., query_tile:
//!     queries   size, [query]                               scaled, and transposed
//!     scores    key_tile, query_part: size, key, [query]    in registers, changed, stored
//!     maximum   key, [query]                                in registers
//!     exp       key, [query]
//!     sum       key, [query]                                in registers
//!     finish    [query]
//!     values    width_part, row_tile: key, row, [width]     in registers, divided, stored
//! ```
//!
//! Axes in brackets are vectors. Queries are the vectors of the scores: nothing is summed across a vector,
//! keys are read one number at a time and values in vectors, whatever the order of their axes.

use super::contraction::{Columns, Form};
use super::key_parts::{self, Parts, Softmax};
use super::parallel::spread;
use super::register_sums::{Points, sum_block_in_registers, sum_in_registers};
use super::{unfit, vector_width};
use crate::Machine;
use crate::access::{Contraction, is_costly, is_reduction, value};
use crate::decisions::Decisions;
use crate::tile::{Extents, decide_tile};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, IteratorKind, Scope, VarId};

/// Maximum vectors of queries at a time.
const MAX_VECTORS: usize = 4;

/// Computes everything at a tile of queries.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let stages = Stages::of(schedule)?;
    // The forms are read before anything moves: indices then count from a tile's first query.
    let scores = Form::of_pair(schedule, stages.scores, stages.changed)?;
    let row_bytes = scores.row_bytes(schedule);
    let values = Form::of_pair(schedule, stages.values, stages.output)?;
    let result = tile_queries(schedule, &stages, &values, machine, decisions)?;
    let at = *result.outer.last().ok_or_else(|| unfit("attention", "no loop over queries"))?;
    let before = [stages.changed, stages.scores, stages.queries];
    for stage in [&[stages.values], &stages.rows[..], &before].concat() {
        schedule.compute_at(stage, at)?;
    }
    let depth = result.outer.len();
    let parts = cut_keys(schedule, &stages, &result, machine, decisions)?;
    match parts {
        Some(parts) => {
            let copy = schedule.cache_write(parts.values, Scope::Register)?;
            let [.., queries, width] = schedule.loops(copy)[..] else {
                return Err(unfit("attention", "the result has one axis"));
            };
            let reader = (copy, queries, width);
            schedule_values(schedule, &values, (parts.values, reader), machine, decisions)?;
            key_parts::fetch(schedule, values.contraction.panel, parts, decisions)?;
            for reduction in [parts.sum, parts.maximum] {
                key_parts::reduce_in_registers(schedule, reduction, depth + 1, machine)?;
            }
            key_parts::add_up(schedule, stages.values, (depth, result.width), machine)?;
        }
        None => {
            let reader = (stages.output, result.queries, result.width);
            schedule_values(schedule, &values, (stages.values, reader), machine, decisions)?;
        }
    }
    for stage in &stages.rows {
        let depth = depth + usize::from(parts.is_some() && *stage == stages.powers);
        schedule_stage(schedule, *stage, depth, machine, decisions)?;
    }
    let around = depth + usize::from(parts.is_some());
    schedule_scores(schedule, &stages, (&scores, row_bytes), around, machine, decisions)?;
    transpose_queries(schedule, stages.queries, depth)?;
    spread(schedule, &result.outer, decisions)
}

/// The blocks by what they are.
struct Stages {
    /// The transposed queries.
    queries: BlockId,
    /// The sum of products that gives scores.
    scores: BlockId,
    /// The scores as the softmax reads them.
    changed: BlockId,
    /// The softmax's stages, the last first.
    rows: Vec<BlockId>,
    /// That of them which the values are multiplied by.
    powers: BlockId,
    /// The sum of products with the values.
    values: BlockId,
    /// The result.
    output: BlockId,
}

impl Stages {
    /// Reads the stages off the program; inlines conversions in front and maps behind into their readers.
    fn of(schedule: &mut Schedule) -> Result<Self, ScheduleError> {
        let program = schedule.program();
        let blocks = program.blocks_in_order();
        let is_product = |block: &BlockId| Contraction::of(program, *block).is_some();
        let product_from = |from: usize| {
            let found = blocks[from..].iter().position(is_product).map(|index| index + from);
            found.ok_or_else(|| unfit("attention", "not two sums of products"))
        };
        let first = product_from(0)?;
        let second = product_from(first + 1)?;
        if first == 0 || second < first + 3 || second + 1 == blocks.len() {
            return Err(unfit("attention", "no softmax between two sums of products"));
        }
        let rows: Vec<BlockId> = blocks[first + 2..second].iter().rev().copied().collect();
        let weights = Contraction::of(program, blocks[second]).map(|form| form.broadcast);
        let powers = rows.iter().find(|stage| Some(program.blocks[**stage].buffer) == weights);
        let no_softmax = || unfit("attention", "the values are multiplied by no stage");
        let stages = Self {
            queries: blocks[first - 1],
            scores: blocks[first],
            changed: blocks[first + 1],
            powers: *powers.ok_or_else(no_softmax)?,
            rows,
            values: blocks[second],
            output: blocks[blocks.len() - 1],
        };
        let (before, behind) = (&blocks[..first - 1], &blocks[second + 1..blocks.len() - 1]);
        stages.check(schedule, blocks[second + 1])?;
        for block in before.iter().chain(behind) {
            schedule.compute_inline(*block)?;
        }
        Ok(stages)
    }

    /// `divided` is the map that reads the product with the values.
    fn check(&self, schedule: &Schedule, divided: BlockId) -> Result<(), ScheduleError> {
        let program = schedule.program();
        let block = |id: BlockId| &program.blocks[id];
        let form = |id: BlockId| Contraction::of(program, id);
        let (Some(scores), Some(values)) = (form(self.scores), form(self.values)) else {
            return Err(unfit("attention", "not two sums of products"));
        };
        let reads = |id: BlockId, of: BlockId| block(id).reads(block(of).buffer);
        let maps = [self.queries, self.changed, self.output];
        let softmax = is_costly(value(block(self.powers)))
            && !is_reduction(block(self.powers))
            && reads(self.powers, self.changed);
        let fits = block(self.queries).buffer == scores.panel
            && maps.iter().all(|stage| !is_reduction(block(*stage)))
            && schedule.consumers(self.scores) == [self.changed]
            && reads(self.changed, self.scores)
            && reads(divided, self.values)
            && self.rows.iter().any(|stage| is_reduction(block(*stage)))
            && softmax
            && scores.row_axis.is_some()
            && values.row_axis.is_some();
        if !fits {
            return Err(unfit("attention", "the stages between the products are not a softmax"));
        }
        Ok(())
    }
}

/// The loops of the result.
struct ResultLoops {
    /// Around a tile of queries.
    outer: Vec<VarId>,
    /// Over the queries of a tile.
    queries: VarId,
    /// Along a row.
    width: VarId,
    /// Queries in a tile.
    size: usize,
}

/// Cuts the result into tiles of queries, the innermost of the outer loops.
fn tile_queries(
    schedule: &mut Schedule,
    stages: &Stages,
    form: &Form,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<ResultLoops, ScheduleError> {
    let (Some(row), Columns::Same) = (form.row_axis, form.columns) else {
        return Err(unfit("attention", "the result does not iterate over the queries"));
    };
    let mut outer = schedule.loops(stages.output);
    let (Some(width), query) = (outer.pop(), outer.remove(row)) else {
        return Err(unfit("attention", "the result has one axis"));
    };
    let queries = schedule.extent(query).unwrap_or(1);
    let size = query_tile(queries, reduced(schedule, stages.values), machine, decisions);
    let (tiles, queries) = schedule.split(query, size)?;
    outer.push(tiles);
    schedule.reorder(&[&outer[..], &[queries, width]].concat())?;
    Ok(ResultLoops { outer, queries, width, size })
}

/// Queries at a time. Whole vectors, in tiles of one size: as many, up to [`MAX_VECTORS`], as keep the scores in
/// half of the second-level cache, which holds them twice, before and after the exponential. Queries that do not
/// fill their last vector are one tile: a shorter last one would have loops of extents that are not constant.
fn query_tile(
    queries: usize,
    keys: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> usize {
    if !queries.is_multiple_of(machine.lanes) {
        return queries;
    }
    let row = 2 * keys * machine.lanes * size_of::<f32>();
    let maximum = (machine.l2_bytes / 2 / row.max(1)).clamp(1, MAX_VECTORS);
    let vectors = queries / machine.lanes;
    let even = (1..=maximum).rev().find(|count| vectors.is_multiple_of(*count));
    let divisors = [1, 2, 3, 4, 6, 8].into_iter().filter(|count| vectors.is_multiple_of(*count));
    decisions.number("query vectors", divisors, even.unwrap_or(1)) * machine.lanes
}

/// Points that a block sums.
fn reduced(schedule: &Schedule, block: BlockId) -> usize {
    let iterators = schedule.program().blocks[block].iterators.iter();
    let reduced = iterators.filter(|iterator| iterator.kind == IteratorKind::Reduction);
    reduced.map(|iterator| iterator.extent).product()
}

/// Cuts the keys into parts where their exponentials would not stay in the first-level cache.
fn cut_keys(
    schedule: &mut Schedule,
    stages: &Stages,
    result: &ResultLoops,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<Option<Parts>, ScheduleError> {
    let blocks = [stages.changed, stages.powers, stages.values];
    let Some(softmax) = Softmax::of(schedule, &stages.rows, blocks) else { return Ok(None) };
    let keys = reduced(schedule, stages.values);
    let sizes = [result.size, schedule.extent(result.width).unwrap_or(1)];
    let count = key_parts::decide(keys, sizes, machine, decisions);
    count.map(|count| key_parts::cut(schedule, softmax, (result.outer.len(), count))).transpose()
}

/// A product with the values, in registers, and the block that reads it, with its loops over queries and columns.
fn schedule_values(
    schedule: &mut Schedule,
    form: &Form,
    (values, (reader, queries, width)): (BlockId, (BlockId, VarId, VarId)),
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let extent = |loop_: VarId| schedule.extent(loop_).unwrap_or(1);
    let (rows, vectors) = (extent(queries), extent(width).div_ceil(machine.lanes));
    let depth = reduced(schedule, values);
    let extents = Extents { rows, vectors, depth, row_bytes: 0, divides: false };
    // The weights of the tile stay in the second-level cache beside the panel of values.
    let weights = depth * rows * size_of::<f32>();
    let rest = Machine { l2_bytes: machine.l2_bytes.saturating_sub(weights), ..*machine };
    let tile = decide_tile(extents, 1, &rest, decisions);
    let (row_tiles, rows) = schedule.split(queries, tile.mr)?;
    let (parts, columns) = schedule.split(width, tile.nr * machine.lanes)?;
    let (vectors, lanes) = schedule.split(columns, machine.lanes)?;
    schedule.reorder(&[parts, row_tiles, rows, vectors, lanes])?;
    schedule.compute_at(values, row_tiles)?;
    schedule.set_scope(values, Scope::Register)?;
    // All loops of the reader but the three of its tile.
    let outer = schedule.loops(reader).len() - 3;
    sum_block_in_registers(schedule, form, (values, outer, Points::One), machine, decisions)?;
    schedule.unroll(rows)?;
    schedule.unroll(vectors)?;
    schedule.vectorize(lanes)
}

/// The scores in register tiles, changed before they are stored.
fn schedule_scores(
    schedule: &mut Schedule,
    stages: &Stages,
    (form, row_bytes): (&Form, usize),
    depth: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(stages.changed)[depth..].to_vec();
    let axis = form.row_axis.filter(|axis| axis + 1 < loops.len());
    let (Some(axis), Some(query)) = (axis, loops.last()) else {
        return Err(unfit("attention", "the scores do not iterate over the keys"));
    };
    let keys = schedule.extent(loops[axis]).unwrap_or(1);
    let queries = schedule.program().buffers[schedule.buffer(stages.changed)].shape.last().copied();
    let tile = decide_tile(
        Extents {
            rows: keys,
            vectors: queries.unwrap_or(1).div_ceil(machine.lanes),
            depth: reduced(schedule, stages.scores),
            row_bytes,
            divides: false,
        },
        1,
        machine,
        decisions,
    );
    let (key_tiles, rows) = schedule.split(loops[axis], tile.mr)?;
    let (parts, columns) = schedule.split(*query, tile.nr * machine.lanes)?;
    let (vectors, lanes) = schedule.split(columns, machine.lanes)?;
    let mut order: Vec<VarId> = loops[..loops.len() - 1].to_vec();
    order.remove(axis);
    order.extend([key_tiles, parts, rows, vectors, lanes]);
    schedule.reorder(&order)?;
    schedule.compute_at(stages.scores, parts)?;
    schedule.set_scope(stages.scores, Scope::Register)?;
    sum_in_registers(schedule, form, (depth + order.len() - 3, Points::One), machine, decisions)?;
    schedule.unroll(rows)?;
    schedule.unroll(vectors)?;
    schedule.vectorize(lanes)
}

/// Elements of a query that are transposed at a time.
const TRANSPOSED: usize = 8;

/// Copies a tile's queries with their axes swapped, number by number: a vector would be gathered, which
/// takes longer than to store its lanes.
fn transpose_queries(
    schedule: &mut Schedule,
    block: BlockId,
    depth: usize,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(block)[depth..].to_vec();
    let [units @ .., size, query] = &loops[..] else {
        return Err(unfit("attention", "the queries have one axis"));
    };
    let (parts, elements) = schedule.split(*size, TRANSPOSED)?;
    schedule.reorder(&[units, &[*query, parts, elements]].concat())?;
    schedule.unroll(elements)
}

/// Vectorizes a stage within a tile along the queries.
fn schedule_stage(
    schedule: &mut Schedule,
    block: BlockId,
    depth: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    if is_reduction(&schedule.program().blocks[block]) {
        return reduce_down(schedule, block, depth, machine);
    }
    let Some(query) = schedule.loops(block).last().copied() else { return Ok(()) };
    let (_, lanes) = schedule.split(query, vector_width(schedule, block, machine, decisions))?;
    schedule.vectorize(lanes)
}

/// Reduces over the keys with the results of all queries in registers.
fn reduce_down(
    schedule: &mut Schedule,
    block: BlockId,
    depth: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(block)[depth..].to_vec();
    let count = schedule.program().blocks[block].iterators.iter();
    let count = count.filter(|iterator| iterator.kind == IteratorKind::Reduction).count();
    let (spatial, reduced) = loops.split_at(loops.len() - count);
    let (Some((query, units)), Some(first)) = (spatial.split_last(), reduced.first()) else {
        return Err(unfit("attention", "a row has no keys"));
    };
    schedule.reorder(&[units, reduced, &[*query]].concat())?;
    let copy = schedule.cache_write(block, Scope::Register)?;
    let initial = schedule.decompose_reduction(block, *first)?;
    for stage in [initial, block, copy] {
        let Some(query) = schedule.loops(stage).last().copied() else { continue };
        let (vectors, lanes) = schedule.split(query, machine.lanes)?;
        schedule.unroll(vectors)?;
        schedule.vectorize(lanes)?;
    }
    Ok(())
}
