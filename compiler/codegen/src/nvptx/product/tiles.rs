//! Tiles of a product, and where their elements lie in shared memory.

use super::form::{Form, Operand};
use hone_machine::WARP_LANES;
use hone_tensor::Limits;

/// Bytes that one asynchronous copy brings, and that a row of a matrix of `ldmatrix` has.
pub(super) const CHUNK: usize = 16;
/// Bytes of the depth of one `mma.sync`.
pub(super) const STEP: usize = 32;
/// Bytes of the depth of a block's tile.
const DEPTH: usize = 64;

/// How a product is divided among blocks and warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Rows and columns of a block's tile; its depth is 64 bytes.
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

    /// Whether a product comes in such tiles, whole ones, under the limits of a device.
    pub(super) fn fit(&self, form: &Form, limits: &Limits) -> bool {
        let bytes = form.factors.bytes();
        let tile = [self.block[0], self.block[1], self.depth(bytes)];
        let whole = tile.iter().zip(&form.extents).all(|(tile, extent)| extent % tile == 0);
        let batch = form.batch.iter().map(|(_, extent)| extent).product::<usize>();
        let blocks = [form.extents[1] / self.block[1], form.extents[0] / self.block[0], batch];
        let operands = form.operands.iter().zip(&self.block);
        whole
            && form.extents[2] > 0
            && self.lanes() <= limits.lanes
            && self.shared_bytes() <= limits.shared_bytes
            && blocks.iter().all(|blocks| (1..=limits.blocks).contains(blocks))
            && operands
                .into_iter()
                .all(|(operand, across)| Layout::of(operand, *across, self, bytes).is_some())
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
    /// Distance in memory of neighbouring lines, in elements.
    pub(super) pitch: i64,
    /// Elements of a chunk.
    pub(super) in_chunk: usize,
}

impl Layout {
    /// The layout of an operand's tile, `across` rows or columns wide, of elements of so many bytes; `None` where chunks
    /// of it are no neighbours in memory, or do not begin at whole chunks. Only matrices of elements of two bytes are
    /// transposed on the way to registers.
    pub(super) fn of(
        operand: &Operand,
        across: usize,
        tiles: &Tiles,
        bytes: usize,
    ) -> Option<Self> {
        let depth = tiles.depth(bytes);
        let (by_depth, lines, length, pitch) = match (operand.depth, operand.across) {
            (1, pitch) => (true, across, depth, pitch),
            (pitch, 1) if bytes == 2 => (false, depth, across, pitch),
            _ => return None,
        };
        let in_chunk = CHUNK / bytes;
        let chunks = length / in_chunk;
        let steps = operand.batch.iter().chain([&pitch, &operand.start]);
        let aligned = steps.into_iter().all(|step| *step % in_chunk as i64 == 0);
        let turn = (8 / chunks).max(1);
        // A lane copies the same chunk of lines that turn alike.
        let rounds = tiles.lanes() / chunks;
        let even = (lines * chunks).is_multiple_of(tiles.lanes())
            && rounds.is_multiple_of(turn * chunks.min(8));
        let fits = aligned && even && pitch > 0;
        fits.then_some(Self { by_depth, lines, chunks, turn, pitch, in_chunk })
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
