//! Each block by itself, in the loops around it: for programs that no other template takes, and for those
//! that run in steps, such as recurrences, whose blocks lie in one loop over time.
//!
//! ```text
//! for step                         (in order: a step reads what the one before stored)
//!   map         the state before   ->  vectors along the last axis
//!   for columns, rows              reductions: a tile stays in registers over the whole reduction
//!     for depth: row, column, lane
//!   map         the new state      ->  vectors along the last axis
//! ```
//!
//! A reduction of which no axis of the result is a vector is computed in vectors of partial results. Outer
//! loops are spread over threads where their iterations are independent, as those of steps are once what blocks leave to
//! each other is in memory of the thread (`steps.rs`).

use super::parallel::spread;
use super::register_sums::unroll_tile;
use super::rows::reduce_in_vectors;
use super::steps::{is_in_registers, keep_in_threads, spread_shared};
use super::{unfit, vector_width, waves};
use crate::Machine;
use crate::access::{Access, Contraction, access, is_reduction, loads, value, vector_axis};
use crate::decisions::Decisions;
use crate::tile::{Extents, Tile, choose_tile};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Intrinsic, IteratorKind, Program, Scope, VarId};

/// Schedules each block in the loops around it.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let shared = keep_in_threads(schedule, machine)?;
    let divided = waves::divided(schedule, machine, decisions)?;
    let done = match divided {
        Some((divided, done)) => {
            *schedule = divided;
            done
        }
        None => Vec::new(),
    };
    for block in schedule.program().blocks_in_order() {
        if !is_left(schedule, block, &done) {
            continue;
        }
        let around = loops_around(schedule, block);
        if !is_reduction(&schedule.program().blocks[block]) {
            map(schedule, block, around, machine, decisions)?;
        } else if let Some(form) = Form::of(schedule.program(), block) {
            let around = Around { loops: around, parts: None };
            reduce(schedule, block, form, (around, machine), decisions)?;
        } else {
            reduce_along(schedule, block, around, machine, decisions)?;
        }
    }
    spread_shared(schedule, &shared, decisions)
}

/// Whether a block stands in no nest of those that are `done`.
fn is_left(schedule: &Schedule, block: BlockId, done: &[BlockId]) -> bool {
    let root = schedule.loops(block).first().copied();
    !done.iter().any(|other| schedule.loops(*other).first().copied() == root)
}

/// The number of loops around a block that other blocks share.
fn loops_around(schedule: &Schedule, block: BlockId) -> usize {
    let iterators = schedule.program().blocks[block].iterators.len();
    schedule.loops(block).len().saturating_sub(iterators)
}

/// Vectorizes a map along its last axis, and spreads its outer ones where it is a nest by itself.
fn map(
    schedule: &mut Schedule,
    block: BlockId,
    around: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(block);
    let Some((last, outer)) = loops[around..].split_last() else { return Ok(()) };
    if is_in_registers(schedule.program(), block) {
        return schedule.vectorize(*last);
    }
    let definition = &schedule.program().blocks[block];
    let is_vector = vector_axis(definition) == Some(definition.iterators.len() - 1);
    let mut outer = outer.to_vec();
    if is_vector && schedule.program().independent(*last).is_ok() {
        let width = vector_width(schedule, block, machine, decisions);
        let mut lanes = *last;
        if schedule.extent(*last).unwrap_or(1) > width {
            let (vectors, rest) = schedule.split(*last, width)?;
            outer.push(vectors);
            lanes = rest;
        }
        schedule.vectorize(lanes)?;
    }
    if around == 0 { spread_independent(schedule, &outer, decisions) } else { Ok(()) }
}

/// Spreads the first of `loops` whose iterations are independent over threads.
fn spread_independent(
    schedule: &mut Schedule,
    loops: &[VarId],
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let is_independent = |loop_: &&VarId| schedule.program().threads_apart(**loop_).is_ok();
    let independent: Vec<VarId> = loops.iter().take_while(is_independent).copied().collect();
    spread(schedule, &independent, decisions)
}

/// Where a block stands.
#[derive(Clone, Copy)]
pub(super) struct Around {
    /// The number of loops around it that other blocks share.
    pub(super) loops: usize,
    /// How many parts its columns are divided into, by a loop outside of all others of its own.
    pub(super) parts: Option<usize>,
}

/// A reduction that is computed in vectors along its last axis.
pub(super) struct Form {
    /// Extents of the spatial axes.
    spatial: Vec<usize>,
    /// Points that are reduced into each element, a run that an instruction sums counted once.
    depth: usize,
    /// Index of the axis along which a vector of an operand is reused.
    row_axis: Option<usize>,
    /// Index of the axis of blocks of columns, where columns lie in such.
    column_axis: Option<usize>,
    /// Whether it is a sum of products.
    is_contraction: bool,
    /// The instruction that sums runs of products; a run is the last axis.
    intrinsic: Option<Intrinsic>,
}

impl Form {
    pub(super) fn of(program: &Program, block: BlockId) -> Option<Self> {
        let definition = &program.blocks[block];
        let contraction = Contraction::of(program, block);
        let extents =
            |kind| definition.iterators.iter().filter(move |iterator| iterator.kind == kind);
        let spatial: Vec<usize> =
            extents(IteratorKind::Spatial).map(|iterator| iterator.extent).collect();
        let depth: usize =
            extents(IteratorKind::Reduction).map(|iterator| iterator.extent).product();
        let vector_axis = vector_axis(definition).filter(|axis| axis + 1 == spatial.len())?;
        let lane = definition.iterators[vector_axis].var;
        let intrinsic = contraction.as_ref().and_then(|contraction| contraction.intrinsic);
        // Where an instruction sums runs, a vector of them is what is contiguous.
        let fits = intrinsic.is_some()
            || loads(value(definition))
                .into_iter()
                .all(|load| access(load, lane) != Access::Strided);
        let depth = depth / intrinsic.map_or(1, |intrinsic| intrinsic.depth() as usize);
        let row_axis = contraction.as_ref().and_then(|contraction| contraction.row_axis);
        let column_axis = contraction.as_ref().and_then(|contraction| contraction.column_axis);
        let is_contraction = contraction.is_some();
        fits.then_some(Self { spatial, depth, row_axis, column_axis, is_contraction, intrinsic })
    }

    /// Number of results in all.
    pub(super) fn elements(&self) -> usize {
        self.spatial.iter().product()
    }

    /// Results of each row.
    pub(super) fn columns(&self) -> usize {
        let blocks = self.column_axis.map_or(1, |axis| self.spatial[axis]);
        blocks * self.spatial.last().copied().unwrap_or(1)
    }

    /// The axis that parts of the columns are parts of.
    fn divided_axis(&self) -> usize {
        self.column_axis.unwrap_or(self.spatial.len().saturating_sub(1))
    }

    /// Whether the columns have so many equal parts, of whole blocks.
    pub(super) fn divides_columns(&self, parts: usize) -> bool {
        let extent = self.spatial.get(self.divided_axis());
        extent.is_some_and(|extent| extent.is_multiple_of(parts.max(1)))
    }

    /// The tile where the columns are divided into so many parts.
    fn tile(&self, parts: usize, machine: &Machine) -> Tile {
        let parts = match self.column_axis {
            Some(_) => 1,
            None => parts,
        };
        let vectors =
            self.spatial.last().map_or(1, |extent| (extent / parts).div_ceil(machine.lanes));
        if !self.is_contraction {
            return Tile { mr: 1, nr: vectors.min(machine.registers / 4).max(1) };
        }
        let rows = self.row_axis.map_or(1, |axis| self.spatial[axis]);
        // The lanes of an instruction are whole vectors, and parts have no tiles of another size.
        let divides = self.intrinsic.is_some() || parts > 1;
        choose_tile(Extents { rows, vectors, depth: self.depth, row_bytes: 0, divides }, 1, machine)
    }
}

/// A reduction along the axis on which its operands are contiguous: each result from vectors of partial ones.
fn reduce_along(
    schedule: &mut Schedule,
    block: BlockId,
    around: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let iterators = &schedule.program().blocks[block].iterators;
    let spatial =
        iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Spatial).count();
    if spatial == 0 || iterators.len() != spatial + 1 {
        return Ok(());
    }
    let copy = schedule.cache_write(block, Scope::Register)?;
    let outer = schedule.loops(copy)[around..].to_vec();
    let at = *outer.last().ok_or_else(|| unfit("blocks", "no loop to compute at"))?;
    schedule.compute_at(block, at)?;
    if let Some(last) = schedule.loops(block).last().copied() {
        reduce_in_vectors(schedule, block, last, true, machine, decisions)?;
    }
    if around == 0 { spread_independent(schedule, &outer, decisions) } else { Ok(()) }
}

/// Points of a reduction that are unrolled.
const UNROLLED: usize = 16;

/// Points of a reduction that an iteration takes where a part's tile is small: then its loads are further ahead of what waits
/// for them, as those of the larger tile are that a product has without parts.
fn points_of_part(tile: Tile, form: &Form) -> Option<usize> {
    let is_small = tile.mr * tile.nr <= UNROLLED;
    (is_small && form.depth.is_multiple_of(POINTS_OF_PART)).then_some(POINTS_OF_PART)
}

/// See [`points_of_part`].
const POINTS_OF_PART: usize = 4;

/// A reduction in register tiles.
pub(super) fn reduce(
    schedule: &mut Schedule,
    block: BlockId,
    form: Form,
    (Around { loops: around, parts }, machine): (Around, &Machine),
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let (tile, spatial) = (form.tile(parts.unwrap_or(1), machine), &form.spatial);
    let copy = schedule.cache_write(block, Scope::Register)?;
    let mut loops = schedule.loops(copy)[around..].to_vec();
    let mut outer = Vec::new();
    if let (Some(parts), Some(divided)) = (parts, loops.get_mut(form.divided_axis())) {
        let extent = schedule.extent(*divided).unwrap_or(parts);
        let (part, rest) = schedule.split(*divided, extent / parts)?;
        outer.push(part);
        *divided = rest;
    }
    let Some((columns, others)) = loops.split_last() else { return Ok(()) };
    let (column_tiles, columns) = schedule.split(*columns, tile.nr * machine.lanes)?;
    outer.push(column_tiles);
    let (mut row_tiles, mut inner) = (vec![], vec![]);
    for (axis, loop_) in others.iter().enumerate() {
        if form.row_axis == Some(axis) {
            let (tiles, rows) = schedule.split(*loop_, tile.mr)?;
            row_tiles.push(tiles);
            inner.push(rows);
        } else {
            outer.push(*loop_);
        }
    }
    // All rows read a panel of columns before the next one comes.
    outer.extend(row_tiles);
    schedule.reorder(&[&outer[..], &inner, &[columns]].concat())?;
    let at = *outer.last().ok_or_else(|| unfit("blocks", "no loop to compute at"))?;
    schedule.compute_at(block, at)?;
    let depth = around + outer.len();
    let loops = schedule.loops(block)[depth..].to_vec();
    let (tile_loops, sums) = loops.split_at(spatial.len());
    let run = usize::from(form.intrinsic.is_some());
    let (sums, run) = sums.split_at(sums.len().saturating_sub(run));
    schedule.reorder(&[sums, tile_loops, run].concat())?;
    let first = *sums.first().ok_or_else(|| unfit("blocks", "nothing is summed"))?;
    let initial = schedule.decompose_reduction(block, first)?;
    if let ([only], true) = (sums, form.depth <= UNROLLED) {
        schedule.unroll(*only)?;
    } else if let ([only], Some(_)) = (sums, parts)
        && let Some(points) = points_of_part(tile, &form)
    {
        let within = schedule.split(*only, points)?.1;
        schedule.unroll(within)?;
    }
    for (stage, intrinsic, run) in [(initial, None, 0), (block, form.intrinsic, run.len())] {
        let loops = schedule.loops(stage);
        let inner = loops.len() - run;
        unroll_tile(schedule, &loops[inner - spatial.len()..inner], intrinsic, machine)?;
    }
    let loops = schedule.loops(copy)[depth..].to_vec();
    unroll_tile(schedule, &loops, None, machine)?;
    if around == 0 { spread_independent(schedule, &outer, decisions) } else { Ok(()) }
}
