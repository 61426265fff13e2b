//! Sums of products: matrix products and convolutions. A tile of results stays in registers over the
//! whole sum; the point-wise rest of the kernel is computed on the tile before it is stored.
//!
//! Decided are `mr` and `nr` of the register tile, the order of the loops over rows and columns of tiles and
//! in blocks of how many rows of tiles, the order of the summed axes and how many of their points are
//! unrolled, what is prefetched, and the number of tasks.
//!
//! The output map iterates over the results either axis by axis as the sum does, or with the sum's last two
//! axes joined into one (`column = block * width + lane`).

use super::register_sums::{Points, sum_in_registers};
use super::unfit;
use crate::Machine;
use crate::access::{Contraction, is_reduction, loads, value, vector_axis};
use crate::decisions::Decisions;
use crate::grain::{FEW_TASKS, part, tasks};
use crate::tile::{Extents, Tile, decide_tile};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{
    BinaryOp, Block, BlockId, BufferId, Domain, Expr, Intrinsic, IteratorKind, Scope, VarId,
};

/// The loops of the output map, cut into tiles.
struct Tiles {
    /// Loops over tiles, outermost first; the last is over rows.
    outer: Vec<VarId>,
    /// Loops within a tile, which are unrolled.
    unrolled: Vec<VarId>,
    /// The vector.
    vector: VarId,
}

/// Tiles the output, computes the sum at the tile, and reduces in registers.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let form = Form::of(schedule)?;
    let tile = form.decide_tile(schedule, machine, decisions);
    let tiles = match form.columns {
        Columns::Same => tile_same(schedule, &form, tile, machine, decisions)?,
        Columns::Joined { axis, width } => {
            tile_joined(schedule, &form, tile, (axis, width), machine, decisions)?
        }
    };
    let order: Vec<VarId> =
        tiles.outer.iter().chain(&tiles.unrolled).chain([&tiles.vector]).copied().collect();
    schedule.reorder(&order)?;
    let at = *tiles.outer.last().ok_or_else(|| unfit("contraction", "no loop to compute at"))?;
    schedule.compute_at(form.sum, at)?;
    schedule.set_scope(form.sum, Scope::Register)?;
    sum_in_registers(schedule, &form, (tiles.outer.len(), Points::ByTile), machine, decisions)?;
    for loop_ in &tiles.unrolled {
        schedule.unroll(*loop_)?;
    }
    schedule.vectorize(tiles.vector)?;
    spread_tiles(schedule, &tiles.outer, decisions)?;
    prefetch_operands(schedule, &form, tile, machine, decisions)
}

/// Prefetches operands while the tiles before them are computed: the panel that rows of tiles share, where
/// there are several columns of tiles, and the rows of the next tile.
fn prefetch_operands(
    schedule: &mut Schedule,
    form: &Form,
    tile: Tile,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let around = schedule.loops(form.output);
    let shared = schedule.loops(form.sum).into_iter().take_while(|loop_| around.contains(loop_));
    let shared: Vec<VarId> = shared.collect();
    let (Some(first), Some(last)) = (shared.first(), shared.last()) else { return Ok(()) };
    let Contraction { panel, broadcast, .. } = form.contraction;
    let program = schedule.program();
    let is_input = |buffer| program.writers(buffer).is_empty();
    let reduced = program.blocks[form.sum].iterators.iter();
    let depth = reduced.filter(|iterator| iterator.kind == IteratorKind::Reduction);
    let panel_elements =
        depth.map(|iterator| iterator.extent).product::<usize>() * tile.nr * machine.lanes;
    let next_panel = is_input(panel) && panel_elements < program.buffers[panel].elements();
    let next_rows = is_input(broadcast) && form.row_axis.is_some();
    let inputs = [is_input(panel), is_input(broadcast)];
    // 0 prefetches nothing, 1 at the innermost loop around the tile, 2 at the outermost.
    let distance = [None, Some(*last), Some(*first)];
    let operands = [
        ("fetch panel", panel, if next_panel { 2 } else { 0 }),
        ("fetch rows", broadcast, usize::from(next_rows)),
    ];
    for ((name, buffer, preferred), is_input) in operands.into_iter().zip(inputs) {
        let alternatives = match (is_input, first == last) {
            (false, _) => 1,
            (true, true) => 2,
            (true, false) => 3,
        };
        let preferred = preferred.min(alternatives - 1);
        if let Some(target) = distance[decisions.choose(name, alternatives, preferred)] {
            schedule.prefetch(form.sum, buffer, target)?;
        }
    }
    Ok(())
}

/// How the output iterates over the sum's columns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Columns {
    /// The output's last axis is the sum's vector axis.
    Same,
    /// The output's axis of this index spans blocks of `width` lanes one after another.
    Joined { axis: usize, width: usize },
}

/// What the template needs to know of its program.
pub(super) struct Form {
    pub(super) sum: BlockId,
    pub(super) output: BlockId,
    pub(super) contraction: Contraction,
    /// Index of the output's axis of rows.
    pub(super) row_axis: Option<usize>,
    /// Index of the output's axis of blocks of columns, where columns are [`Columns::Same`].
    pub(super) block_axis: Option<usize>,
    pub(super) columns: Columns,
}

impl Form {
    pub(super) fn of(schedule: &Schedule) -> Result<Self, ScheduleError> {
        let program = schedule.program();
        let blocks = program.blocks_in_order();
        let [sum, output] = blocks[..] else {
            return Err(unfit("contraction", "not one sum and one map"));
        };
        Self::of_pair(schedule, sum, output)
    }

    /// The form of a sum and the map that reads it.
    pub(super) fn of_pair(
        schedule: &Schedule,
        sum: BlockId,
        output: BlockId,
    ) -> Result<Self, ScheduleError> {
        let program = schedule.program();
        let (summing, storing) = (&program.blocks[sum], &program.blocks[output]);
        let contraction =
            Contraction::of(program, sum).filter(|_| !is_reduction(storing)).ok_or_else(|| {
                unfit("contraction", "not a sum of products of a vector and a scalar")
            })?;
        let read = single_read(storing, summing)?;
        let output_axis = |axis: Option<usize>| {
            axis.and_then(|axis| {
                storing.iterators.iter().position(|iterator| read[axis] == Expr::Var(iterator.var))
            })
        };
        let columns =
            if output_axis(Some(contraction.vector_axis)) == Some(storing.iterators.len() - 1) {
                Columns::Same
            } else {
                joined_columns(storing, &read, &contraction).ok_or_else(|| {
                    unfit("contraction", "the output iterates over the columns in another way")
                })?
            };
        if vector_axis(storing) != Some(storing.iterators.len() - 1) {
            return Err(unfit("contraction", "the output's last axis is no vector"));
        }
        let row_axis = output_axis(contraction.row_axis);
        let block_axis = output_axis(contraction.column_axis);
        Ok(Self { sum, output, contraction, row_axis, block_axis, columns })
    }

    /// Whether a loop over the output's first axis around all others would read panels from memory in each of its
    /// iterations that are the same in all: they do not fit the second cache, and all rows do.
    fn streams_panels(&self, schedule: &Schedule, machine: &Machine) -> bool {
        let program = schedule.program();
        let (summing, storing) = (&program.blocks[self.sum], &program.blocks[self.output]);
        let Contraction { panel, broadcast, .. } = self.contraction;
        let bytes = |buffer: BufferId| {
            let buffer = &program.buffers[buffer];
            buffer.elements().saturating_mul(buffer.dtype.bytes())
        };
        let first = Expr::Var(storing.iterators[0].var);
        let axis = single_read(storing, summing)
            .ok()
            .and_then(|read| read.iter().position(|index| *index == first));
        let Some(var) = axis.map(|axis| summing.iterators[axis].var) else { return false };
        let moves = |buffer: BufferId| {
            let mut reads = summing.loads(buffer).into_iter().flatten();
            reads.any(|index| index.mentions(var))
        };
        moves(broadcast)
            && !moves(panel)
            && bytes(panel) > machine.l2_bytes
            && bytes(broadcast) <= machine.l2_bytes / 2
    }

    /// What is tiled, and how many vectors must stay together.
    pub(super) fn extents(&self, schedule: &Schedule, machine: &Machine) -> (Extents, usize) {
        let block = &schedule.program().blocks[self.sum];
        let extent = |axis: Option<usize>| axis.map_or(1, |axis| block.iterators[axis].extent);
        let width: usize = extent(Some(self.contraction.vector_axis));
        let vectors = width.div_ceil(machine.lanes);
        let rows = if self.row_axis.is_some() { extent(self.contraction.row_axis) } else { 1 };
        let reduced =
            block.iterators.iter().filter(|iterator| iterator.kind == IteratorKind::Reduction);
        // An instruction that sums several products counts as one multiply-add.
        let run = self.contraction.intrinsic.map_or(1, |intrinsic| intrinsic.depth() as usize);
        let depth = reduced.map(|iterator| iterator.extent).product::<usize>() / run;
        let group = self.contraction.column_group;
        let blocks = group.unwrap_or_else(|| extent(self.contraction.column_axis));
        let (columns, unit) = match self.columns {
            Columns::Joined { .. } => (vectors * blocks, vectors),
            Columns::Same if self.block_axis.is_some() && width <= 2 * machine.lanes => {
                (vectors * blocks, vectors)
            }
            Columns::Same => (vectors, 1),
        };
        let row_bytes = if rows > 1 { self.row_bytes(schedule) } else { 0 };
        let divides = group.is_some() && columns > vectors;
        (Extents { rows, vectors: columns, depth, row_bytes, divides }, unit)
    }

    fn decide_tile(
        &self,
        schedule: &Schedule,
        machine: &Machine,
        decisions: &mut Decisions<'_>,
    ) -> Tile {
        let (extents, unit) = self.extents(schedule, machine);
        let machine = match self.contraction.intrinsic == Some(Intrinsic::DOT_I16) {
            true => machine.with_separate_sums(),
            false => *machine,
        };
        decide_tile(extents, unit, &machine, decisions)
    }

    /// Stride between rows of the broadcast operand in bytes; 0 where that is not the same for all.
    pub(super) fn row_bytes(&self, schedule: &Schedule) -> usize {
        let program = schedule.program();
        let (block, buffer) = (&program.blocks[self.sum], self.contraction.broadcast);
        let Some(row) = self.contraction.row_axis.map(|axis| block.iterators[axis].var) else {
            return 0;
        };
        let Some(indices) = block.loads(buffer).into_iter().next() else { return 0 };
        let buffer = &program.buffers[buffer];
        let element = |value: i64| {
            let at = |index: &Expr| {
                let only = |var| Some(Expr::Integer(if var == row { value } else { 0 }));
                Domain::default().simplify(&index.substitute(&only)).as_integer()
            };
            let mut pairs = indices.iter().zip(&buffer.shape);
            pairs.try_fold(0, |sum, (index, extent)| Some(sum * *extent as i64 + at(index)?))
        };
        let step = element(0).zip(element(1)).map_or(0, |(first, second)| second - first);
        step.unsigned_abs() as usize * buffer.dtype.bytes()
    }
}

/// The indices at which the output map reads the sum, the same in all its reads.
pub(super) fn single_read(storing: &Block, summing: &Block) -> Result<Vec<Expr>, ScheduleError> {
    let mut reads = loads(value(storing)).into_iter().filter_map(|load| match load {
        Expr::Load(buffer, indices) if *buffer == summing.buffer => Some(indices),
        _ => None,
    });
    let first =
        reads.next().ok_or_else(|| unfit("contraction", "the map does not read the sum"))?;
    if reads.any(|other| other != first) {
        return Err(unfit("contraction", "the map reads the sum at several indices"));
    }
    Ok(first.clone())
}

/// The output axis `j` where the sum is read at block `j / width` and lane `j % width`.
fn joined_columns(storing: &Block, read: &[Expr], contraction: &Contraction) -> Option<Columns> {
    let Expr::Binary(BinaryOp::Modulo, lane, width) = &read[contraction.vector_axis] else {
        return None;
    };
    let Expr::Var(var) = **lane else { return None };
    let axis = storing.iterators.iter().position(|iterator| iterator.var == var)?;
    let width = usize::try_from(width.as_integer()?).ok()?;
    (axis + 1 == storing.iterators.len()).then_some(Columns::Joined { axis, width })
}

/// Cuts `extent` into tiles of `size`, where there is more than one.
fn cut(
    schedule: &mut Schedule,
    loop_: VarId,
    size: usize,
) -> Result<(VarId, VarId), ScheduleError> {
    schedule.split(loop_, size.max(1))
}

/// Tiles for an output whose axes are the sum's.
fn tile_same(
    schedule: &mut Schedule,
    form: &Form,
    tile: Tile,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<Tiles, ScheduleError> {
    let loops = schedule.loops(form.output);
    let (mut first, mut outer, mut last, mut unrolled) = (vec![], vec![], vec![], vec![]);
    let mut vector = loops[loops.len() - 1];
    let width = schedule.extent(vector).unwrap_or(1);
    let vectors = width.div_ceil(machine.lanes);
    for (axis, loop_) in loops[..loops.len() - 1].iter().enumerate() {
        if Some(axis) == form.row_axis {
            let (tiles, within) = cut(schedule, *loop_, tile.mr)?;
            last.push(tiles);
            unrolled.push(within);
        } else if Some(axis) == form.block_axis && tile.nr > vectors {
            let (tiles, within) = cut(schedule, *loop_, tile.nr / vectors)?;
            first.push(tiles);
            unrolled.insert(0, within);
        } else {
            outer.push(*loop_);
        }
    }
    if width > machine.lanes {
        if tile.nr < vectors {
            let (tiles, within) = cut(schedule, vector, tile.nr * machine.lanes)?;
            outer.push(tiles);
            vector = within;
        }
        let (blocks, lanes) = cut(schedule, vector, machine.lanes)?;
        unrolled.push(blocks);
        vector = lanes;
    }
    // Blocks of columns outermost, so that their panel stays in cache while rows change; axes that both
    // operands have (a batch) stay outside, and so does a first axis of the rows' operand alone.
    let split = usize::from(outer.len() > 1 && !form.streams_panels(schedule, machine));
    let head: Vec<VarId> = outer.drain(..split).collect();
    let columns = [first, outer].concat();
    let outer = [head, order_tiles(schedule, columns, last, decisions)?].concat();
    Ok(Tiles { outer, unrolled, vector })
}

/// Loops over tiles, outermost first: columns before rows, so that the panel of a column of tiles stays in
/// cache while rows change. In blocks of rows of tiles, those of a block are computed for every column before
/// the next block begins.
fn order_tiles(
    schedule: &mut Schedule,
    columns: Vec<VarId>,
    rows: Vec<VarId>,
    decisions: &mut Decisions<'_>,
) -> Result<Vec<VarId>, ScheduleError> {
    let [rows] = rows[..] else { return Ok([columns, rows].concat()) };
    let tiles = schedule.extent(rows).unwrap_or(1);
    let several =
        columns.iter().any(|loop_| schedule.extent(*loop_).is_some_and(|extent| extent > 1));
    if !several || tiles < 2 {
        return Ok([columns, vec![rows]].concat());
    }
    // As many as there are: one block.
    let block = decisions.factor("block of rows", tiles, &[1, 2, 4, 8, 16], tiles);
    if block == tiles {
        return Ok([columns, vec![rows]].concat());
    }
    let (blocks, within) = schedule.split(rows, block)?;
    Ok([vec![blocks], columns, vec![within]].concat())
}

/// Tiles for an output whose last axis spans blocks of columns one after another.
fn tile_joined(
    schedule: &mut Schedule,
    form: &Form,
    tile: Tile,
    (axis, width): (usize, usize),
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<Tiles, ScheduleError> {
    let loops = schedule.loops(form.output);
    let blocks = (tile.nr * machine.lanes / width).max(1);
    let (column_tiles, columns) = cut(schedule, loops[axis], blocks * width)?;
    let (block, mut vector) = cut(schedule, columns, width)?;
    let mut unrolled = vec![block];
    let (mut outer, mut last) = (vec![], vec![]);
    for (index, loop_) in loops[..axis].iter().enumerate() {
        if Some(index) == form.row_axis {
            let (tiles, within) = cut(schedule, *loop_, tile.mr)?;
            last.push(tiles);
            unrolled.insert(0, within);
        } else {
            outer.push(*loop_);
        }
    }
    if width > machine.lanes {
        let (parts, lanes) = cut(schedule, vector, machine.lanes)?;
        unrolled.push(parts);
        vector = lanes;
    }
    outer.extend(order_tiles(schedule, vec![column_tiles], last, decisions)?);
    Ok(Tiles { outer, unrolled, vector })
}

/// Spreads tiles over threads: all loops but the last are fused, and where they are too few, a part
/// of the last.
fn spread_tiles(
    schedule: &mut Schedule,
    outer: &[VarId],
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let Some((last, fewer)) = outer.split_last() else { return Ok(()) };
    let extent = |schedule: &Schedule, loop_: VarId| schedule.extent(loop_).unwrap_or(1);
    let found: usize = fewer.iter().map(|loop_| extent(schedule, *loop_)).product();
    let worth = tasks(schedule, *last, decisions);
    let tiles = extent(schedule, *last);
    if found >= worth.min(FEW_TASKS) || tiles == 1 {
        return spread_all(schedule, if fewer.is_empty() { outer } else { fewer });
    }
    let each = part(tiles, worth.div_ceil(found.max(1)));
    if each == 1 {
        return spread_all(schedule, outer);
    }
    let (parts, _) = schedule.split(*last, each)?;
    spread_all(schedule, &[fewer, &[parts]].concat())
}

pub(super) fn spread_all(schedule: &mut Schedule, loops: &[VarId]) -> Result<(), ScheduleError> {
    let Some((first, rest)) = loops.split_first() else { return Ok(()) };
    let mut fused = *first;
    for inner in rest {
        fused = schedule.fuse(fused, *inner)?;
    }
    schedule.parallel(fused)
}
