//! Sums of products: matrix products and convolutions. A tile of results stays in registers over the
//! whole sum; the point-wise rest of the kernel is computed on the tile before it is stored.
//!
//! Decided are the rows and vectors of the tile, whether rows or columns of tiles are walked first and
//! in blocks of how many rows of tiles, the order of the summed axes and how many of their points are
//! written out, what is fetched ahead, and the number of tasks.
//!
//! The output map walks the results either axis by axis as the sum does, or with the blocks of the
//! sum's last two axes unrolled into one (`column = block * width + lane`).

use super::unfit;
use crate::Machine;
use crate::access::{Contraction, is_reduction, loads, value, vector_axis};
use crate::decisions::Decisions;
use crate::grain::{FEW_TASKS, even_parts, tasks};
use crate::tile::{Extents, Tile, decide_tile};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{
    BinaryOp, Block, BlockId, Domain, Expr, Intrinsic, Iterator, IteratorKind, Scope, VarId,
};

/// The loops of the output map, cut into tiles.
struct Tiles {
    /// Loops over tiles, outermost first; the last walks along the rows.
    outer: Vec<VarId>,
    /// Loops within a tile that are written out.
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
    sum_in_registers(schedule, &form, tiles.outer.len(), machine, decisions)?;
    for own in &tiles.unrolled {
        schedule.unroll(*own)?;
    }
    schedule.vectorize(tiles.vector)?;
    spread_tiles(schedule, &tiles.outer, decisions)?;
    fetch_ahead(schedule, &form, tile, machine, decisions)
}

/// Brings operands near while the tiles before them are computed: the one that rows of tiles share,
/// where there are several columns of tiles, and the one of the next tile.
fn fetch_ahead(
    schedule: &mut Schedule,
    form: &Form,
    tile: Tile,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let around = schedule.loops(form.output);
    let shared = schedule.loops(form.sum).into_iter().take_while(|own| around.contains(own));
    let shared: Vec<VarId> = shared.collect();
    let (Some(first), Some(last)) = (shared.first(), shared.last()) else { return Ok(()) };
    let Contraction { streamed, broadcast, .. } = form.contraction;
    let program = schedule.program();
    let is_input = |buffer| program.writers(buffer).is_empty();
    let reduced = program.blocks[form.sum].iterators.iter();
    let depth = reduced.filter(|own| own.kind == IteratorKind::Reduction);
    let panel = depth.map(|own| own.extent).product::<usize>() * tile.vectors * machine.lanes;
    let next_panel = is_input(streamed) && panel < program.buffers[streamed].elements();
    let next_rows = is_input(broadcast) && form.rows.is_some();
    let inputs = [is_input(streamed), is_input(broadcast)];
    // 0 fetches nothing, 1 at the innermost loop around the tile, 2 at the outermost.
    let distance = [None, Some(*last), Some(*first)];
    let operands = [
        ("fetch panel", streamed, if next_panel { 2 } else { 0 }),
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

/// How the output walks the sum's columns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Columns {
    /// The output's last axis is the sum's vector axis.
    Same,
    /// The output's axis of this place walks blocks of `width` lanes one after another.
    Joined { axis: usize, width: usize },
}

/// What the template needs to know of its program.
pub(super) struct Form {
    sum: BlockId,
    output: BlockId,
    contraction: Contraction,
    /// Place of the output's axis that walks along the rows.
    pub(super) rows: Option<usize>,
    /// Place of the output's axis that walks blocks of columns, where columns are walked the same.
    blocks: Option<usize>,
    pub(super) columns: Columns,
}

impl Form {
    fn of(schedule: &Schedule) -> Result<Self, ScheduleError> {
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
        let walks = |place: Option<usize>| {
            place.and_then(|place| {
                storing.iterators.iter().position(|own| read[place] == Expr::Var(own.var))
            })
        };
        let columns = if walks(Some(contraction.vector)) == Some(storing.iterators.len() - 1) {
            Columns::Same
        } else {
            joined_columns(storing, &read, &contraction).ok_or_else(|| {
                unfit("contraction", "the output walks the columns in another way")
            })?
        };
        if vector_axis(storing) != Some(storing.iterators.len() - 1) {
            return Err(unfit("contraction", "the output's last axis is no vector"));
        }
        let (rows, blocks) = (walks(contraction.rows), walks(contraction.columns));
        Ok(Self { sum, output, contraction, rows, blocks, columns })
    }

    fn decide_tile(
        &self,
        schedule: &Schedule,
        machine: &Machine,
        decisions: &mut Decisions<'_>,
    ) -> Tile {
        let block = &schedule.program().blocks[self.sum];
        let extent = |place: Option<usize>| place.map_or(1, |place| block.iterators[place].extent);
        let width: usize = extent(Some(self.contraction.vector));
        let vectors = width.div_ceil(machine.lanes);
        let rows = if self.rows.is_some() { extent(self.contraction.rows) } else { 1 };
        let reduced = block.iterators.iter().filter(|own| own.kind == IteratorKind::Reduction);
        // What one instruction sums fills the place of one multiply-add.
        let run = self.contraction.intrinsic.map_or(1, |own| own.depth() as usize);
        let depth = reduced.map(|own| own.extent).product::<usize>() / run;
        let blocks = extent(self.contraction.columns);
        let (columns, unit) = match self.columns {
            Columns::Joined { .. } => (vectors * blocks, vectors),
            Columns::Same if self.blocks.is_some() && width <= 2 * machine.lanes => {
                (vectors * blocks, vectors)
            }
            Columns::Same => (vectors, 1),
        };
        let row_bytes = if rows > 1 { self.row_bytes(schedule) } else { 0 };
        let extents = Extents { rows, vectors: columns, depth, row_bytes };
        decide_tile(extents, unit, machine, decisions)
    }

    /// Bytes from a row of the broadcast operand to the next; 0 where that is not the same for all.
    pub(super) fn row_bytes(&self, schedule: &Schedule) -> usize {
        let program = schedule.program();
        let (block, buffer) = (&program.blocks[self.sum], self.contraction.broadcast);
        let Some(row) = self.contraction.rows.map(|place| block.iterators[place].var) else {
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
fn single_read(storing: &Block, summing: &Block) -> Result<Vec<Expr>, ScheduleError> {
    let mut reads = loads(value(storing)).into_iter().filter_map(|load| match load {
        Expr::Load(buffer, indices) if *buffer == summing.buffer => Some(indices),
        _ => None,
    });
    let first =
        reads.next().ok_or_else(|| unfit("contraction", "the map does not read the sum"))?;
    if reads.any(|other| other != first) {
        return Err(unfit("contraction", "the map reads the sum at several places"));
    }
    Ok(first.clone())
}

/// The output axis `j` where the sum is read at block `j / width` and lane `j % width`.
fn joined_columns(storing: &Block, read: &[Expr], contraction: &Contraction) -> Option<Columns> {
    let Expr::Binary(BinaryOp::Modulo, lane, width) = &read[contraction.vector] else {
        return None;
    };
    let Expr::Var(var) = **lane else { return None };
    let axis = storing.iterators.iter().position(|own| own.var == var)?;
    let width = usize::try_from(width.as_integer()?).ok()?;
    (axis + 1 == storing.iterators.len()).then_some(Columns::Joined { axis, width })
}

/// Cuts `extent` into tiles of `size`, where there is more than one.
fn cut(schedule: &mut Schedule, own: VarId, size: usize) -> Result<(VarId, VarId), ScheduleError> {
    schedule.split(own, size.max(1))
}

/// Tiles for an output that walks the sum's axes as they are.
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
    for (place, own) in loops[..loops.len() - 1].iter().enumerate() {
        if Some(place) == form.rows {
            let (tiles, places) = cut(schedule, *own, tile.rows)?;
            last.push(tiles);
            unrolled.push(places);
        } else if Some(place) == form.blocks && tile.vectors > vectors {
            let (tiles, places) = cut(schedule, *own, tile.vectors / vectors)?;
            first.push(tiles);
            unrolled.insert(0, places);
        } else {
            outer.push(*own);
        }
    }
    if width > machine.lanes {
        if tile.vectors < vectors {
            let (tiles, places) = cut(schedule, vector, tile.vectors * machine.lanes)?;
            outer.push(tiles);
            vector = places;
        }
        let (blocks, lanes) = cut(schedule, vector, machine.lanes)?;
        unrolled.push(blocks);
        vector = lanes;
    }
    // Blocks of columns outermost, so that their operand stays in cache while rows stream by; axes
    // that neither operand shares (a batch) stay outside.
    let split = usize::from(outer.len() > 1);
    let head: Vec<VarId> = outer.drain(..split).collect();
    let columns = [first, outer].concat();
    let walk = [head, walk_tiles(schedule, columns, last, decisions)?].concat();
    Ok(Tiles { outer: walk, unrolled, vector })
}

/// Loops over tiles, outermost first: columns before rows, so that the operand of a column of tiles stays in
/// cache while rows stream by. In blocks of rows of tiles, those of a block are walked for every column
/// before the next block begins.
fn walk_tiles(
    schedule: &mut Schedule,
    columns: Vec<VarId>,
    rows: Vec<VarId>,
    decisions: &mut Decisions<'_>,
) -> Result<Vec<VarId>, ScheduleError> {
    let [rows] = rows[..] else { return Ok([columns, rows].concat()) };
    let tiles = schedule.extent(rows).unwrap_or(1);
    let several = columns.iter().any(|own| schedule.extent(*own).is_some_and(|own| own > 1));
    if !several || tiles < 2 {
        return Ok([columns, vec![rows]].concat());
    }
    // As many as there are: all columns are walked for one block.
    let block = decisions.factor("block of rows", tiles, &[1, 2, 4, 8, 16], tiles);
    if block == tiles {
        return Ok([columns, vec![rows]].concat());
    }
    let (blocks, within) = schedule.split(rows, block)?;
    Ok([vec![blocks], columns, vec![within]].concat())
}

/// Tiles for an output whose last axis walks blocks of columns one after another.
fn tile_joined(
    schedule: &mut Schedule,
    form: &Form,
    tile: Tile,
    (axis, width): (usize, usize),
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<Tiles, ScheduleError> {
    let loops = schedule.loops(form.output);
    let blocks = (tile.vectors * machine.lanes / width).max(1);
    let (column_tiles, columns) = cut(schedule, loops[axis], blocks * width)?;
    let (block, mut vector) = cut(schedule, columns, width)?;
    let mut unrolled = vec![block];
    let (mut outer, mut last) = (vec![], vec![]);
    for (place, own) in loops[..axis].iter().enumerate() {
        if Some(place) == form.rows {
            let (tiles, places) = cut(schedule, *own, tile.rows)?;
            last.push(tiles);
            unrolled.insert(0, places);
        } else {
            outer.push(*own);
        }
    }
    if width > machine.lanes {
        let (parts, lanes) = cut(schedule, vector, machine.lanes)?;
        unrolled.push(parts);
        vector = lanes;
    }
    outer.extend(walk_tiles(schedule, vec![column_tiles], last, decisions)?);
    Ok(Tiles { outer, unrolled, vector })
}

/// Orders the sum's loops with the summed axes outside its tile, sets the initial value in front, and
/// writes the tile out.
pub(super) fn sum_in_registers(
    schedule: &mut Schedule,
    form: &Form,
    outer: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(form.sum)[outer..].to_vec();
    let iterators = schedule.program().blocks[form.sum].iterators.clone();
    let spatial = iterators.iter().filter(|own| own.kind == IteratorKind::Spatial).count();
    let (tile, reduced) = loops.split_at(spatial);
    let run = usize::from(form.contraction.intrinsic.is_some());
    let (reduced, run) = reduced.split_at(reduced.len().saturating_sub(run));
    let points = reduced.len();
    let reduced = &order_points(schedule, reduced, decisions)?[..];
    schedule.reorder(&[reduced, &rows_first(form, &iterators, tile), run].concat())?;
    let Some(first) = reduced.first().or(run.first()) else {
        return Err(unfit("contraction", "nothing is summed"));
    };
    let initial = schedule.decompose_reduction(form.sum, *first)?;
    if reduced.len() > points {
        schedule.unroll(reduced[reduced.len() - 1])?;
    }
    let loops = schedule.loops(initial);
    write_out(schedule, &loops[loops.len() - spatial..], None, machine)?;
    let loops = schedule.loops(form.sum);
    let inner = loops.len() - run.len();
    write_out(schedule, &loops[inner - spatial..inner], form.contraction.intrinsic, machine)
}

/// The loops over the points of a sum in the order in which they are walked: another one may come
/// innermost, and its last steps may be written out, where they divide it.
fn order_points(
    schedule: &mut Schedule,
    reduced: &[VarId],
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
    let divides = [2, 3, 4, 5, 7, 8].into_iter().filter(|own| extent.is_multiple_of(*own));
    let points = decisions.number("written out points", divides, 1);
    if points > 1 {
        order.pop();
        let (steps, within) = schedule.split(last, points)?;
        order.extend([steps, within]);
    }
    Ok(order)
}

/// A tile's loops with the rows outermost: one broadcast at a time is held, beside one vector for each
/// column, and not the broadcasts of all rows.
fn rows_first(form: &Form, iterators: &[Iterator], tile: &[VarId]) -> Vec<VarId> {
    let is_rows = |place: usize| {
        form.rows.is_some() && form.contraction.rows == Some(place) && iterators[place].extent > 1
    };
    let (mut rows, others): (Vec<_>, Vec<_>) =
        tile.iter().enumerate().partition(|(place, _)| is_rows(*place));
    rows.extend(others);
    rows.into_iter().map(|(_, own)| *own).collect()
}

/// Unrolls a tile's loops and makes the last one a vector, or the lanes of an instruction.
fn write_out(
    schedule: &mut Schedule,
    tile: &[VarId],
    intrinsic: Option<Intrinsic>,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let (vector, places) = tile.split_last().ok_or_else(|| unfit("contraction", "no loops"))?;
    let mut vector = *vector;
    if schedule.extent(vector).unwrap_or(usize::MAX) > machine.lanes {
        let (parts, lanes) = schedule.split(vector, machine.lanes)?;
        schedule.unroll(parts)?;
        vector = lanes;
    }
    for place in places {
        schedule.unroll(*place)?;
    }
    match intrinsic {
        Some(intrinsic) => schedule.tensorize(vector, intrinsic),
        None => schedule.vectorize(vector),
    }
}

/// Spreads tiles over threads: all loops but the last are fused, and where they are too few, a part
/// of the last.
fn spread_tiles(
    schedule: &mut Schedule,
    outer: &[VarId],
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let Some((last, fewer)) = outer.split_last() else { return Ok(()) };
    let extent = |schedule: &Schedule, own: VarId| schedule.extent(own).unwrap_or(1);
    let found: usize = fewer.iter().map(|own| extent(schedule, *own)).product();
    let worth = tasks(schedule, *last, decisions);
    let tiles = extent(schedule, *last);
    if found >= worth.min(FEW_TASKS) || tiles == 1 {
        return spread_all(schedule, if fewer.is_empty() { outer } else { fewer });
    }
    let parts = even_parts(tiles, worth.div_ceil(found.max(1)));
    if parts == tiles {
        return spread_all(schedule, outer);
    }
    let (parts, _) = schedule.split(*last, tiles / parts)?;
    spread_all(schedule, &[fewer, &[parts]].concat())
}

fn spread_all(schedule: &mut Schedule, loops: &[VarId]) -> Result<(), ScheduleError> {
    let Some((first, rest)) = loops.split_first() else { return Ok(()) };
    let mut fused = *first;
    for inner in rest {
        fused = schedule.fuse(fused, *inner)?;
    }
    schedule.parallel(fused)
}
