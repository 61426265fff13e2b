//! A sum of products in tiles: of a block in shared memory, of a lane in registers.
//!
//! ```text
//! for batch, i, j                  for batch, i tile, j tile        (block.z, block.y, block.x)
//!   for k                            for i part, j part             (lane.y, lane.x)
//!     sum += a[i, k] * b[k, j]  ->     for k tile
//! for batch, i, j                        a tile, b tile -> shared   (by all lanes)
//!   y = f(sum)                           for k, i, j: sum += ...    (registers)
//!                                      for i, j: y = f(sum)
//! ```
//!
//! Refused where an axis is no multiple of a tile, or the result is read by more than one map.

use super::{fuse_all, only_reader, over_blocks, over_lanes};
use crate::access::{Contraction, is_reduction};
use crate::templates::unfit;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, BufferId, Dimension, IteratorKind, Limits, Scope, VarId};

/// Elements of a lane along both axes: 16 products from 8 loads of shared memory.
const OF_LANE: usize = 4;
/// Tiles of a block that are tried, largest first.
const SIDES: [usize; 3] = [64, 32, 16];
/// Depths of a tile in shared memory that are tried.
const DEPTHS: [usize; 2] = [16, 8];

struct Form {
    sum: BlockId,
    store: BlockId,
    /// Place of the rows among the iterators.
    rows: usize,
    operands: [BufferId; 2],
    /// A block's tile along rows and columns, and its depth.
    tile: [usize; 3],
}

impl Form {
    fn of(schedule: &Schedule, limits: &Limits) -> Option<Self> {
        let program = schedule.program();
        let [sum, store] = program.blocks_in_order()[..] else { return None };
        let (block, form) = (&program.blocks[sum], Contraction::of(program, sum)?);
        let extents = |kind| block.iterators.iter().filter(move |iterator| iterator.kind == kind);
        let spatial: Vec<usize> =
            extents(IteratorKind::Spatial).map(|iterator| iterator.extent).collect();
        let reduced: Vec<usize> =
            extents(IteratorKind::Reduction).map(|iterator| iterator.extent).collect();
        let (rows, &[depth]) = (form.row_axis?, &reduced[..]) else { return None };
        let fits = is_reduction(block)
            && form.vector_axis + 1 == spatial.len()
            && rows != form.vector_axis
            && form.panel != form.broadcast
            && only_reader(schedule, sum) == Some(store);
        let whole = |extent: usize, parts: &[usize]| {
            parts.iter().copied().find(|part| extent.is_multiple_of(*part))
        };
        let mut tile = [
            whole(spatial[rows], &SIDES)?,
            whole(spatial[form.vector_axis], &SIDES)?,
            whole(depth, &DEPTHS)?,
        ];
        while tile[0] * tile[1] / (OF_LANE * OF_LANE) > limits.lanes {
            tile[usize::from(tile[1] > tile[0])] /= 2;
        }
        let operands = [form.broadcast, form.panel];
        fits.then_some(Self { sum, store, rows, operands, tile })
    }
}

pub(super) fn apply(schedule: &mut Schedule, limits: &Limits) -> Result<(), ScheduleError> {
    let form = Form::of(schedule, limits)
        .ok_or_else(|| unfit("matmul", "it is no sum of products in whole tiles"))?;
    let lanes = bind_tiles(schedule, &form)?;
    schedule.compute_at(form.sum, lanes)?;
    schedule.set_scope(form.sum, Scope::Register)?;
    let outside =
        schedule.loops(form.sum).iter().position(|loop_| *loop_ == lanes).unwrap_or(0) + 1;
    let loops = schedule.loops(form.sum)[outside..].to_vec();
    let Some((depth, spatial)) = loops.split_last() else {
        return Err(unfit("matmul", "nothing is summed"));
    };
    let (rounds, depth) = schedule.split(*depth, form.tile[2])?;
    schedule.reorder(&[&[rounds, depth], spatial].concat())?;
    let initial = schedule.decompose_reduction(form.sum, rounds)?;
    for operand in form.operands {
        fetch(schedule, &form, operand, rounds)?;
    }
    for block in [initial, form.sum, form.store] {
        let inside = schedule.loops(block).into_iter().rev().take(spatial.len());
        for loop_ in inside.collect::<Vec<_>>() {
            let around_lanes =
                schedule.program().loop_of(loop_).is_none_or(|loop_| loop_.axis().is_some());
            if !around_lanes {
                schedule.unroll(loop_)?;
            }
        }
    }
    schedule.insert_syncs()
}

/// Divides the result among blocks and lanes; the innermost loop over lanes.
fn bind_tiles(schedule: &mut Schedule, form: &Form) -> Result<VarId, ScheduleError> {
    let mut loops = schedule.loops(form.store);
    let Some(columns) = loops.pop() else { return Err(unfit("matmul", "it has no columns")) };
    let rows = loops.remove(form.rows);
    let (row_tiles, inside) = schedule.split(rows, form.tile[0])?;
    let (row_parts, row) = schedule.split(inside, OF_LANE)?;
    let (column_tiles, inside) = schedule.split(columns, form.tile[1])?;
    let (column_parts, column) = schedule.split(inside, OF_LANE)?;
    let tiles = [row_tiles, column_tiles, row_parts, column_parts, row, column];
    schedule.reorder(&[&loops[..], &tiles].concat())?;
    if let Some(batch) = fuse_all(schedule, &loops)? {
        schedule.bind(batch, over_blocks(Dimension::Z))?;
    }
    schedule.bind(row_tiles, over_blocks(Dimension::Y))?;
    schedule.bind(column_tiles, over_blocks(Dimension::X))?;
    schedule.bind(row_parts, over_lanes(Dimension::Y))?;
    schedule.bind(column_parts, over_lanes(Dimension::X))?;
    Ok(column_parts)
}

/// Lets the lanes of a block bring a tile of an operand into shared memory in every round.
fn fetch(
    schedule: &mut Schedule,
    form: &Form,
    operand: BufferId,
    rounds: VarId,
) -> Result<(), ScheduleError> {
    let copy = schedule.cache_read(form.sum, operand, Scope::Shared)?;
    schedule.compute_at(copy, rounds)?;
    let loops = schedule.loops(copy);
    let outside = loops.iter().position(|loop_| *loop_ == rounds).unwrap_or(0) + 1;
    let Some(all) = fuse_all(schedule, &loops[outside..])? else { return Ok(()) };
    let (rest, across) = schedule.split(all, form.tile[1] / OF_LANE)?;
    let (_, down) = schedule.split(rest, form.tile[0] / OF_LANE)?;
    schedule.bind(down, over_lanes(Dimension::Y))?;
    schedule.bind(across, over_lanes(Dimension::X))
}
