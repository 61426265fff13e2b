//! Tiles of a product, and where their elements lie in shared memory.

use super::form::Form;
use hone_machine::{MULTIPROCESSORS, PRODUCT_CYCLES, ROUND_CYCLES, WARP_LANES};
use hone_tensor::Limits;

/// Bytes that one asynchronous copy brings, and that a row of a matrix of `ldmatrix` has.
pub(in crate::nvptx) const CHUNK: usize = 16;
/// Bytes of the depth of one `mma.sync`.
pub(super) const STEP: usize = 32;
/// Bytes of the depth of a block's tile.
const DEPTH: usize = 64;

/// How a product is divided among blocks and warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Rows and columns of a block's tile; its depth is 64 bytes. The last ones along an axis are filled up with zeros.
    pub block: [usize; 2],
    /// Rows and columns of a warp's tile: multiples of 16.
    pub warp: [usize; 2],
    /// Tiles of the depth that are in shared memory or on their way to it.
    pub stages: usize,
}

impl Tiles {
    /// Tiles that are tried, largest first: many products for each element that is brought to shared memory first.
    pub const ALL: [Tiles; 5] = [
        Tiles { block: [128, 128], warp: [64, 64], stages: 3 },
        Tiles { block: [128, 64], warp: [64, 32], stages: 4 },
        Tiles { block: [64, 128], warp: [32, 64], stages: 4 },
        Tiles { block: [64, 64], warp: [32, 32], stages: 4 },
        Tiles { block: [32, 32], warp: [16, 16], stages: 4 },
    ];

    /// Lanes of a block.
    pub fn lanes(&self) -> usize {
        WARP_LANES * (self.block[0] / self.warp[0]) * (self.block[1] / self.warp[1])
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        self.stages * DEPTH * (self.block[0] + self.block[1])
    }

    /// Depth of a block's tile, in elements of so many bytes.
    pub fn depth(&self, bytes: usize) -> usize {
        DEPTH / bytes
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

    /// Whether a product comes in such tiles under the limits of a device.
    pub(super) fn fit(&self, form: &Form, limits: &Limits) -> bool {
        let sides = [0, 1];
        let counted = |side: usize| form.extent(side).next_multiple_of(self.block[side]);
        form.depth.iter().all(|extent| *extent > 0)
            && sides.iter().all(|side| i32::try_from(counted(*side)).is_ok())
            && self.lanes() <= limits.lanes
            && self.shared_bytes() <= limits.shared_bytes
            && self.blocks(form).iter().all(|blocks| (1..=limits.blocks).contains(blocks))
            && sides.iter().all(|side| Layout::of(form, *side, self).is_some())
    }

    /// Cycles that a product takes, by a model in which a multiprocessor computes one block after the other: that tiles are
    /// filled up, that few large ones leave processors idle, and that small ones read more for each product all counts.
    pub(super) fn cycles(&self, form: &Form) -> usize {
        let waves = self.blocks(form).iter().product::<usize>().div_ceil(MULTIPROCESSORS);
        let outer = form.depth.split_last().map_or(1, |(_, outer)| outer.iter().product());
        let rounds = outer * form.inner().div_ceil(self.depth(form.factors.bytes()));
        let products = self.warp[0] / 16 * (self.warp[1] / 8) * (DEPTH / STEP);
        waves * (rounds + self.stages) * (ROUND_CYCLES + products * PRODUCT_CYCLES)
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
    /// Chunks of a line.
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
        let chunks = length / in_chunk;
        let turn = (8 / chunks).max(1);
        // A lane copies the same chunk of lines that turn alike.
        let rounds = tiles.lanes() / chunks;
        let even = (lines * chunks).is_multiple_of(tiles.lanes())
            && rounds.is_multiple_of(turn * chunks.min(8));
        let fits = aligned
            && even
            && neighbours.is_multiple_of(in_chunk)
            && (by_depth || (bytes == 2 && (side == 1 || form.bounds.is_empty())));
        fits.then_some(Self { by_depth, lines, chunks, turn, in_chunk })
    }

    /// Bytes of the tile.
    pub(super) fn bytes(&self) -> usize {
        self.lines * self.line_bytes()
    }

    /// Bytes of a line.
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
