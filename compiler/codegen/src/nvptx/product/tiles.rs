//! Tiles of a product, and where their elements lie in shared memory.

use super::form::{Factors, Form};
use crate::nvptx::Architecture;
use hone_machine::{
    Device, MULTIPROCESSORS, PRODUCT_CYCLES, ROUND_CYCLES, WARP_LANES, WARPGROUP_PRODUCT_CYCLES,
};

/// Bytes that one asynchronous copy brings, and that a row of a matrix of `ldmatrix` has.
pub(in crate::nvptx) const CHUNK: usize = 16;
/// Bytes of the depth of one `mma.sync`, and of one `wgmma.mma_async`.
pub(super) const STEP: usize = 32;
/// Rows of one `wgmma.mma_async`, of which each of the four warps has 16.
pub(super) const WARPGROUP_ROWS: usize = 64;
/// Bytes after which the 128-byte swizzle repeats, and twice those of the one of 64 bytes: operands of `wgmma.mma_async` begin
/// at multiples of it.
pub(super) const SWIZZLE_BYTES: usize = 1024;
/// Tensor cores of a multiprocessor, each of which serves one warp of four.
const TENSOR_CORES: usize = 4;

/// Who multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplier {
    /// Warps, by `mma.sync`, from registers that `ldmatrix` fills.
    Warp,
    /// Warpgroups of four warps, by `wgmma.mma_async`, from shared memory.
    Warpgroup,
}

/// How a product is divided among blocks and warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Rows and columns of a block's tile. The last ones along an axis are filled up with zeros.
    pub block: [usize; 2],
    /// Rows and columns of a warp's tile: multiples of 16. A warp of a warpgroup has 16 rows, and all columns of the block.
    pub warp: [usize; 2],
    /// Bytes of the depth of a block's tile. For warpgroups it is the line of a swizzle, 64 or 128.
    pub depth_bytes: usize,
    /// Tiles of the depth that are in shared memory or on their way to it.
    pub stages: usize,
    /// Who multiplies.
    pub multiplier: Multiplier,
}

impl Tiles {
    /// Tiles of warps that are tried, largest first: many products for each element that is brought to shared memory first.
    pub const ALL: [Tiles; 5] = [
        Tiles::of_warps([128, 128], [64, 64], 3),
        Tiles::of_warps([128, 64], [64, 32], 4),
        Tiles::of_warps([64, 128], [32, 64], 4),
        Tiles::of_warps([64, 64], [32, 32], 4),
        Tiles::of_warps([32, 32], [16, 16], 4),
    ];

    /// Tiles of warpgroups that are tried where an architecture has them, largest first. Those of less depth are for
    /// convolutions, whose channels are neighbours in blocks.
    pub const WARPGROUPS: [Tiles; 6] = [
        Tiles::of_warpgroups([128, 256], 128),
        Tiles::of_warpgroups([128, 128], 128),
        Tiles::of_warpgroups([128, 64], 128),
        Tiles::of_warpgroups([128, 256], 64),
        Tiles::of_warpgroups([128, 128], 64),
        Tiles::of_warpgroups([128, 64], 64),
    ];

    const fn of_warps(block: [usize; 2], warp: [usize; 2], stages: usize) -> Self {
        Self { block, warp, depth_bytes: 64, stages, multiplier: Multiplier::Warp }
    }

    /// Four stages: of one the products are under way while those of another begin, and two are filled meanwhile.
    const fn of_warpgroups(block: [usize; 2], depth_bytes: usize) -> Self {
        let warp = [16, block[1]];
        Self { block, warp, depth_bytes, stages: 4, multiplier: Multiplier::Warpgroup }
    }

    /// Lanes of a block.
    pub fn lanes(&self) -> usize {
        WARP_LANES * (self.block[0] / self.warp[0]) * (self.block[1] / self.warp[1])
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        self.stages * self.depth_bytes * (self.block[0] + self.block[1])
    }

    /// Depth of a block's tile, in elements of so many bytes.
    pub fn depth(&self, bytes: usize) -> usize {
        self.depth_bytes / bytes
    }

    /// Tiles of the depth that are copied ahead of the one that is multiplied. The products of warpgroups go on while the next
    /// ones begin, so a stage of theirs is free one round later.
    pub(super) fn ahead(&self) -> usize {
        match self.multiplier {
            Multiplier::Warp => self.stages - 1,
            Multiplier::Warpgroup => self.stages - 2,
        }
    }

    /// Blocks along columns, rows and batch.
    pub(super) fn blocks(&self, form: &Form) -> [usize; 3] {
        let along = |side: usize| form.extent(side).div_ceil(self.block[side]);
        [along(1), along(0), form.batches()]
    }

    /// Whether rows (0) or columns (1) come in whole tiles.
    pub(super) fn whole(&self, form: &Form, side: usize) -> bool {
        form.extent(side).is_multiple_of(self.block[side])
    }

    /// Whether a product comes in such tiles on an architecture.
    pub(super) fn fit(&self, form: &Form, architecture: Architecture) -> bool {
        let (sides, limits) = ([0, 1], architecture.limits());
        let shared_bytes = match self.multiplier {
            Multiplier::Warp => limits.shared_bytes,
            Multiplier::Warpgroup => architecture.largest_shared_bytes(),
        };
        let counted = |side: usize| form.extent(side).next_multiple_of(self.block[side]);
        form.depth.iter().all(|extent| *extent > 0)
            && sides.iter().all(|side| i32::try_from(counted(*side)).is_ok())
            && match self.multiplier {
                Multiplier::Warp => true,
                Multiplier::Warpgroup => {
                    architecture.has_warpgroups() && by_warpgroups(form.factors)
                }
            }
            && self.lanes() <= limits.lanes
            && self.shared_bytes() <= shared_bytes
            && self.blocks(form).iter().all(|blocks| (1..=limits.blocks).contains(blocks))
            && sides.iter().all(|side| Layout::of(form, *side, self).is_some())
    }

    /// Cycles that a product takes, by a model in which a multiprocessor computes one block after the other: that tiles are
    /// filled up, that few large ones leave processors idle, and that small ones read more for each product all counts. What
    /// a round takes but for products is assumed to be the same for warps and warpgroups.
    pub(super) fn cycles(&self, form: &Form, architecture: Architecture) -> usize {
        let multiprocessors = match Device::of_architecture(architecture.name()) {
            Some(device) if architecture.has_warpgroups() => device.multiprocessors,
            _ => MULTIPROCESSORS,
        };
        let waves = self.blocks(form).iter().product::<usize>().div_ceil(multiprocessors);
        let outer = form.depth.split_last().map_or(1, |(_, outer)| outer.iter().product());
        let rounds = outer * form.inner().div_ceil(self.depth(form.factors.bytes()));
        let warps = (self.lanes() / WARP_LANES).div_ceil(TENSOR_CORES);
        let products = self.warp[0] / 16 * (self.warp[1] / 8) * (self.depth_bytes / STEP);
        let cycles = match self.multiplier {
            Multiplier::Warp => PRODUCT_CYCLES,
            Multiplier::Warpgroup => WARPGROUP_PRODUCT_CYCLES,
        };
        waves * (rounds + self.stages) * (ROUND_CYCLES + warps * products * cycles)
    }
}

/// Whether `wgmma` multiplies such factors. Bytes of which one operand's alone have signs take PTX 8.4, and with it a driver
/// of CUDA 12.4.
fn by_warpgroups(factors: Factors) -> bool {
    match factors {
        Factors::Half | Factors::BFloat | Factors::TensorFloat => true,
        Factors::Bytes([left, right]) => left == right,
    }
}

/// A tile of an operand in shared memory: lines of chunks, whose order in a line is changed so that the eight lines of
/// a matrix lie in different banks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Whether neighbours in a line are neighbours along the depth; else along rows or columns.
    pub(super) by_depth: bool,
    /// Lines of the tile.
    pub(super) lines: usize,
    /// Parts of the tile that lie behind each other, each with all lines: one, or those of a swizzle's line of rows or columns, in
    /// which warpgroups read.
    pub(super) panels: usize,
    /// Chunks of a line of a panel.
    pub(super) chunks: usize,
    /// Lines from which on the order of chunks is another.
    pub(super) turn: usize,
    /// Elements of a chunk.
    pub(super) in_chunk: usize,
}

impl Layout {
    /// The layout of a tile of the left (0) or right (1) operand; `None` where chunks of it are no neighbours in memory, do
    /// not begin at whole chunks, or are not whole. Only matrices of elements of two bytes are transposed on the way to
    /// registers.
    pub(super) fn of(form: &Form, side: usize, tiles: &Tiles) -> Option<Self> {
        let (operand, bytes) = (&form.operands[side], form.factors.bytes());
        let (depth, across) = (tiles.depth(bytes), tiles.block[side]);
        let in_chunk = CHUNK / bytes;
        let (inner, outer) = operand.depth.split_last()?;
        let by_depth = *inner == 1;
        // The axis along which a chunk's elements are neighbours, and what steps over it.
        let (neighbours, lines, length) = match by_depth {
            true => (form.inner(), across, depth),
            false => (along_neighbours(form, side)?, depth, across),
        };
        let steps = operand.across.iter().filter(|step| by_depth || **step != 1).chain(outer);
        let steps = steps.chain(&operand.batch).chain([&operand.start]);
        let steps = steps.chain((!by_depth).then_some(inner));
        let aligned = steps.into_iter().all(|step| *step % in_chunk as i64 == 0);
        let in_line = length / in_chunk;
        let chunks = match tiles.multiplier {
            Multiplier::Warp => in_line,
            Multiplier::Warpgroup => tiles.depth_bytes / CHUNK,
        };
        let turn = (8 / chunks).max(1);
        // A lane copies the same chunk of lines that turn alike.
        let rounds = tiles.lanes() / in_line;
        let even = (lines * in_line).is_multiple_of(tiles.lanes())
            && rounds.is_multiple_of(turn * chunks.min(8));
        let fits = aligned
            && even
            && neighbours.is_multiple_of(in_chunk)
            && (by_depth || (bytes == 2 && (side == 1 || form.bounds.is_empty())));
        let panels = in_line / chunks;
        fits.then_some(Self { by_depth, lines, panels, chunks, turn, in_chunk })
    }

    /// Bytes of the tile.
    pub(super) fn bytes(&self) -> usize {
        self.panels * self.panel_bytes()
    }

    /// Bytes of a panel.
    pub(super) fn panel_bytes(&self) -> usize {
        self.lines * self.line_bytes()
    }

    /// Chunks of a line in all panels.
    pub(super) fn all_chunks(&self) -> usize {
        self.panels * self.chunks
    }

    /// Bytes of a line of a panel.
    pub(super) fn line_bytes(&self) -> usize {
        self.chunks * CHUNK
    }
}

/// Rows (0) or columns (1) of an operand that are neighbours in memory; `None` where it has none.
fn along_neighbours(form: &Form, side: usize) -> Option<usize> {
    match form.operands[side].distance(&form.across[side]) {
        Some(distance) => (distance == 1).then(|| form.extent(side)),
        None => {
            let innermost = form.operands[side].across.last().zip(form.across[side].last());
            innermost.filter(|(step, _)| **step == 1).map(|(_, axis)| axis.extent)
        }
    }
}
