//! Sums of products: matrix products and convolutions. A tile of results stays in registers over the
//! whole sum; the point-wise rest of the kernel is computed on the tile before it is stored.
//!
//! The output map walks the results either axis by axis as the sum does, or with the blocks of the
//! sum's last two axes unrolled into one (`column = block * width + lane`).

use super::unfit;
use crate::Machine;
use crate::access::{Contraction, is_reduction, loads, value, vector_axis};
use crate::grain::{FEW_TASKS, even_parts, tasks_worth};
use crate::tile::{Extents, Tile, choose_tile};
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
pub(super) fn apply(schedule: &mut Schedule, machine: &Machine) -> Result<(), ScheduleError> {
    let form = Form::of(schedule)?;
    let tile = form.choose_tile(schedule, machine);
    let tiles = match form.columns {
        Columns::Same => tile_same(schedule, &form, tile, machine)?,
        Columns::Joined { axis, width } => {
            tile_joined(schedule, &form, tile, axis, width, machine)?
        }
    };
    let order: Vec<VarId> =
        tiles.outer.iter().chain(&tiles.unrolled).chain([&tiles.vector]).copied().collect();
    schedule.reorder(&order)?;
    let at = *tiles.outer.last().ok_or_else(|| unfit("contraction", "no loop to compute at"))?;
    schedule.compute_at(form.sum, at)?;
    schedule.set_scope(form.sum, Scope::Register)?;
    sum_in_registers(schedule, &form, tiles.outer.len(), machine)?;
    for own in &tiles.unrolled {
        schedule.unroll(*own)?;
    }
    schedule.vectorize(tiles.vector)?;
    spread_tiles(schedule, &tiles.outer)?;
    fetch_ahead(schedule, &form, tile, machine)
}

/// Brings operands near while the tiles before them are computed: the one that rows of tiles share,
/// where there are several columns of tiles, and the one of the next tile.
fn fetch_ahead(
    schedule: &mut Schedule,
    form: &Form,
    tile: Tile,
    machine: &Machine,
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
    if next_panel {
        schedule.prefetch(form.sum, streamed, *first)?;
    }
    if next_rows {
        schedule.prefetch(form.sum, broadcast, *last)?;
    }
    Ok(())
}

/// How the output walks the sum's columns.
#[derive(Clone, Copy, Debug)]
enum Columns {
    /// The output's last axis is the sum's vector axis.
    Same,
    /// The output's axis of this place walks blocks of `width` lanes one after another.
    Joined { axis: usize, width: usize },
}

/// What the template needs to know of its program.
struct Form {
    sum: BlockId,
    output: BlockId,
    contraction: Contraction,
    /// Place of the output's axis that walks along the rows.
    rows: Option<usize>,
    /// Place of the output's axis that walks blocks of columns, where columns are walked the same.
    blocks: Option<usize>,
    columns: Columns,
}

impl Form {
    fn of(schedule: &Schedule) -> Result<Self, ScheduleError> {
        let program = schedule.program();
        let blocks = program.blocks_in_order();
        let [sum, output] = blocks[..] else {
            return Err(unfit("contraction", "not one sum and one map"));
        };
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

    fn choose_tile(&self, schedule: &Schedule, machine: &Machine) -> Tile {
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
        choose_tile(Extents { rows, vectors: columns, depth, row_bytes }, unit, machine)
    }

    /// Bytes from a row of the broadcast operand to the next; 0 where that is not the same for all.
    fn row_bytes(&self, schedule: &Schedule) -> usize {
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
    let mut order: Vec<VarId> = outer.drain(..split).collect();
    order.extend(first);
    order.extend(outer);
    order.extend(last);
    Ok(Tiles { outer: order, unrolled, vector })
}

/// Tiles for an output whose last axis walks blocks of columns one after another.
fn tile_joined(
    schedule: &mut Schedule,
    form: &Form,
    tile: Tile,
    axis: usize,
    width: usize,
    machine: &Machine,
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
    outer.push(column_tiles);
    outer.extend(last);
    Ok(Tiles { outer, unrolled, vector })
}

/// Orders the sum's loops with the summed axes outside its tile, sets the initial value in front, and
/// writes the tile out.
fn sum_in_registers(
    schedule: &mut Schedule,
    form: &Form,
    outer: usize,
    machine: &Machine,
) -> Result<(), ScheduleError> {
    let loops = schedule.loops(form.sum)[outer..].to_vec();
    let iterators = schedule.program().blocks[form.sum].iterators.clone();
    let spatial = iterators.iter().filter(|own| own.kind == IteratorKind::Spatial).count();
    let (tile, reduced) = loops.split_at(spatial);
    let run = usize::from(form.contraction.intrinsic.is_some());
    let (reduced, run) = reduced.split_at(reduced.len().saturating_sub(run));
    schedule.reorder(&[reduced, &rows_first(form, &iterators, tile), run].concat())?;
    let Some(first) = reduced.first().or(run.first()) else {
        return Err(unfit("contraction", "nothing is summed"));
    };
    let initial = schedule.decompose_reduction(form.sum, *first)?;
    let loops = schedule.loops(initial);
    write_out(schedule, &loops[loops.len() - spatial..], None, machine)?;
    let loops = schedule.loops(form.sum);
    let inner = loops.len() - run.len();
    write_out(schedule, &loops[inner - spatial..inner], form.contraction.intrinsic, machine)
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
fn spread_tiles(schedule: &mut Schedule, outer: &[VarId]) -> Result<(), ScheduleError> {
    let Some((last, fewer)) = outer.split_last() else { return Ok(()) };
    let extent = |schedule: &Schedule, own: VarId| schedule.extent(own).unwrap_or(1);
    let tasks: usize = fewer.iter().map(|own| extent(schedule, *own)).product();
    let worth = tasks_worth(schedule, *last);
    let tiles = extent(schedule, *last);
    if tasks >= worth.min(FEW_TASKS) || tiles == 1 {
        return spread_all(schedule, if fewer.is_empty() { outer } else { fewer });
    }
    let parts = even_parts(tiles, worth.div_ceil(tasks.max(1)));
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
