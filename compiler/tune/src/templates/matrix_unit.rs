//! Sums of products on a matrix unit, whose registers are tiles of rows and columns.
//!
//! The nest, for a product whose operands lie as the unit reads them:
//!
//! ```text
//! parallel batch, row_block:
//!     copied rows   row, [k]                    where they have to be copied; or all of them in front of the nest
//!     column_tile, row_tile:
//!         sums      step: row_part, column_part, [row, column, group, term]
//!         result    row, column_part, [column]
//! ```
//!
//! Axes in brackets are one instruction, or a vector. The sums of a tile are in tile registers over all steps, and then in
//! memory of the thread, from which the result is computed. Rows are copied where a step's terms do not lie behind one
//! another, as in windows: then they do, for all tiles of columns.
//!
//! Decided are the parts of a tile, how many tiles of rows share the columns that are read, and whether rows are copied in
//! blocks or in front of the nest.

use super::contraction::{Columns, Form, single_read, spread_all};
use super::parallel::spread;
use super::unfit;
use crate::Machine;
use crate::access::{Access, Contraction, access, value};
use crate::decisions::Decisions;
use hone_machine::MIN_TILE_ROWS;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Expr, Intrinsic, Iterator, IteratorKind, Scope, VarId};

const NAME: &str = "matrix_unit";
/// Rows and columns of a tile, and groups of terms that a step takes, at most.
const TILE: usize = 16;
/// Fewer groups in a step than these take as long as vectors do.
const MIN_GROUPS: usize = 4;
/// Tiles of sums that leave registers for two tiles of each operand.
const SUM_TILES: usize = 4;
/// Blocks of rows from which each copies its rows itself: threads have enough of them. Fewer have all rows copied first.
const MANY_BLOCKS: usize = 8;
/// Percent of the second-level cache that columns may take to stay there while rows are copied.
const COLUMNS_PERCENT: usize = 60;

/// Tiles the output, computes the sums at a tile, and the copies of rows outside of the columns.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    if !machine.has_tiles {
        return Err(unfit(NAME, "the machine has no tile registers"));
    }
    let product = Product::of(schedule)?;
    let packed = match product.packs {
        true => Some(schedule.reindex(
            product.form.sum,
            product.form.contraction.broadcast,
            Scope::Global,
        )?),
        false => None,
    };
    let tiles = Tiles::cut(schedule, &product, machine, decisions)?;
    let order = [&tiles.others, &tiles.blocks, &tiles.columns, &tiles.rows];
    let outer: Vec<VarId> = order.into_iter().flatten().copied().collect();
    let inner = [&tiles.within[..], &[tiles.vector]].concat();
    schedule.reorder(&[outer.clone(), inner].concat())?;
    let at = *outer.last().ok_or_else(|| unfit(NAME, "no loop to compute at"))?;
    schedule.compute_at(product.form.sum, at)?;
    schedule.set_scope(product.form.sum, Scope::Scratch)?;
    let around = [&tiles.others[..], &tiles.blocks].concat();
    let blocks: usize = around.iter().map(|loop_| extent(schedule, *loop_)).product();
    let alternatives = if packed.is_some() && !around.is_empty() { 2 } else { 1 };
    let preferred = usize::from(blocks >= MANY_BLOCKS).min(alternatives - 1);
    let inside = decisions.choose("copies in blocks", alternatives, preferred) == 1;
    if let Some(packed) = packed {
        if inside {
            let at = *around.last().ok_or_else(|| unfit(NAME, "no loop to copy at"))?;
            schedule.compute_at(packed, at)?;
            schedule.set_scope(packed, Scope::Scratch)?;
        }
        vectorize_copies(schedule, packed)?;
    }
    sum_in_tiles(schedule, &product, &tiles, outer.len())?;
    for loop_ in &tiles.unrolled {
        schedule.unroll(*loop_)?;
    }
    schedule.vectorize(tiles.vector)?;
    if let Some(packed) = packed.filter(|_| !inside) {
        let loops = schedule.loops(packed);
        spread(schedule, &loops[..loops.len() - 1], decisions)?;
    }
    spread_all(schedule, &if inside { around } else { [&around[..], &tiles.columns].concat() })
}

fn extent(schedule: &Schedule, loop_: VarId) -> usize {
    schedule.extent(loop_).unwrap_or(1)
}

/// What the template knows of its program.
struct Product {
    form: Form,
    tiles: Intrinsic,
    /// Whether rows have to be copied.
    packs: bool,
    /// What each axis of the output is.
    axes: Vec<Role>,
}

/// What an axis of the output is to the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Row,
    Column,
    Other,
}

impl Product {
    fn of(schedule: &Schedule) -> Result<Self, ScheduleError> {
        let form = Form::of(schedule)?;
        let contraction = &form.contraction;
        let tiles = contraction.intrinsic.and_then(Intrinsic::of_tiles);
        let tiles = tiles.ok_or_else(|| unfit(NAME, "no tiles have such products"))?;
        if contraction.column_group.is_some() {
            return Err(unfit(NAME, "columns in groups"));
        }
        let program = schedule.program();
        let (summing, storing) = (&program.blocks[form.sum], &program.blocks[form.output]);
        let read = single_read(storing, summing)?;
        let moves = |buffer, var| {
            summing.loads(buffer).into_iter().flatten().any(|index| index.mentions(var))
        };
        let role = |storing: &Iterator| {
            let summed = read.iter().zip(&summing.iterators);
            let of: Vec<VarId> = summed
                .filter(|(index, _)| index.mentions(storing.var))
                .map(|(_, axis)| axis.var)
                .collect();
            let by = |buffer| of.iter().any(|var| moves(buffer, *var));
            match (by(contraction.broadcast), by(contraction.panel)) {
                (true, false) => Role::Row,
                (false, true) => Role::Column,
                _ => Role::Other,
            }
        };
        let axes: Vec<Role> = storing.iterators.iter().map(role).collect();
        if axes.last() != Some(&Role::Column) {
            return Err(unfit(NAME, "the last axis is not of columns"));
        }
        let rows = storing.iterators.iter().zip(&axes).filter(|(_, role)| **role == Role::Row);
        let rows: usize = rows.map(|(iterator, _)| iterator.extent).product();
        if rows < MIN_TILE_ROWS {
            return Err(unfit(NAME, "too few rows"));
        }
        let packs = needs_copies(schedule, form.sum, &form);
        let product = Self { form, tiles, packs, axes };
        if product.groups(schedule) < TILE {
            return Err(unfit(NAME, "the terms fill no step"));
        }
        Ok(product)
    }

    /// Groups of terms of a sum.
    fn groups(&self, schedule: &Schedule) -> usize {
        let block = &schedule.program().blocks[self.form.sum];
        let reduced = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Reduction);
        let extents: Vec<usize> = reduced.map(|axis| axis.extent).collect();
        extents.split_last().map_or(1, |(_, groups)| groups.iter().product())
    }

    /// Bytes of the terms of a row, and of all columns.
    fn bytes(&self, schedule: &Schedule) -> [usize; 2] {
        let program = schedule.program();
        let block = &program.blocks[self.form.sum];
        let reduced = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Reduction);
        let terms: usize = reduced.map(|axis| axis.extent).product();
        let Contraction { broadcast, panel, .. } = self.form.contraction;
        let (rows, columns) = (&program.buffers[broadcast], &program.buffers[panel]);
        [terms * rows.dtype.bytes(), columns.elements().saturating_mul(columns.dtype.bytes())]
    }
}

/// Whether the terms of a step do not lie behind one another in the operand of the rows.
fn needs_copies(schedule: &Schedule, sum: BlockId, form: &Form) -> bool {
    let block = &schedule.program().blocks[sum];
    let reduced = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Reduction);
    let long: Vec<&Iterator> = reduced.filter(|axis| axis.extent > 1).collect();
    let indices = block.loads(form.contraction.broadcast).into_iter().next();
    let (Some([outer @ .., last]), [others @ .., groups, terms]) = (indices, &long[..]) else {
        return true;
    };
    // A step takes groups of the last axis of them alone.
    if !others.is_empty() && !groups.extent.is_multiple_of(TILE) {
        return true;
    }
    // The last axis is that of the terms in a group; the groups lie behind one another where theirs moves by as many.
    let whole = Expr::Var(groups.var) * Expr::from(terms.extent);
    let mut moves_by_groups = false;
    last.visit(&mut |part| moves_by_groups |= *part == whole);
    let within = last.substitute(&|var| (var == groups.var).then_some(Expr::Integer(0)));
    let within = Expr::Load(form.contraction.broadcast, vec![within]);
    let in_outer = |index: &Expr| index.mentions(groups.var) || index.mentions(terms.var);
    outer.iter().any(in_outer)
        || others.iter().any(|axis| last.mentions(axis.var))
        || !moves_by_groups
        || access(&within, terms.var) != Access::Contiguous
}

/// Copies whole groups of terms at once, for all elements of a row of the window where they lie behind one another.
fn vectorize_copies(schedule: &mut Schedule, copy: BlockId) -> Result<(), ScheduleError> {
    let joins = is_window_contiguous(schedule, copy);
    let loops = schedule.loops(copy);
    let [.., window, groups, terms] = loops[..] else {
        return Err(unfit(NAME, "the copies have no groups of terms"));
    };
    let mut fused = schedule.fuse(groups, terms)?;
    if joins {
        fused = schedule.fuse(window, fused)?;
    }
    schedule.vectorize(fused)
}

/// Whether an element of the window's last axis lies right behind the one before it, with all of its terms.
fn is_window_contiguous(schedule: &Schedule, copy: BlockId) -> bool {
    let program = schedule.program();
    let block = &program.blocks[copy];
    let (Expr::Load(buffer, indices), [.., window, groups, terms]) =
        (value(block), &block.iterators[..])
    else {
        return false;
    };
    let [outer @ .., across, _] = &indices[..] else { return false };
    let moves = Expr::Load(*buffer, vec![across.clone()]);
    let whole = program.buffers[*buffer].shape.last() == Some(&(groups.extent * terms.extent));
    whole
        && access(&moves, window.var) == Access::Contiguous
        && !outer.iter().any(|index| index.mentions(window.var))
}

/// The loops of the output, cut into tiles.
struct Tiles {
    /// Around everything.
    others: Vec<VarId>,
    /// Rows that are copied together.
    blocks: Vec<VarId>,
    /// Tiles of columns.
    columns: Vec<VarId>,
    /// Tiles of rows.
    rows: Vec<VarId>,
    /// Inside a tile but for the vector, outermost first.
    within: Vec<VarId>,
    /// Which of these are unrolled.
    unrolled: Vec<VarId>,
    /// The vector.
    vector: VarId,
    /// Rows of a part of a tile.
    part_rows: usize,
}

impl Tiles {
    fn cut(
        schedule: &mut Schedule,
        product: &Product,
        machine: &Machine,
        decisions: &mut Decisions<'_>,
    ) -> Result<Self, ScheduleError> {
        let loops = schedule.loops(product.form.output);
        let of = |role: Role| -> Vec<VarId> {
            let pairs = loops.iter().zip(&product.axes);
            pairs.filter(|(_, found)| **found == role).map(|(loop_, _)| *loop_).collect()
        };
        let (rows, columns) = (of(Role::Row), of(Role::Column));
        let long: Vec<VarId> =
            rows.iter().copied().filter(|loop_| extent(schedule, *loop_) > 1).collect();
        let Some(main) = long.last().copied() else { return Err(unfit(NAME, "one row")) };
        let count = extent(schedule, main);
        let row_tiles = count.div_ceil(TILE);
        let part_rows = count.div_ceil(row_tiles);
        let all: usize = columns.iter().map(|loop_| extent(schedule, *loop_)).product();
        let vectors = all.div_ceil(machine.lanes);
        let beside = (long.len() > 1).then(|| long[long.len() - 2]);
        let most_parts = match row_tiles {
            1 => beside.map_or(1, |loop_| extent(schedule, loop_)),
            several => several,
        };
        let few = |most: usize| (1..=SUM_TILES).filter(move |count| *count <= most);
        let parts = decisions.number("row tiles", few(most_parts), most_parts.min(2));
        let width = SUM_TILES / parts.max(1);
        let width =
            decisions.number("column tiles", few(width.min(vectors)), width.clamp(1, vectors));
        let mut tiles = Self {
            others: of(Role::Other),
            blocks: vec![],
            columns: vec![],
            rows: vec![],
            within: vec![],
            unrolled: vec![],
            vector: main,
            part_rows,
        };
        let (mut outer_rows, mut inner_rows) = (Vec::new(), Vec::new());
        for loop_ in rows {
            let size = match (loop_ == main, row_tiles > 1) {
                (true, true) => parts * part_rows,
                (true, false) => part_rows,
                (false, false) if Some(loop_) == beside => parts,
                _ => 1,
            };
            let (tile, within) = schedule.split(loop_, size)?;
            outer_rows.push(tile);
            inner_rows.push(within);
        }
        let mut inner_columns = Vec::new();
        tiles.cut_columns(schedule, product, (&columns, width), machine, &mut inner_columns)?;
        tiles.unrolled = inner_columns.clone();
        tiles.within = [inner_rows, inner_columns].concat();
        tiles.blocks = outer_rows;
        tiles.block_rows(schedule, (product, parts * part_rows), machine, decisions)?;
        Ok(tiles)
    }

    /// Cuts the axes of columns: tiles of `width` vectors.
    fn cut_columns(
        &mut self,
        schedule: &mut Schedule,
        product: &Product,
        (columns, width): (&[VarId], usize),
        machine: &Machine,
        inner: &mut Vec<VarId>,
    ) -> Result<(), ScheduleError> {
        let Some((last, blocks)) = columns.split_last() else {
            return Err(unfit(NAME, "no columns"));
        };
        let lanes = machine.lanes;
        let mut vector = *last;
        match product.form.columns {
            Columns::Joined { width: panel, .. } => {
                let size = (width * lanes).next_multiple_of(panel).max(panel);
                let (tile, within) = schedule.split(vector, size)?;
                let (panels, lane) = schedule.split(within, panel)?;
                self.columns.push(tile);
                inner.push(panels);
                vector = lane;
            }
            Columns::Same => {
                let panel = schedule.extent(vector).unwrap_or(1).div_ceil(lanes);
                for (index, loop_) in blocks.iter().enumerate() {
                    if index + 1 == blocks.len() && panel < width {
                        let (tile, within) = schedule.split(*loop_, (width / panel).max(1))?;
                        self.columns.push(tile);
                        inner.push(within);
                    } else {
                        self.columns.push(*loop_);
                    }
                }
                if panel > width {
                    let (tile, within) = schedule.split(vector, width * lanes)?;
                    self.columns.push(tile);
                    vector = within;
                }
            }
        }
        if schedule.extent(vector).is_none_or(|extent| extent > lanes) {
            let (parts, lane) = schedule.split(vector, lanes)?;
            inner.push(parts);
            vector = lane;
        }
        self.vector = vector;
        Ok(())
    }

    /// Moves tiles of rows inside of the columns: as many as stay in the second-level cache where columns have to come from
    /// further away for each block of rows; few where they stay there themselves, and rows have to be copied first.
    fn block_rows(
        &mut self,
        schedule: &mut Schedule,
        (product, tile_rows): (&Product, usize),
        machine: &Machine,
        decisions: &mut Decisions<'_>,
    ) -> Result<(), ScheduleError> {
        let [rows, columns] = product.bytes(schedule);
        let stay = columns <= machine.l2_bytes / 100 * COLUMNS_PERCENT;
        let limit = if product.packs && stay { machine.l1_bytes } else { machine.l2_bytes / 2 };
        let count: usize = self.blocks.iter().map(|loop_| extent(schedule, *loop_)).product();
        let fitting = (limit / (tile_rows * rows).max(1)).clamp(1, count);
        let mut left = decisions.factor("block of rows", count, &[1, 2, 4, 8, 16], fitting);
        while let Some(last) = self.blocks.pop() {
            let tiles = extent(schedule, last);
            if tiles <= left {
                self.rows.insert(0, last);
                left /= tiles.max(1);
                continue;
            }
            let (blocks, within) = schedule.split(last, left.max(1))?;
            self.blocks.push(blocks);
            self.rows.insert(0, within);
            break;
        }
        Ok(())
    }
}

/// Orders the sum's loops with the steps outside of the tile, and makes its parts instructions.
fn sum_in_tiles(
    schedule: &mut Schedule,
    product: &Product,
    tiles: &Tiles,
    outer: usize,
) -> Result<(), ScheduleError> {
    let sum = product.form.sum;
    let iterators = schedule.program().blocks[sum].iterators.clone();
    let spatial: Vec<&Iterator> =
        iterators.iter().filter(|axis| axis.kind == IteratorKind::Spatial).collect();
    let loops = schedule.loops(sum)[outer..].to_vec();
    let (inside, reduced) = loops.split_at(spatial.len().min(loops.len()));
    let [first, others @ .., terms] = reduced else {
        return Err(unfit(NAME, "nothing is summed but the terms of a group"));
    };
    let mut steps = *first;
    for loop_ in others {
        steps = schedule.fuse(steps, *loop_)?;
    }
    let read = row_axis(schedule, product).ok_or_else(|| unfit(NAME, "no axis of rows"))?;
    let vector = product.form.contraction.vector_axis;
    let groups = schedule.extent(steps).unwrap_or(1);
    let step = (1..=TILE.min(groups)).rev().find(|step| groups.is_multiple_of(*step)).unwrap_or(1);
    if step < MIN_GROUPS {
        return Err(unfit(NAME, "the terms make no steps of several groups"));
    }
    let (row_parts, rows) = schedule.split(inside[read], tiles.part_rows)?;
    let (column_parts, columns) = schedule.split(inside[vector], TILE)?;
    let (steps, groups) = schedule.split(steps, step)?;
    let others = inside.iter().enumerate().filter(|(axis, _)| *axis != read && *axis != vector);
    let others: Vec<VarId> = others.map(|(_, loop_)| *loop_).collect();
    let unrolled = [&others[..], &[row_parts, column_parts]].concat();
    let tile = [rows, columns, groups, *terms];
    schedule.reorder(&[&[steps][..], &unrolled, &tile].concat())?;
    let initial = schedule.decompose_reduction(sum, steps)?;
    if let Some(last) = schedule.loops(initial).last() {
        schedule.vectorize(*last)?;
    }
    for loop_ in unrolled {
        schedule.unroll(loop_)?;
    }
    schedule.tensorize(rows, product.tiles)
}

/// The last axis of the sums that is one of rows and longer than one.
fn row_axis(schedule: &Schedule, product: &Product) -> Option<usize> {
    let block = &schedule.program().blocks[product.form.sum];
    let storing = &schedule.program().blocks[product.form.output];
    let mut rows = storing.iterators.iter().zip(&product.axes);
    let long = rows.rfind(|(axis, role)| **role == Role::Row && axis.extent > 1)?.0.var;
    let read = single_read(storing, block).ok()?;
    read.iter().position(|index| index.mentions(long))
}
