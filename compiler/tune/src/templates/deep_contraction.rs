//! Sums of many products: added up part by part of the summed axis, so that the panel of a part stays in a near cache
//! while all rows of tiles read it (Goto and van de Geijn, 2008).
//!
//! A task computes a tile of columns of the result:
//!
//! ```text
//! for columns in tiles, parallel
//!   for every result of the columns: sum = 0
//!   for part of the summed axis
//!     for rows in tiles
//!       partial = 0, in registers
//!       for point in part: partial += panel[point, column] * rows[row, point]
//!       sum += partial
//!   for every result of the columns: the point-wise rest of the kernel
//! ```
//!
//! Measured on Granite Rapids, one thread: 153 rows and 1,024 columns, sums of 12,544 products, 43 ms in one part and
//! 20 ms in parts of 784; 128 rows and 768 columns, sums of 3,072 products, 3.7 and 3.3 ms. Without fetching the next
//! part's panel ahead they take 23 and 4.2 ms.

use super::contraction::{Columns, Form, spread_all};
use super::register_sums::{Points, spatial_axes, sum_block_in_registers, unroll_tile};
use super::unfit;
use crate::Machine;
use crate::decisions::Decisions;
use crate::tile::{Extents, Tile, choose_tile, decide_tile};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, IteratorKind, Scope, VarId};

/// Least products of a part: adding it to the sum takes as long as a few of them.
const LEAST_PRODUCTS: usize = 128;

/// Tasks from which rows are not cut.
const TASKS: usize = 16;

/// Least results of a column that a panel is read for where it is read anew: of a task where rows are cut, and of a part
/// whose panel would stay in the second-level cache.
const LEAST_RESULTS: usize = 128;

/// Cuts the sum into parts, the output into tiles of columns, and reduces parts in registers.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let form = &Form::of(schedule)?;
    let (extents, unit) = form.extents(schedule, machine);
    let (points, part) = decide_part(schedule, form, (extents, unit), machine, decisions)?;
    let tile = decide_tile(part, unit, machine, decisions);
    let results = results_of_a_column(schedule, form);
    let partial = sum_in_parts(schedule, form, points)?;
    let groups = group_results(schedule, form, (tile, results), machine)?;
    let innermost = groups.last().ok_or_else(|| refusal("no loop over columns"))?;
    schedule.compute_at(form.sum, *innermost)?;
    let (outer, parts) = tile_sum(schedule, form, (tile, groups.len()), machine)?;
    let around = outer.last().ok_or_else(|| refusal("no loop to compute at"))?;
    schedule.compute_at(partial, *around)?;
    schedule.set_scope(partial, Scope::Register)?;
    let tiled = (partial, groups.len() + outer.len(), Points::ByTile);
    sum_block_in_registers(schedule, form, tiled, machine, decisions)?;
    // The initial values are set by loops of the same kinds.
    schedule.decompose_reduction(form.sum, parts)?;
    spread_all(schedule, &groups)?;
    let panel = form.contraction.panel;
    if schedule.program().writers(panel).is_empty() && decisions.choose("fetch panel", 2, 1) == 1 {
        schedule.prefetch(partial, panel, parts)?;
    }
    Ok(())
}

fn refusal(reason: &str) -> ScheduleError {
    unfit("deep_contraction", reason)
}

/// Iterations of the outermost summed axis in a part, and what is tiled there: by default the longest part whose panel
/// stays near.
fn decide_part(
    schedule: &Schedule,
    form: &Form,
    (extents, unit): (Extents, usize),
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(usize, Extents), ScheduleError> {
    let iterations = outermost_iterations(schedule, form, machine)?;
    if !is_worth_it(schedule, form, (extents, unit), machine) {
        return Err(refusal("panels of whole sums stay in cache or are read once"));
    }
    let inner = extents.depth / iterations;
    let part = |count: usize| Extents { depth: count * inner, ..extents };
    let stays = |count: &usize| {
        let part = part(*count);
        choose_tile(part, unit, machine).panel_bytes(part.depth, machine)
            <= machine.panel_limit().min(machine.l2_bytes / 8)
    };
    let divides =
        |count: &usize| iterations.is_multiple_of(*count) && count * inner >= LEAST_PRODUCTS;
    let parts: Vec<usize> = (1..iterations).filter(divides).collect();
    let longest = parts.iter().copied().rev().find(stays);
    let longest =
        longest.ok_or_else(|| refusal("no part of the sum has a panel that stays near"))?;
    let chosen = decisions.number("points of a part", parts, longest);
    Ok((chosen, part(chosen)))
}

/// Whether the panel of the tile that suits the whole sum fills so much of the second-level cache that it may be read
/// several times from behind it, or is read from it so often that panels of parts, which stay nearer, are worth it. On
/// Granite Rapids products with panels of a quarter of that cache took 0.6 ms whole and 0.75 ms in parts with 49 rows, and
/// 3.7 and 3.3 ms with 128 rows.
fn is_worth_it(
    schedule: &Schedule,
    form: &Form,
    (extents, unit): (Extents, usize),
    machine: &Machine,
) -> bool {
    let tile = choose_tile(extents, unit, machine);
    let (panel, limit) = (tile.panel_bytes(extents.depth, machine), machine.panel_limit());
    let results = results_of_a_column(schedule, form);
    // The next panel and the rows of tiles need room, too. Zen 5 reads panels of 80 % without delay.
    let is_far = panel > machine.l2_bytes / 4 * 3;
    results > tile.mr && (is_far || (panel > 2 * limit && results >= LEAST_RESULTS))
}

/// Iterations of the outermost summed axis, where the sum can be cut along it: the panel is the same for all results
/// of a column, and all extents are known.
fn outermost_iterations(
    schedule: &Schedule,
    form: &Form,
    machine: &Machine,
) -> Result<usize, ScheduleError> {
    let program = schedule.program();
    let block = &program.blocks[form.sum];
    let contraction = &form.contraction;
    let width = block.iterators[contraction.vector_axis].extent;
    if contraction.intrinsic.is_some() || contraction.column_group.is_some() {
        return Err(refusal("an instruction sums several products, or columns are in groups"));
    }
    if form.block_axis.is_some() && width > 2 * machine.lanes {
        return Err(refusal("a block of columns is wider than a tile"));
    }
    if schedule.loops(form.sum).iter().any(|loop_| schedule.extent(*loop_).is_none()) {
        return Err(refusal("an extent is not known"));
    }
    let moves_panel = |axis: usize| {
        let iterator = &block.iterators[axis];
        let mut reads = block.loads(contraction.panel).into_iter().flatten();
        iterator.extent > 1 && reads.any(|index| index.mentions(iterator.var))
    };
    if axes_of_rows(schedule, form).any(moves_panel) {
        return Err(refusal("rows of results have panels of their own"));
    }
    let mut reduced = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Reduction);
    let first = reduced.next().map_or(1, |axis| axis.extent);
    if first > 1 { Ok(first) } else { Err(refusal("the outermost summed axis has one point")) }
}

/// The sum's axes of results that are none of columns.
fn axes_of_rows(schedule: &Schedule, form: &Form) -> impl Iterator<Item = usize> {
    let (vector, column) = (form.contraction.vector_axis, form.contraction.column_axis);
    let spatial = 0..spatial_axes(schedule, form.sum);
    spatial.filter(move |axis| *axis != vector && Some(*axis) != column)
}

/// Results that share a column of the panel.
fn results_of_a_column(schedule: &Schedule, form: &Form) -> usize {
    let iterators = &schedule.program().blocks[form.sum].iterators;
    axes_of_rows(schedule, form).map(|axis| iterators[axis].extent).product()
}

/// Splits the outermost summed axis, and the sum into partial sums.
fn sum_in_parts(
    schedule: &mut Schedule,
    form: &Form,
    points: usize,
) -> Result<BlockId, ScheduleError> {
    let loops = schedule.loops(form.sum);
    let spatial = spatial_axes(schedule, form.sum);
    let Some((outermost, rest)) = loops[spatial..].split_first() else {
        return Err(refusal("nothing is summed"));
    };
    let (parts, within) = schedule.split(*outermost, points)?;
    schedule.reorder(&[&[parts], &loops[..spatial], &[within], rest].concat())?;
    schedule.rfactor(form.sum, parts)
}

/// Cuts the output into tiles of columns, and rows into parts where there are few of them, and makes the rest of its
/// loops vectors. The loops over these, which are the outermost then.
fn group_results(
    schedule: &mut Schedule,
    form: &Form,
    (tile, results): (Tile, usize),
    machine: &Machine,
) -> Result<Vec<VarId>, ScheduleError> {
    let loops = schedule.loops(form.output);
    let (columns, last) = (tile.nr * machine.lanes, loops.len() - 1);
    let (axis, size) = match (form.columns, form.block_axis) {
        (Columns::Joined { axis, .. }, _) => (axis, columns),
        (Columns::Same, Some(axis)) => {
            (axis, (columns / schedule.extent(loops[last]).unwrap_or(1)).max(1))
        }
        (Columns::Same, None) => (last, columns),
    };
    let (tiles, within) = schedule.split(loops[axis], size)?;
    let mut inside = loops;
    inside[axis] = within;
    let mut groups = vec![tiles];
    let found = schedule.extent(tiles).unwrap_or(1);
    let parts = TASKS.div_ceil(found.max(1)).min(results / LEAST_RESULTS);
    let cut = (0..last).find(|other| {
        *other != axis && schedule.extent(inside[*other]).is_some_and(|extent| extent > 1)
    });
    if let Some(cut) = cut.filter(|_| parts > 1) {
        let extent = schedule.extent(inside[cut]).unwrap_or(1);
        let unit = if Some(cut) == form.row_axis { tile.mr } else { 1 };
        let size = extent.div_ceil(parts).next_multiple_of(unit);
        let (several, rest) = schedule.split(inside[cut], size)?;
        inside[cut] = rest;
        groups.push(several);
    }
    schedule.reorder(&[&groups[..], &inside[..]].concat())?;
    if let Columns::Joined { width, .. } = form.columns {
        schedule.split(inside[last], width)?;
    }
    let loops = schedule.loops(form.output);
    unroll_tile(schedule, &loops[loops.len() - 1..], None, machine)?;
    Ok(groups)
}

/// Tiles the sum of the partial sums, which is behind `groups` loops: the loops around a tile, the first of which is over
/// the parts, and that one.
fn tile_sum(
    schedule: &mut Schedule,
    form: &Form,
    (tile, groups): (Tile, usize),
    machine: &Machine,
) -> Result<(Vec<VarId>, VarId), ScheduleError> {
    let loops = schedule.loops(form.sum)[groups..].to_vec();
    let (parts, axes) = loops.split_last().ok_or_else(|| refusal("no loops"))?;
    let contraction = &form.contraction;
    let (mut others, mut rows, mut within) = (vec![*parts], vec![], vec![]);
    for (axis, loop_) in axes.iter().enumerate() {
        if axis == contraction.vector_axis {
            continue;
        } else if Some(axis) == contraction.row_axis {
            let (tiles, inside) = schedule.split(*loop_, tile.mr)?;
            rows.push(tiles);
            within.insert(0, inside);
        } else if Some(axis) == contraction.column_axis {
            within.push(*loop_);
        } else {
            others.push(*loop_);
        }
    }
    within.push(axes[contraction.vector_axis]);
    let outer = [others, rows].concat();
    schedule.reorder(&[&outer[..], &within].concat())?;
    unroll_tile(schedule, &within, None, machine)?;
    Ok((outer, *parts))
}
