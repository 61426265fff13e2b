//! The kernel of an attention: its copies, and the loop over tiles of keys.

use super::form::{Form, Operand};
use super::scores::{Rows, Softmax};
use super::{LANES, ROWS, TILE};
use crate::Target;
use crate::error::Result;
use crate::llvm::emitter::Emitter;
use crate::llvm::environment::Environment;
use crate::llvm::ir::{Ir, V};
use crate::nvptx::instructions::{BFLOAT, HALF, Instructions, missing};
use crate::nvptx::kernel::{annotate, declare_with_buffers, shared_memory};
use crate::nvptx::product::CHUNK;
use hone_tensor::{BufferId, Expr, Kernel, Program, Scope};
use hone_types::DataType;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{
    BasicValue, FunctionValue, InstructionOpcode as Op, IntValue, PhiValue, PointerValue,
};

/// Registers that a lane may have on every device.
const MOST_REGISTERS: usize = 255;

/// Adds the kernel to a module.
pub(super) fn emit(
    ir: &Ir<'_>,
    program: &Program,
    target: &Target,
    form: &Form,
    kernel: &Kernel,
) -> Result<()> {
    let program = with_single_numbers(program, form);
    let stored = program.blocks[form.store].buffer;
    let (function, mut buffers) = declare_with_buffers(ir, &program, kernel, stored, CHUNK);
    // The assembler would rather spill some than leave a multiprocessor a block fewer.
    annotate(ir, function, "maxnreg", MOST_REGISTERS);
    ir.builder.position_at_end(ir.block(function, "entry"));
    for buffer in [form.scores, form.largest, form.sums, form.products] {
        let memory = ir.memory_type(DataType::F32);
        buffers.insert(buffer, ir.builder.build_alloca(memory, "")?);
    }
    let shared = shared_memory(ir, &format!("{}_tiles", kernel.name), kernel.shared_bytes as u32);
    let code = Instructions { ir, symbol: &kernel.name };
    let environment = Environment::new(program.vars.len());
    let emitter =
        Emitter::new(ir, (&program, target), (&kernel.name, function), environment, buffers);
    let (lane, block) = (code.special("tid.x")?, code.special("ctaid.x")?);
    let batch = batch(&code, form)?;
    let mut kernel = Attention { code, form, function, shared, lane, block, batch };
    let mut rows = Rows::new(&kernel, emitter)?;
    let (products, softmax) = kernel.tiles(&mut rows)?;
    rows.store(&kernel, &products, &softmax)?;
    ir.builder.build_return(None)?;
    Ok(())
}

/// The program with one number, in a register, in place of all scores, largest scores, sums and products.
fn with_single_numbers(program: &Program, form: &Form) -> Program {
    let inner = [form.scores, form.largest, form.sums, form.products];
    let mut program = program.clone();
    for buffer in inner {
        program.buffers[buffer].shape = vec![1];
        program.buffers[buffer].scope = Scope::Register;
    }
    program.blocks[form.store].map_expressions(&mut |expr| first_of(expr, &inner));
    program
}

/// An expression that reads the first element of some buffers.
pub(super) fn first_of(expr: &Expr, inner: &[BufferId]) -> Expr {
    match expr {
        Expr::Load(buffer, _) if inner.contains(buffer) => {
            Expr::Load(*buffer, vec![Expr::Integer(0)])
        }
        _ => expr.map_operands(&mut |operand| first_of(operand, inner)),
    }
}

/// The number of this block along each axis of the batch.
fn batch<'c>(code: &Instructions<'_, 'c>, form: &Form) -> Result<Vec<IntValue<'c>>> {
    let number = code.special("ctaid.z")?;
    let each = form.batch.iter().enumerate().map(|(axis, entry)| {
        let inner: usize = form.batch[axis + 1..].iter().map(|axis| axis.extent).product();
        code.op(Op::URem, code.op(Op::UDiv, number, inner as i64)?, entry.extent as i64)
    });
    each.collect()
}

/// What is known while the kernel is made.
pub(super) struct Attention<'a, 'c> {
    pub(super) code: Instructions<'a, 'c>,
    pub(super) form: &'a Form,
    pub(super) function: FunctionValue<'c>,
    shared: PointerValue<'c>,
    /// The number of the lane in its block.
    pub(super) lane: IntValue<'c>,
    /// The number of the tile of queries.
    pub(super) block: IntValue<'c>,
    /// The number of the block along each axis of the batch.
    pub(super) batch: Vec<IntValue<'c>>,
}

/// Copies of tiles of an operand by a lane, which copies the same chunk of several lines.
struct Stream<'c> {
    /// The lane's chunk of the first line of the operand that it copies.
    first: PointerValue<'c>,
    /// Where in shared memory that goes.
    target: PointerValue<'c>,
    /// The line.
    line: IntValue<'c>,
    /// Bytes between lines of the operand, and lines of it.
    pitch: i64,
    lines: usize,
    /// Chunks of a line.
    chunks: usize,
}

/// The four addresses of shared memory at which a lane reads rows of matrices of a tile.
struct Reads<'c> {
    by_number: Vec<PointerValue<'c>>,
    line_bytes: usize,
}

impl<'c> Attention<'_, 'c> {
    fn ir(&self) -> &Ir<'c> {
        self.code.ir
    }

    /// Where in shared memory the tile of an operand begins.
    fn start(&self, operand: usize) -> usize {
        let bytes = TILE * self.form.dtype.bytes();
        [0, bytes * self.form.size, 2 * bytes * self.form.size][operand]
    }

    /// Elements of a line of an operand.
    fn length(&self, operand: usize) -> usize {
        if operand == 2 { self.form.width } else { self.form.size }
    }

    /// The copies of an operand that lies at `start`.
    fn stream(&self, number: usize, start: PointerValue<'c>) -> Result<Stream<'c>> {
        let Operand { start: first, row, batch, .. } = &self.form.operands[number];
        let chunks = self.chunks(number);
        let line = self.code.op(Op::UDiv, self.lane, chunks.0 as i64)?;
        let chunk = self.code.op(Op::URem, self.lane, chunks.0 as i64)?;
        let byte = self.code.byte((line, chunk), chunks)?;
        let bytes = self.form.dtype.bytes() as i64;
        let mut element = self.code.op(Op::Mul, chunk, CHUNK as i64 / bytes)?;
        element = self.code.op(Op::Add, element, *first)?;
        element = self.code.add(element, self.code.op(Op::Mul, line, *row)?)?;
        for (axis, divisor, step) in batch {
            let at = self.code.op(Op::UDiv, self.batch[*axis], *divisor)?;
            element = self.code.add(element, self.code.op(Op::Mul, at, *step)?)?;
        }
        let first = self.ir().offset(start, self.code.op(Op::Mul, element, bytes)?)?;
        let target = self.ir().offset(self.shared, byte)?;
        let target = self.ir().offset(target, self.ir().i64(self.start(number) as i64))?;
        let lines = if number == 0 { self.form.query.extent } else { self.form.key.extent };
        Ok(Stream { first, target, line, pitch: bytes * row, lines, chunks: chunks.0 })
    }

    /// Chunks of a line of an operand's tile, and lines from which on their order is another.
    fn chunks(&self, operand: usize) -> (usize, usize) {
        let chunks = self.length(operand) * self.form.dtype.bytes() / CHUNK;
        (chunks, (8 / chunks).max(1))
    }

    /// Starts the copies of a tile; lines that there are not become zeros.
    fn copy(&self, stream: &Stream<'c>, tile: IntValue<'c>) -> Result<()> {
        let ir = self.ir();
        let each = LANES / stream.chunks;
        let before = self.code.op(Op::Mul, tile, TILE as i64)?;
        let source = ir.offset(stream.first, self.code.op(Op::Mul, before, stream.pitch)?)?;
        let line = self.code.add(before, stream.line)?;
        let end = ir.i64(stream.lines as i64).into();
        for number in (0..TILE).step_by(each) {
            let from = ir.offset(source, ir.i64(number as i64 * stream.pitch))?;
            let to = ir.offset(stream.target, ir.i64((number * stream.chunks * CHUNK) as i64))?;
            let index = self.code.op(Op::Add, line, number as i64)?;
            let exists = ir.compare_int(IntPredicate::ULT, index.into(), end)?;
            self.code.copy_chunk(to, from, Some(exists))?;
        }
        Ok(())
    }

    /// Where a lane reads matrices of an operand. Those of queries have lines of 16 rows of the warp and go along rows first;
    /// those of keys go along the size first; those of values, whose lines are the depth, are transposed.
    fn reads(&self, operand: usize) -> Result<Reads<'c>> {
        let code = &self.code;
        let in_warp = code.op(Op::And, self.lane, 31)?;
        let line = code.op(Op::And, in_warp, 7)?;
        let middle = code.op(Op::And, code.op(Op::LShr, in_warp, 3)?, 1)?;
        let upper = code.op(Op::LShr, in_warp, 4)?;
        let (over_lines, in_line) = if operand == 1 { (upper, middle) } else { (middle, upper) };
        let mut line = code.add(line, code.op(Op::Mul, over_lines, 8)?)?;
        if operand == 0 {
            let warp = code.op(Op::LShr, self.lane, 5)?;
            line = code.add(line, code.op(Op::Mul, warp, ROWS as i64)?)?;
        }
        let chunks = self.chunks(operand);
        let start = self.ir().offset(self.shared, self.ir().i64(self.start(operand) as i64))?;
        let each = (0..chunks.0 / 2).map(|number| {
            let chunk = code.op(Op::Add, in_line, 2 * number as i64)?;
            self.ir().offset(start, code.byte((line, chunk), chunks)?)
        });
        Ok(Reads { by_number: each.collect::<Result<_>>()?, line_bytes: chunks.0 * CHUNK })
    }

    /// Four matrices: 16 elements along lines from 16 `number` on, of 16 lines from 16 `lines` on.
    fn matrices(
        &self,
        reads: &Reads<'c>,
        (number, lines): (usize, usize),
        transposed: bool,
    ) -> Result<Vec<V<'c>>> {
        let offset = self.ir().i64((16 * lines * reads.line_bytes) as i64);
        self.code.matrices(self.ir().offset(reads.by_number[number], offset)?, transposed)
    }

    /// Adds the products of a left matrix with two right ones of 8 columns each to their sums.
    fn multiply(&self, a: &[V<'c>], right: &[V<'c>], sums: &mut [V<'c>]) -> Result<()> {
        let form = if self.form.dtype == DataType::F16 { HALF } else { BFLOAT };
        for (b, sums) in right.chunks(2).zip(sums.chunks_mut(4)) {
            let products = self.code.multiply_add(form, [a, b], sums)?;
            sums.copy_from_slice(&products);
        }
        Ok(())
    }

    /// Copies the queries and the first keys, and reads the queries of the warp: matrices along their length.
    fn queries(&self, streams: &[Stream<'c>; 3], reads: &Reads<'c>) -> Result<Vec<Vec<V<'c>>>> {
        self.copy(&streams[0], self.block)?;
        self.copy(&streams[1], self.ir().i64(0))?;
        self.code.commit()?;
        self.code.wait(0)?;
        self.code.barrier()?;
        let steps = 0..self.form.size / 16;
        steps.map(|step| self.matrices(reads, (step, 0), false)).collect()
    }

    /// The loop over tiles of keys: sums of weighted values by columns of 8 and register, and what is known of the softmax.
    fn tiles(&mut self, rows: &mut Rows<'c, '_>) -> Result<(Vec<V<'c>>, Softmax<'c>)> {
        let pointer = |operand: usize| {
            let buffer = self.form.operands[operand].buffer;
            let found = rows.emitter.buffers.get(&buffer).copied();
            found.ok_or_else(|| missing(self.code.symbol, "operand"))
        };
        let starts = [pointer(0)?, pointer(1)?, pointer(2)?];
        let streams =
            [self.stream(0, starts[0])?, self.stream(1, starts[1])?, self.stream(2, starts[2])?];
        let reads = [self.reads(0)?, self.reads(1)?, self.reads(2)?];
        let queries = self.queries(&streams, &reads[0])?;
        let zero: V<'c> = self.ir().context.f32_type().const_zero().into();
        let mut carried: Vec<V<'c>> = vec![self.ir().i64(0).into()];
        carried.extend(Softmax::none(self.ir()).values());
        let fixed = carried.len();
        carried.extend(vec![zero; self.form.width / 2]);
        let (head, phis) = self.head(&carried)?;
        let values: Vec<V<'c>> = phis.iter().map(|phi| phi.as_basic_value()).collect();
        let tile = values[0].into_int_value();
        let softmax = Softmax::with(&values[1..fixed]);
        let mut products = values[fixed..].to_vec();

        // The keys are there for all; the last tile's values are not read any more.
        self.copy(&streams[2], tile)?;
        self.code.commit()?;
        let mut scores = vec![zero; TILE / 2];
        for (step, query) in queries.iter().enumerate() {
            for part in 0..TILE / 16 {
                let keys = self.matrices(&reads[1], (step, part), false)?;
                self.multiply(query, &keys, &mut scores[8 * part..8 * part + 8])?;
            }
        }
        self.code.barrier()?;
        let next = self.code.op(Op::Add, tile, 1)?;
        self.copy(&streams[1], next)?;
        self.code.commit()?;
        let (softmax, weights) = rows.weigh(self, tile, &scores, (&softmax, &mut products))?;
        self.code.wait(1)?;
        self.code.barrier()?;
        for (step, weights) in weights.chunks(4).enumerate() {
            for part in 0..self.form.width / 16 {
                let values = self.matrices(&reads[2], (part, step), true)?;
                self.multiply(weights, &values, &mut products[8 * part..8 * part + 8])?;
            }
        }
        self.code.wait(0)?;
        self.code.barrier()?;
        let mut changed: Vec<V<'c>> = vec![next.into()];
        changed.extend(softmax.values());
        changed.extend(&products);
        self.end((head, &phis), &changed)?;
        Ok((products, softmax))
    }

    /// Begins the loop with values that it carries.
    fn head(&self, carried: &[V<'c>]) -> Result<(BasicBlock<'c>, Vec<PhiValue<'c>>)> {
        let ir = self.ir();
        let (before, head) = (ir.here()?, ir.block(self.function, "keys"));
        ir.builder.build_unconditional_branch(head)?;
        ir.builder.position_at_end(head);
        let phis = carried.iter().map(|start| {
            let phi = ir.builder.build_phi(start.get_type(), "")?;
            phi.add_incoming(&[(start as &dyn BasicValue<'c>, before)]);
            Ok(phi)
        });
        Ok((head, phis.collect::<Result<_>>()?))
    }

    /// Ends the loop; the first of the changed values counts its tiles.
    fn end(
        &self,
        (head, phis): (BasicBlock<'c>, &[PhiValue<'c>]),
        changed: &[V<'c>],
    ) -> Result<()> {
        let ir = self.ir();
        let count = ir.i64(self.form.key.extent.div_ceil(TILE) as i64);
        let continues = ir.compare_int(IntPredicate::ULT, changed[0], count.into())?;
        let (last, done) = (ir.here()?, ir.block(self.function, "done"));
        ir.builder.build_conditional_branch(continues.into_int_value(), head, done)?;
        for (phi, value) in phis.iter().zip(changed) {
            phi.add_incoming(&[(value as &dyn BasicValue<'c>, last)]);
        }
        ir.builder.position_at_end(done);
        Ok(())
    }
}
