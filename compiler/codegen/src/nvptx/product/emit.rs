//! The kernel of a product.

use super::depth_order::DepthOrder;
use super::form::Form;
use super::tiles::{CHUNK, Layout, Multiplier, STEP, SWIZZLE_BYTES, Tiles};
use crate::Target;
use crate::error::{CodegenError, Result};
use crate::llvm::ir::Ir;
use crate::nvptx::instructions::{self, Instructions};
use crate::nvptx::kernel::{declare_with_buffers, requested_memory, shared_memory};
use hone_tensor::{Kernel, Program};
use inkwell::values::{FunctionValue, InstructionOpcode as Op, IntValue, PointerValue};

/// Adds the kernel to a module.
pub(super) fn emit(
    ir: &Ir<'_>,
    program: &Program,
    target: &Target,
    form: &Form,
    tiles: &Tiles,
    kernel: &Kernel,
) -> Result<()> {
    let stored = program.blocks[form.store].buffer;
    let (function, buffers) = declare_with_buffers(ir, program, kernel, stored, CHUNK);
    ir.builder.position_at_end(ir.block(function, "entry"));
    let name = format!("{}_stages", kernel.name);
    let shared = match tiles.multiplier {
        Multiplier::Warp => shared_memory(ir, &name, tiles.shared_bytes() as u32),
        Multiplier::Warpgroup => requested_memory(ir, &name, SWIZZLE_BYTES as u32),
    };
    let layout = |side: usize| Layout::of(form, side, tiles);
    let (Some(left), Some(right), Some(depth_order)) =
        (layout(0), layout(1), DepthOrder::of(form, tiles))
    else {
        return Err(missing(kernel, "whole chunks of an operand"));
    };
    let mut product = Product {
        ir,
        form,
        tiles,
        layouts: [left, right],
        depth_order,
        function,
        shared,
        kernel,
        lane: ir.i64(0),
        block: [ir.i64(0); 3],
    };
    product.number()?;
    let sums = product.sums(&buffers)?;
    let origin = product.results()?;
    super::results::store(&product, program, target, buffers, &sums, origin)?;
    ir.builder.build_return(None)?;
    Ok(())
}

/// That a kernel lacks something that its template looked for.
pub(super) fn missing(kernel: &Kernel, what: &str) -> CodegenError {
    instructions::missing(&kernel.name, what)
}

/// What is known while the kernel is made.
pub(super) struct Product<'a, 'c> {
    pub(super) ir: &'a Ir<'c>,
    pub(super) form: &'a Form,
    pub(super) tiles: &'a Tiles,
    pub(super) layouts: [Layout; 2],
    pub(super) depth_order: DepthOrder,
    pub(super) function: FunctionValue<'c>,
    pub(super) shared: PointerValue<'c>,
    pub(super) kernel: &'a Kernel,
    /// The number of the lane in its block.
    pub(super) lane: IntValue<'c>,
    /// The number of the block along columns, rows and batch.
    pub(super) block: [IntValue<'c>; 3],
}

/// Where a lane's results are: the first row and column, which the constants of each sum are added to.
pub(super) struct Origin<'c> {
    pub(super) row: IntValue<'c>,
    pub(super) column: IntValue<'c>,
}

impl<'c> Product<'_, 'c> {
    /// Where instructions are added.
    pub(super) fn instructions(&self) -> Instructions<'_, 'c> {
        Instructions { ir: self.ir, symbol: &self.kernel.name }
    }

    /// An operation with a constant.
    pub(super) fn op(&self, op: Op, a: IntValue<'c>, b: i64) -> Result<IntValue<'c>> {
        self.instructions().op(op, a, b)
    }

    pub(super) fn add(&self, a: IntValue<'c>, b: IntValue<'c>) -> Result<IntValue<'c>> {
        self.instructions().add(a, b)
    }

    pub(super) fn times(&self, a: IntValue<'c>, factor: usize) -> Result<IntValue<'c>> {
        self.op(Op::Mul, a, factor as i64)
    }

    /// Reads the numbers of lane and block.
    fn number(&mut self) -> Result<()> {
        let read = |name: &str| self.instructions().special(name);
        let lane = read("tid.x")?;
        let block = [read("ctaid.x")?, read("ctaid.y")?, read("ctaid.z")?];
        (self.lane, self.block) = (lane, block);
        Ok(())
    }

    /// The first row and the first column of this lane's warp in the block's tile.
    pub(super) fn warp(&self) -> Result<[IntValue<'c>; 2]> {
        let warp = self.op(Op::LShr, self.lane, 5)?;
        let across = (self.tiles.block[1] / self.tiles.warp[1]) as i64;
        let (row, column) = (self.op(Op::UDiv, warp, across)?, self.op(Op::URem, warp, across)?);
        Ok([self.times(row, self.tiles.warp[0])?, self.times(column, self.tiles.warp[1])?])
    }

    /// The number of this block along an axis of the batch.
    pub(super) fn along_batch(&self, axis: usize) -> Result<IntValue<'c>> {
        let inner: usize = self.form.batch[axis + 1..].iter().map(|axis| axis.extent).product();
        let outer = self.op(Op::UDiv, self.block[2], inner as i64)?;
        self.op(Op::URem, outer, self.form.batch[axis].extent as i64)
    }

    /// Where this lane's results are.
    fn results(&self) -> Result<Origin<'c>> {
        let [row, column] = self.warp()?;
        let in_warp = self.op(Op::And, self.lane, 31)?;
        let (group, thread) = (self.op(Op::LShr, in_warp, 2)?, self.op(Op::And, in_warp, 3)?);
        let row =
            self.add(self.times(self.block[1], self.tiles.block[0])?, self.add(row, group)?)?;
        let column = self.add(column, self.times(thread, 2)?)?;
        let column = self.add(self.times(self.block[0], self.tiles.block[1])?, column)?;
        Ok(Origin { row, column })
    }

    /// The byte in a tile at which a chunk of a line begins.
    pub(super) fn byte(
        &self,
        layout: &Layout,
        line: IntValue<'c>,
        chunk: IntValue<'c>,
    ) -> Result<IntValue<'c>> {
        let in_panel =
            |chunk| self.instructions().byte((line, chunk), (layout.chunks, layout.turn));
        if layout.panels == 1 {
            return in_panel(chunk);
        }
        let panel = self.op(Op::UDiv, chunk, layout.chunks as i64)?;
        let chunk = self.op(Op::URem, chunk, layout.chunks as i64)?;
        self.add(self.times(panel, layout.panel_bytes())?, in_panel(chunk)?)
    }

    /// What a lane adds to a stage to read its row of the four matrices that `ldmatrix` reads at once.
    pub(super) fn reads(&self, side: usize) -> Result<Vec<IntValue<'c>>> {
        let layout = &self.layouts[side];
        let first = self.warp()?[side];
        let in_warp = self.op(Op::And, self.lane, 31)?;
        let line = self.op(Op::And, in_warp, 7)?;
        let middle = self.op(Op::And, self.op(Op::LShr, in_warp, 3)?, 1)?;
        let upper = self.op(Op::LShr, in_warp, 4)?;
        // Matrices of the left operand go along rows first, of the right one along the depth.
        let (across, depth) = if side == 0 { (middle, upper) } else { (upper, middle) };
        let (in_line, over_lines) = if layout.by_depth { (depth, across) } else { (across, depth) };
        let line = self.add(line, self.times(over_lines, 8)?)?;
        let (line, before) = match layout.by_depth {
            true => (self.add(line, first)?, self.ir.i64(0)),
            false => (line, self.op(Op::UDiv, first, layout.in_chunk as i64)?),
        };
        let count = match layout.by_depth {
            true => self.steps(),
            false => self.tiles.warp[side] / 16,
        };
        let each = (0..count).map(|number| {
            let chunk = self.op(Op::Add, self.add(in_line, before)?, 2 * number as i64)?;
            self.byte(layout, line, chunk)
        });
        each.collect()
    }

    /// Where in a stage an operand's tile begins.
    pub(super) fn start_in_stage(&self, side: usize) -> usize {
        if side == 0 { 0 } else { self.layouts[0].bytes() }
    }

    /// Bytes of an element of the operands.
    pub(super) fn bytes(&self) -> usize {
        self.form.factors.bytes()
    }

    /// Depth of a tile, in elements.
    pub(super) fn depth(&self) -> usize {
        self.tiles.depth(self.bytes())
    }

    /// Steps of `mma.sync` along the depth of a tile.
    pub(super) fn steps(&self) -> usize {
        self.depth() * self.bytes() / STEP
    }

    pub(super) fn stage_bytes(&self) -> usize {
        self.layouts.iter().map(Layout::bytes).sum()
    }
}
