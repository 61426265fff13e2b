//! The kernel of a product.

use super::form::{Factors, Form};
use super::is_read_only;
use super::tiles::{CHUNK, Layout, STEP, Tiles};
use crate::Target;
use crate::error::{CodegenError, Result};
use crate::llvm::ir::{Ir, V};
use crate::nvptx::kernel::{GLOBAL, attribute, declare_kernel, shared_memory};
use hone_tensor::{Argument, BufferId, Kernel, Program};
use inkwell::attributes::AttributeLoc;
use inkwell::values::{BasicValue, FunctionValue, InstructionOpcode as Op, IntValue, PointerValue};
use inkwell::{AddressSpace, IntPredicate};
use std::collections::HashMap;

/// Adds the kernel to a module.
pub(super) fn emit(
    ir: &Ir<'_>,
    program: &Program,
    target: &Target,
    form: &Form,
    tiles: &Tiles,
    kernel: &Kernel,
) -> Result<()> {
    let (function, buffers) = declare(ir, program, form, kernel);
    ir.builder.position_at_end(ir.block(function, "entry"));
    let shared = shared_memory(ir, &format!("{}_stages", kernel.name), tiles.shared_bytes() as u32);
    let layout = |side: usize| {
        Layout::of(&form.operands[side], tiles.block[side], tiles, form.factors.bytes())
    };
    let (Some(left), Some(right)) = (layout(0), layout(1)) else {
        return Err(unfit(kernel, "its operands do not come in whole chunks"));
    };
    let mut product = Product {
        ir,
        form,
        tiles,
        layouts: [left, right],
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

fn unfit(kernel: &Kernel, message: &str) -> CodegenError {
    CodegenError::Unsupported { symbol: kernel.name.clone(), message: message.to_string() }
}

/// The function, and the pointers to buffers that it gets.
fn declare<'c>(
    ir: &Ir<'c>,
    program: &Program,
    form: &Form,
    kernel: &Kernel,
) -> (FunctionValue<'c>, HashMap<BufferId, PointerValue<'c>>) {
    let pointer = ir.context.ptr_type(AddressSpace::from(GLOBAL)).into();
    let function =
        declare_kernel(ir, &kernel.name, &vec![pointer; kernel.arguments.len()], kernel.items);
    let mut buffers = HashMap::new();
    for ((position, argument), value) in
        kernel.arguments.iter().enumerate().zip(function.get_params())
    {
        let Argument::Buffer(buffer) = argument else { continue };
        buffers.insert(*buffer, value.into_pointer_value());
        let location = AttributeLoc::Param(position as u32);
        function.add_attribute(location, attribute(ir, "align", CHUNK as u64));
        function.add_attribute(location, attribute(ir, "noalias", 0));
        if is_read_only(program, form, *buffer) {
            function.add_attribute(location, attribute(ir, "readonly", 0));
        }
    }
    (function, buffers)
}

/// What is known while the kernel is made.
pub(super) struct Product<'a, 'c> {
    pub(super) ir: &'a Ir<'c>,
    pub(super) form: &'a Form,
    pub(super) tiles: &'a Tiles,
    layouts: [Layout; 2],
    pub(super) function: FunctionValue<'c>,
    shared: PointerValue<'c>,
    pub(super) kernel: &'a Kernel,
    /// The number of the lane in its block.
    lane: IntValue<'c>,
    /// The number of the block along columns, rows and batch.
    pub(super) block: [IntValue<'c>; 3],
}

/// Where a lane's results are: the first row and column, which the constants of each sum are added to.
pub(super) struct Origin<'c> {
    pub(super) row: IntValue<'c>,
    pub(super) column: IntValue<'c>,
}

/// Addresses of one operand in a lane.
struct Stream<'c> {
    /// The first chunk to be copied of the tile that comes next.
    source: PointerValue<'c>,
    /// Where in a stage the first chunk goes.
    target: IntValue<'c>,
    /// What a lane adds to the start of a stage, to read matrices: along the depth, or along rows or columns.
    reads: Vec<IntValue<'c>>,
}

impl<'c> Product<'_, 'c> {
    fn op(&self, op: Op, a: IntValue<'c>, b: i64) -> Result<IntValue<'c>> {
        Ok(self.ir.binary(op, a.into(), self.ir.i64(b).into())?.into_int_value())
    }

    fn add(&self, a: IntValue<'c>, b: IntValue<'c>) -> Result<IntValue<'c>> {
        Ok(self.ir.binary(Op::Add, a.into(), b.into())?.into_int_value())
    }

    fn times(&self, a: IntValue<'c>, factor: usize) -> Result<IntValue<'c>> {
        self.op(Op::Mul, a, factor as i64)
    }

    /// Reads the numbers of lane and block.
    fn number(&mut self) -> Result<()> {
        let read = |name: &str| -> Result<IntValue<'c>> {
            let name = format!("llvm.nvvm.read.ptx.sreg.{name}");
            let number = self.ir.intrinsic(&name, &[], &[])?;
            Ok(self
                .ir
                .convert(Op::ZExt, number, self.ir.context.i64_type().into())?
                .into_int_value())
        };
        let lane = read("tid.x")?;
        let block = [read("ctaid.x")?, read("ctaid.y")?, read("ctaid.z")?];
        (self.lane, self.block) = (lane, block);
        Ok(())
    }

    /// The first row and the first column of this lane's warp in the block's tile.
    fn warp(&self) -> Result<[IntValue<'c>; 2]> {
        let warp = self.op(Op::LShr, self.lane, 5)?;
        let across = (self.tiles.block[1] / self.tiles.warp[1]) as i64;
        let (row, column) = (self.op(Op::UDiv, warp, across)?, self.op(Op::URem, warp, across)?);
        Ok([self.times(row, self.tiles.warp[0])?, self.times(column, self.tiles.warp[1])?])
    }

    /// The number of this block along an axis of the batch.
    pub(super) fn along_batch(&self, axis: usize) -> Result<IntValue<'c>> {
        let inner: usize = self.form.batch[axis + 1..].iter().map(|(_, extent)| extent).product();
        let outer = self.op(Op::UDiv, self.block[2], inner as i64)?;
        self.op(Op::URem, outer, self.form.batch[axis].1 as i64)
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

    /// What the number of a chunk in a line is changed by (exclusive or).
    fn swizzle(&self, layout: &Layout, line: IntValue<'c>) -> Result<IntValue<'c>> {
        let turn = self.op(Op::UDiv, line, layout.turn as i64)?;
        self.op(Op::And, turn, layout.chunks.min(8) as i64 - 1)
    }

    /// The byte in a tile at which a chunk of a line begins.
    fn byte(
        &self,
        layout: &Layout,
        line: IntValue<'c>,
        chunk: IntValue<'c>,
    ) -> Result<IntValue<'c>> {
        let swizzle = self.swizzle(layout, line)?;
        let chunk = self.ir.binary(Op::Xor, chunk.into(), swizzle.into())?.into_int_value();
        self.add(self.times(line, layout.line_bytes())?, self.times(chunk, CHUNK)?)
    }

    fn stream(&self, side: usize, start: PointerValue<'c>) -> Result<Stream<'c>> {
        let (layout, operand) = (&self.layouts[side], &self.form.operands[side]);
        let chunks = layout.chunks as i64;
        let line = self.op(Op::UDiv, self.lane, chunks)?;
        let chunk = self.op(Op::URem, self.lane, chunks)?;
        let target = self.byte(layout, line, chunk)?;
        // Rows are along the blocks' `y`, columns along their `x`.
        let tile = self.times(self.block[1 - side], self.tiles.block[side])?;
        let mut element = self.op(Op::Mul, tile, operand.across)?;
        element = self.add(element, self.op(Op::Mul, line, layout.pitch)?)?;
        element = self.add(element, self.times(chunk, layout.in_chunk)?)?;
        for (axis, step) in operand.batch.iter().enumerate() {
            element = self.add(element, self.op(Op::Mul, self.along_batch(axis)?, *step)?)?;
        }
        element = self.op(Op::Add, element, operand.start)?;
        let source = self.ir.offset(start, self.times(element, self.bytes())?)?;
        Ok(Stream { source, target, reads: self.reads(side)? })
    }

    /// What a lane adds to a stage to read its row of the four matrices that `ldmatrix` reads at once.
    fn reads(&self, side: usize) -> Result<Vec<IntValue<'c>>> {
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
    fn start_in_stage(&self, side: usize) -> usize {
        if side == 0 { 0 } else { self.layouts[0].bytes() }
    }

    /// Bytes of an element of the operands.
    fn bytes(&self) -> usize {
        self.form.factors.bytes()
    }

    /// Depth of a tile, in elements.
    fn depth(&self) -> usize {
        self.tiles.depth(self.bytes())
    }

    /// Steps of `mma.sync` along the depth of a tile.
    fn steps(&self) -> usize {
        self.depth() * self.bytes() / STEP
    }

    fn stage_bytes(&self) -> usize {
        self.layouts.iter().map(Layout::bytes).sum()
    }

    /// Bytes between the tiles of an operand that follow each other along the depth.
    fn advance(&self, side: usize) -> i64 {
        (self.bytes() * self.depth()) as i64 * self.form.operands[side].depth
    }

    /// Starts the copies of a tile to a stage.
    fn copy(
        &self,
        streams: &[Stream<'c>; 2],
        sources: [PointerValue<'c>; 2],
        stage: IntValue<'c>,
    ) -> Result<()> {
        for (side, stream) in streams.iter().enumerate() {
            let layout = &self.layouts[side];
            let rounds = layout.lines * layout.chunks / self.tiles.lanes();
            let lines = self.tiles.lanes() / layout.chunks;
            let target = self.ir.offset(self.shared, self.add(stage, stream.target)?)?;
            for round in 0..rounds {
                let to = self.start_in_stage(side) + round * lines * layout.line_bytes();
                let to = self.ir.offset(target, self.ir.i64(to as i64))?;
                let from = (self.bytes() * round * lines) as i64 * layout.pitch;
                let from = self.ir.offset(sources[side], self.ir.i64(from))?;
                let args: [V<'c>; 2] = [to.into(), from.into()];
                self.ir.intrinsic_call("llvm.nvvm.cp.async.cg.shared.global.16", &[], &args)?;
            }
        }
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        self.ir.intrinsic_call("llvm.nvvm.cp.async.commit.group", &[], &[]).map(drop)
    }

    /// Waits until all but the last `groups` tiles have come.
    fn wait(&self, groups: usize) -> Result<()> {
        let groups = self.ir.i32(groups as i32).into();
        self.ir.intrinsic_call("llvm.nvvm.cp.async.wait.group", &[], &[groups]).map(drop)
    }

    /// All sums of a lane: by rows of 16, columns of 8, and register.
    fn sums(&self, buffers: &HashMap<BufferId, PointerValue<'c>>) -> Result<Vec<V<'c>>> {
        let missing = || unfit(self.kernel, "an operand is missing");
        let start = |side: usize| {
            let buffer = self.form.operands[side].buffer;
            buffers.get(&buffer).copied().ok_or_else(missing)
        };
        let streams = [self.stream(0, start(0)?)?, self.stream(1, start(1)?)?];
        let (ahead, rounds) = (self.tiles.stages - 1, self.form.extents[2] / self.depth());
        let moved = |by: usize| -> Result<[PointerValue<'c>; 2]> {
            let by = |side: usize| self.ir.i64(by as i64 * self.advance(side));
            let of = |side: usize| self.ir.offset(streams[side].source, by(side));
            Ok([of(0)?, of(1)?])
        };
        for stage in 0..ahead {
            if stage < rounds {
                let at = self.ir.i64((stage * self.stage_bytes()) as i64);
                self.copy(&streams, moved(stage)?, at)?;
            }
            self.commit()?;
        }
        let sums = self.rounds(&streams, moved(ahead)?, rounds)?;
        self.wait(0)?;
        Ok(sums)
    }

    /// The loop over tiles of the depth.
    fn rounds(
        &self,
        streams: &[Stream<'c>; 2],
        sources: [PointerValue<'c>; 2],
        rounds: usize,
    ) -> Result<Vec<V<'c>>> {
        let (ir, tiles) = (self.ir, self.tiles);
        let (ahead, stage) = (tiles.stages - 1, self.stage_bytes() as i64);
        let zero = ir.context.f32_type().const_zero().into();
        let none = ir.context.i32_type().const_zero().into();
        let zero: V<'c> = if matches!(self.form.factors, Factors::Bytes(_)) { none } else { zero };
        let count = tiles.warp[0] / 16 * (tiles.warp[1] / 8) * 4;
        let mut carried: Vec<V<'c>> = vec![
            ir.i64(0).into(),
            sources[0].into(),
            sources[1].into(),
            ir.i64(0).into(),
            ir.i64(ahead as i64 * stage).into(),
        ];
        let fixed = carried.len();
        carried.extend(vec![zero; count]);
        let (before, head) = (ir.here()?, ir.block(self.function, "round"));
        ir.builder.build_unconditional_branch(head)?;
        ir.builder.position_at_end(head);
        let phis: Vec<_> = carried
            .iter()
            .map(|start| {
                let phi = ir.builder.build_phi(start.get_type(), "")?;
                phi.add_incoming(&[(start as &dyn BasicValue<'c>, before)]);
                Ok(phi)
            })
            .collect::<Result<_>>()?;
        let values: Vec<V<'c>> = phis.iter().map(|phi| phi.as_basic_value()).collect();
        let round = values[0].into_int_value();
        let sources = [values[1].into_pointer_value(), values[2].into_pointer_value()];
        let (read, write) = (values[3].into_int_value(), values[4].into_int_value());
        // All but the tiles behind the next one; then what every lane has copied is there for all, and the stage that
        // was multiplied last is free.
        self.wait(ahead - 1)?;
        ir.intrinsic_call("llvm.nvvm.barrier0", &[], &[])?;
        if rounds > ahead {
            let more = ir.compare_int(
                IntPredicate::ULT,
                round.into(),
                ir.i64((rounds - ahead) as i64).into(),
            )?;
            let (copy, after) =
                (ir.block(self.function, "copy"), ir.block(self.function, "copied"));
            ir.builder.build_conditional_branch(more.into_int_value(), copy, after)?;
            ir.builder.position_at_end(copy);
            self.copy(streams, sources, write)?;
            ir.builder.build_unconditional_branch(after)?;
            ir.builder.position_at_end(after);
        }
        self.commit()?;
        let sums = self.multiply(streams, read, &values[fixed..])?;
        let mut next: Vec<V<'c>> = vec![self.op(Op::Add, round, 1)?.into()];
        for (side, source) in sources.into_iter().enumerate() {
            next.push(ir.offset(source, ir.i64(self.advance(side)))?.into());
        }
        for offset in [read, write] {
            let moved = self.op(Op::Add, offset, stage)?;
            let end: V<'c> = ir.i64(tiles.stages as i64 * stage).into();
            let over = ir.compare_int(IntPredicate::EQ, moved.into(), end)?;
            next.push(ir.select(over, ir.i64(0).into(), moved.into())?);
        }
        next.extend(&sums);
        let continues = ir.compare_int(IntPredicate::ULT, next[0], ir.i64(rounds as i64).into())?;
        let (last, done) = (ir.here()?, ir.block(self.function, "done"));
        ir.builder.build_conditional_branch(continues.into_int_value(), head, done)?;
        for (phi, value) in phis.iter().zip(&next) {
            phi.add_incoming(&[(value as &dyn BasicValue<'c>, last)]);
        }
        ir.builder.position_at_end(done);
        Ok(sums)
    }

    /// Adds the products of one stage to the sums.
    fn multiply(
        &self,
        streams: &[Stream<'c>; 2],
        stage: IntValue<'c>,
        sums: &[V<'c>],
    ) -> Result<Vec<V<'c>>> {
        let [rows, columns] = self.tiles.warp;
        let mut sums = sums.to_vec();
        for step in 0..self.steps() {
            let parts = |side: usize, count: usize| -> Result<Vec<Vec<V<'c>>>> {
                (0..count)
                    .map(|part| self.matrices(&streams[side], side, stage, part, step))
                    .collect()
            };
            let (left, right) = (parts(0, rows / 16)?, parts(1, columns / 16)?);
            for (row, a) in left.iter().enumerate() {
                for column in 0..columns / 8 {
                    let b = &right[column / 2][2 * (column % 2)..][..2];
                    let first = 4 * (row * (columns / 8) + column);
                    let products = self.multiply_add(a, b, &sums[first..first + 4])?;
                    sums[first..first + 4].copy_from_slice(&products);
                }
            }
        }
        Ok(sums)
    }

    /// Four matrices of an operand: 16 rows or columns by 16 of the depth.
    fn matrices(
        &self,
        stream: &Stream<'c>,
        side: usize,
        stage: IntValue<'c>,
        part: usize,
        step: usize,
    ) -> Result<Vec<V<'c>>> {
        let layout = &self.layouts[side];
        let (by_lane, lines) = if layout.by_depth { (step, part) } else { (part, step) };
        let start = self.ir.offset(self.shared, self.add(stage, stream.reads[by_lane])?)?;
        let offset = self.start_in_stage(side) + 16 * lines * layout.line_bytes();
        let address = self.ir.offset(start, self.ir.i64(offset as i64))?;
        let transposed = if layout.by_depth { "" } else { ".trans" };
        let name = format!("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{transposed}.b16");
        let read = self.ir.intrinsic(&name, &[address.get_type().into()], &[address.into()])?;
        self.parts(read)
    }

    /// The four parts of what an intrinsic gives.
    fn parts(&self, value: V<'c>) -> Result<Vec<V<'c>>> {
        let V::StructValue(value) = value else {
            return Err(unfit(self.kernel, "an intrinsic gives no parts"));
        };
        (0..4).map(|part| Ok(self.ir.builder.build_extract_value(value, part, "")?)).collect()
    }

    fn multiply_add(&self, a: &[V<'c>], b: &[V<'c>], sums: &[V<'c>]) -> Result<Vec<V<'c>>> {
        let sign = |signed: bool| if signed { "s8" } else { "u8" };
        let kind = match self.form.factors {
            Factors::Half => "m16n8k16.row.col.f32.f32".to_string(),
            Factors::BFloat => "m16n8k16.row.col.bf16".to_string(),
            Factors::TensorFloat => "m16n8k8.row.col.tf32".to_string(),
            Factors::Bytes([left, right]) if left == right => {
                format!("m16n8k32.row.col.{}", sign(left))
            }
            Factors::Bytes([left, right]) => {
                format!("m16n8k32.row.col.{}.{}", sign(left), sign(right))
            }
        };
        let pair = self.ir.context.f16_type().vec_type(2);
        let mut args = Vec::with_capacity(10);
        for word in a.iter().chain(b) {
            args.push(match self.form.factors {
                Factors::Half => self.ir.builder.build_bit_cast(*word, pair, "")?,
                _ => *word,
            });
        }
        args.extend(sums);
        self.parts(self.ir.intrinsic(&format!("llvm.nvvm.mma.{kind}"), &[], &args)?)
    }
}
