//! Sums of products in blocks, each block's sum scaled before the blocks are added up: products by weights that share a
//! scale in blocks.
//!
//! The plain program has three nests for the product: sums of a block, the sum over blocks of what is made of them,
//! and the result, whose last axis is that of panels and of columns in one. The nest that this template makes:
//!
//! ```text
//! parallel panel, row_tile:
//!     blocks                                    a loop
//!         sums of a block   step: row, vector, [column]     in registers
//!         sum over blocks         row, vector, [column]     in registers
//!     result                      row, vector, [column]
//! ```
//!
//! Axes in brackets are vectors, or the lanes of an instruction. A panel's weights lie one behind the other, and every one
//! is read once for all rows of a tile: with few rows the kernel takes the time that memory takes to bring them.

use super::parallel::spread;
use super::register_sums::unroll_tile;
use super::unfit;
use crate::Machine;
use crate::access::{is_reduction, loads, value};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{
    BinaryOp, Block, BlockBody, BlockId, Combiner, Expr, Intrinsic, IteratorKind, Scope, VarId,
};

/// Most steps of a block's sum that are unrolled.
const MAX_UNROLLED: usize = 8;

/// Computes both sums at a tile of rows of a panel.
pub(super) fn apply(
    schedule: &mut Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let stages = Stages::of(schedule)?;
    let tile = tile_result(schedule, &stages, machine, decisions)?;
    let depth = tile.outer.len();
    let at = *tile.outer.last().ok_or_else(|| unfit(NAME, "no loop to compute at"))?;
    schedule.compute_at(stages.scaled, at)?;
    schedule.set_scope(stages.scaled, Scope::Register)?;
    let (scaled, blocks) = sum_outside(schedule, stages.scaled, depth, None)?;
    let block = *blocks.first().ok_or_else(|| unfit(NAME, "there is one block"))?;
    schedule.compute_at(stages.products, block)?;
    schedule.set_scope(stages.products, Scope::Register)?;
    let (products, steps) = sum_outside(schedule, stages.products, depth + 1, stages.intrinsic)?;
    for (initial, rank) in [scaled, products] {
        let loops = schedule.loops(initial);
        unroll_tile(schedule, &loops[loops.len() - rank..], None, machine)?;
    }
    let tiled = schedule.loops(stages.scaled);
    unroll_tile(schedule, &tiled[depth + 1..], None, machine)?;
    let tiled = schedule.loops(stages.products);
    let lanes = tiled.len() - usize::from(stages.intrinsic.is_some());
    let inner = &tiled[depth + 1 + steps.len()..lanes];
    unroll_tile(schedule, inner, stages.intrinsic, machine)?;
    if let Some(last) = steps.last().filter(|last| few(schedule, **last)) {
        schedule.unroll(*last)?;
    }
    for loop_ in &tile.unrolled {
        schedule.unroll(*loop_)?;
    }
    schedule.vectorize(tile.vector)?;
    spread(schedule, &tile.outer, decisions)
}

const NAME: &str = "block_scaled";

fn few(schedule: &Schedule, loop_: VarId) -> bool {
    schedule.extent(loop_).is_some_and(|extent| extent <= MAX_UNROLLED)
}

/// The blocks by what they are.
struct Stages {
    /// Sums of a block.
    products: BlockId,
    /// The sum over blocks.
    scaled: BlockId,
    /// The result.
    output: BlockId,
    /// The instruction that computes the sums of a block.
    intrinsic: Option<Intrinsic>,
    /// Columns of a panel.
    width: usize,
}

impl Stages {
    fn of(schedule: &Schedule) -> Result<Self, ScheduleError> {
        let program = schedule.program();
        let order = program.blocks_in_order();
        let [.., products, scaled, output] = order[..] else {
            return Err(unfit(NAME, "not two sums and a map"));
        };
        let block = |id: BlockId| &program.blocks[id];
        let adds = |id: BlockId| {
            matches!(block(id).body, BlockBody::Reduce { combiner: Combiner::Sum, .. })
        };
        let single = |id: BlockId, by: BlockId| schedule.consumers(id) == [by];
        let reduced = block(scaled).iterators.iter();
        let reduced = reduced.filter(|iterator| iterator.kind == IteratorKind::Reduction).count();
        let fits = adds(products)
            && adds(scaled)
            && !is_reduction(block(output))
            && single(products, scaled)
            && single(scaled, output)
            && reduced == 1;
        let width = panel_width(block(output), block(scaled)).filter(|_| fits);
        let width = width.ok_or_else(|| unfit(NAME, "not sums of blocks in panels of columns"))?;
        let others = &order[..order.len() - 3];
        if others.iter().any(|other| single(*other, output)) || others.len() > 1 {
            return Err(unfit(NAME, "further stages before the product"));
        }
        Ok(Self { products, scaled, output, intrinsic: intrinsic_of(block(products)), width })
    }
}

/// The instruction for sums of bytes by numbers of four bits or bytes, where the sums are of such.
fn intrinsic_of(block: &Block) -> Option<Intrinsic> {
    let BlockBody::Reduce { value, .. } = &block.body else { return None };
    // Whether it computes them, `tensorize` asks the nest.
    let intrinsic = match value {
        Expr::Binary(BinaryOp::Add, ..) => Intrinsic::DOT_I8_U4,
        _ => Intrinsic::DOT_U8_I8,
    };
    let run = block.iterators.iter().rev();
    let run = run.take_while(|iterator| iterator.kind == IteratorKind::Reduction);
    let run: Vec<usize> = run.map(|iterator| iterator.extent).collect();
    (run.len() == 2 && run[0] == intrinsic.depth() as usize).then_some(intrinsic)
}

/// Columns of a panel, where the output reads the sums at `column / width` and `column % width` of its last axis.
fn panel_width(output: &Block, scaled: &Block) -> Option<usize> {
    let column = Expr::Var(output.iterators.last()?.var);
    let mut reads = loads(value(output)).into_iter().filter_map(|load| match load {
        Expr::Load(buffer, indices) if *buffer == scaled.buffer => Some(indices),
        _ => None,
    });
    let first = reads.next()?;
    let Expr::Binary(BinaryOp::Modulo, lane, width) = first.last()? else { return None };
    let width = usize::try_from(width.as_integer()?).ok()?;
    (**lane == column && reads.all(|other| other == first)).then_some(width)
}

/// The loops of the result.
struct Tile {
    /// Over tiles, outermost first.
    outer: Vec<VarId>,
    /// Within a tile, which are unrolled.
    unrolled: Vec<VarId>,
    /// The vector.
    vector: VarId,
}

/// Cuts the result into panels and rows of tiles.
fn tile_result(
    schedule: &mut Schedule,
    stages: &Stages,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<Tile, ScheduleError> {
    let mut rows = schedule.loops(stages.output);
    let column = rows.pop().ok_or_else(|| unfit(NAME, "the result has no axis"))?;
    let row = rows.pop().ok_or_else(|| unfit(NAME, "the result has no rows"))?;
    let (panels, within) = schedule.split(column, stages.width)?;
    let mut unrolled = Vec::new();
    let mut vector = within;
    if stages.width > machine.lanes {
        let (vectors, lanes) = schedule.split(within, machine.lanes)?;
        unrolled.push(vectors);
        vector = lanes;
    }
    let vectors = stages.width.div_ceil(machine.lanes);
    // Both sums of a tile, its weights and what is read of the rows are in registers.
    let free = machine.registers.saturating_sub(vectors + 4);
    let most = (free / (2 * vectors)).max(1);
    let extent = schedule.extent(row).unwrap_or(1);
    // As equal tiles as there are, of at most so many rows.
    let even = extent.div_ceil(extent.div_ceil(most).max(1)).max(1);
    let each = decisions.number("rows of a tile", [1, 2, 3, 4, 6], even);
    let (tiles, within) = schedule.split(row, each)?;
    unrolled.insert(0, within);
    let outer = [&[panels], &rows[..], &[tiles]].concat();
    schedule.reorder(&[&outer[..], &unrolled, &[vector]].concat())?;
    Ok(Tile { outer, unrolled, vector })
}

/// A block that sets initial values, and how many loops its tile has.
type Initial = (BlockId, usize);

/// Puts the loops over what a block sums, but for the lanes' run of an instruction, outside those of its tile, and sets
/// the initial value before them.
fn sum_outside(
    schedule: &mut Schedule,
    block: BlockId,
    depth: usize,
    intrinsic: Option<Intrinsic>,
) -> Result<(Initial, Vec<VarId>), ScheduleError> {
    let loops = schedule.loops(block)[depth..].to_vec();
    let iterators = schedule.program().blocks[block].iterators.iter();
    let spatial = iterators.filter(|iterator| iterator.kind == IteratorKind::Spatial).count();
    let (tile, reduced) = loops.split_at(spatial);
    let (steps, run) = reduced.split_at(reduced.len() - usize::from(intrinsic.is_some()));
    let first = *steps.first().ok_or_else(|| unfit(NAME, "nothing is summed"))?;
    schedule.reorder(&[steps, tile, run].concat())?;
    let initial = schedule.decompose_reduction(block, first)?;
    Ok(((initial, tile.len()), steps.to_vec()))
}
