//! Sums of products in registers: the order of the loops over their points, and what of them is unrolled.

use super::contraction::Form;
use super::unfit;
use crate::Machine;
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Intrinsic, Iterator, IteratorKind, VarId};

/// Points of a sum that an iteration takes where nothing else was measured to be better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Points {
    /// One, so that the loop over them can end with a size.
    One,
    /// What the tile is too small for alone.
    ByTile,
}

/// Orders the sum's loops with the summed axes outside its tile, sets the initial value in front, and unrolls
/// the tile, which is behind the first `outer` loops.
pub(super) fn sum_in_registers(
    schedule: &mut Schedule,
    form: &Form,
    (outer, points): (usize, Points),
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    sum_block_in_registers(schedule, form, (form.sum, outer, points), machine, decisions)
}

/// As [`sum_in_registers`], of the form's sum or of the block that computes its parts.
pub(super) fn sum_block_in_registers(
    schedule: &mut Schedule,
    form: &Form,
    (sum, outer, points): (BlockId, usize, Points),
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let mut loops = schedule.loops(sum)[outer..].to_vec();
    let iterators = schedule.program().blocks[sum].iterators.clone();
    let spatial = spatial_axes(schedule, form.sum);
    // A part has one more: which part it is. What is left of the summed axis that was cut comes last then, and was first.
    let several = spatial_axes(schedule, sum) - spatial;
    let parts: Vec<VarId> = loops.drain(spatial..spatial + several).collect();
    loops[spatial..].rotate_right(several);
    let (tile, reduced) = loops.split_at(spatial);
    let run = usize::from(form.contraction.intrinsic.is_some());
    let (reduced, run) = reduced.split_at(reduced.len().saturating_sub(run));
    let default = match points {
        Points::One => 1,
        Points::ByTile => unrolled_points(schedule, tile, reduced, machine),
    };
    let axes = reduced.len();
    let reduced = &order_points(schedule, reduced, default, decisions)?[..];
    schedule.reorder(&[&parts, reduced, &rows_first(form, &iterators, tile), run].concat())?;
    let Some(first) = reduced.first().or(run.first()) else {
        return Err(unfit("contraction", "nothing is summed"));
    };
    let initial = schedule.decompose_reduction(sum, *first)?;
    if reduced.len() > axes {
        schedule.unroll(reduced[reduced.len() - 1])?;
    }
    let loops = schedule.loops(initial);
    unroll_tile(schedule, &loops[loops.len() - spatial..], None, machine)?;
    let loops = schedule.loops(sum);
    let inner = loops.len() - run.len();
    unroll_tile(schedule, &loops[inner - spatial..inner], form.contraction.intrinsic, machine)
}

/// How many axes of a block are those of its results.
pub(super) fn spatial_axes(schedule: &Schedule, block: BlockId) -> usize {
    let iterators = schedule.program().blocks[block].iterators.iter();
    iterators.filter(|iterator| iterator.kind == IteratorKind::Spatial).count()
}

/// Multiply-adds of an iteration from which its own counter and branch take no time that is seen.
const MANY_PRODUCTS: usize = 24;

/// Most points of a sum over windows that an iteration takes by default.
const WINDOW_POINTS: usize = 4;

/// How many points of a sum an iteration takes by default. Two where a tile is small: beside 12 multiply-adds, 4
/// broadcasts and 3 loads of vectors the counter, the next address and the branch are one instruction in seven. Measured
/// for 784 x 256 by 256 x 256 on Zen 3 with AVX2, a virtual machine that executed 3 to 3.5 instructions a cycle at most:
/// medians of four runs of 1.83 ms with one point and 1.35 ms with two, least times of 1.33 and 1.30.
///
/// Of a sum over windows as many channels as divide them, up to four: their loops are short. Measured on Granite Rapids, of
/// the time with one, the same tile: 16 to 16 channels, 5 x 5, 0.93; 64 to 64 in 4 groups, 3 x 3, 0.89; 384 to 384, 3 x 1,
/// 0.94; 256 to 96, 1 x 5, 0.97.
fn unrolled_points(
    schedule: &Schedule,
    tile: &[VarId],
    reduced: &[VarId],
    machine: &Machine,
) -> usize {
    let extent = |loop_: &VarId| schedule.extent(*loop_).unwrap_or(1);
    let Some((vector, others)) = tile.split_last() else { return 1 };
    let products =
        others.iter().map(extent).product::<usize>() * extent(vector).div_ceil(machine.lanes);
    let is_window = reduced.iter().filter(|loop_| extent(loop_) > 1).count() > 2;
    match is_window {
        true => {
            let channels = reduced.last().map_or(1, extent);
            (1..=WINDOW_POINTS).rev().find(|count| channels.is_multiple_of(*count)).unwrap_or(1)
        }
        false if products < MANY_PRODUCTS => 2,
        false => 1,
    }
}

/// The loops over the points of a sum, outermost first: any of them may come innermost, and be split into
/// steps of several unrolled points, where these divide it.
fn order_points(
    schedule: &mut Schedule,
    reduced: &[VarId],
    default: usize,
    decisions: &mut Decisions<'_>,
) -> Result<Vec<VarId>, ScheduleError> {
    let mut order = reduced.to_vec();
    let innermost = decisions.choose("innermost sum", order.len().max(1), order.len().max(1) - 1);
    if innermost < order.len() {
        let moved = order.remove(innermost);
        order.push(moved);
    }
    let Some(last) = order.last().copied() else { return Ok(order) };
    let extent = schedule.extent(last).unwrap_or(1);
    let divides = [1, 2, 3, 4, 5, 7, 8].into_iter().filter(|count| extent.is_multiple_of(*count));
    let default = if extent.is_multiple_of(default) { default } else { 1 };
    let points = decisions.number("unrolled points", divides, default);
    if points > 1 {
        order.pop();
        let (steps, within) = schedule.split(last, points)?;
        order.extend([steps, within]);
    }
    Ok(order)
}

/// A tile's loops with the rows outermost: registers hold one broadcast element at a time, beside `nr` vectors
/// of the panel, and not those of all rows.
fn rows_first(form: &Form, iterators: &[Iterator], tile: &[VarId]) -> Vec<VarId> {
    let is_rows = |axis: usize| {
        form.row_axis.is_some()
            && form.contraction.row_axis == Some(axis)
            && iterators[axis].extent > 1
    };
    let (mut rows, others): (Vec<_>, Vec<_>) =
        tile.iter().enumerate().partition(|(axis, _)| is_rows(*axis));
    rows.extend(others);
    rows.into_iter().map(|(_, loop_)| *loop_).collect()
}

/// Unrolls a tile's loops and makes the last one a vector, or the lanes of an instruction.
pub(super) fn unroll_tile(
    schedule: &mut Schedule,
    tile: &[VarId],
    intrinsic: Option<Intrinsic>,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let (vector, others) = tile.split_last().ok_or_else(|| unfit("contraction", "no loops"))?;
    let mut vector = *vector;
    if schedule.extent(vector).unwrap_or(usize::MAX) > machine.lanes {
        let (parts, lanes) = schedule.split(vector, machine.lanes)?;
        schedule.unroll(parts)?;
        vector = lanes;
    }
    for loop_ in others {
        schedule.unroll(*loop_)?;
    }
    match intrinsic {
        Some(intrinsic) => schedule.tensorize(vector, intrinsic),
        None => schedule.vectorize(vector),
    }
}
