//! Instructions of tensor cores, of a warp and of asynchronous copies, as LLVM names them.

use super::kernel::attribute;
use super::product::CHUNK;
use crate::error::{CodegenError, Result};
use crate::llvm::ir::{Ir, V};
use hone_types::DataType;
use inkwell::attributes::AttributeLoc;
use inkwell::types::FunctionType;
use inkwell::values::{BasicMetadataValueEnum, InstructionOpcode as Op, IntValue, PointerValue};

/// Where instructions are added, in the kernel of a name.
#[derive(Clone, Copy)]
pub(super) struct Instructions<'a, 'c> {
    pub(super) ir: &'a Ir<'c>,
    pub(super) symbol: &'a str,
}

impl<'c> Instructions<'_, 'c> {
    /// Closes the group of copies that were started since the last one.
    pub(super) fn commit(&self) -> Result<()> {
        self.ir.intrinsic_call("llvm.nvvm.cp.async.commit.group", &[], &[]).map(drop)
    }

    /// Waits until all but the last `groups` groups of copies have come.
    pub(super) fn wait(&self, groups: usize) -> Result<()> {
        let groups = self.ir.i32(groups as i32).into();
        self.ir.intrinsic_call("llvm.nvvm.cp.async.wait.group", &[], &[groups]).map(drop)
    }

    /// Makes what this lane has copied or written to shared memory visible to instructions that read it asynchronously
    /// (`wgmma`), for all lanes that a barrier lets wait for it.
    pub(super) fn fence_copies(&self) -> Result<()> {
        self.assembly("fence.proxy.async.shared::cta;", &[])
    }

    /// Instructions for which LLVM has no name, whose operands are numbers of 64 bits: `$0`, `$1`, ...
    pub(super) fn assembly(&self, text: &str, operands: &[IntValue<'c>]) -> Result<()> {
        let long = self.ir.context.i64_type().into();
        let ty = self.ir.context.void_type().fn_type(&vec![long; operands.len()], false);
        let constraints = "l,".repeat(operands.len()) + "~{memory}";
        let args: Vec<_> = operands.iter().map(|operand| (*operand).into()).collect();
        self.inline(ty, (text, &constraints), &args).map(drop)
    }

    /// The value that instructions write to `$0`, of a type of 32 bits, out of no operands.
    pub(super) fn assembly_value(&self, text: &str, is_float: bool) -> Result<V<'c>> {
        let context = self.ir.context;
        let (ty, constraint) = match is_float {
            true => (context.f32_type().fn_type(&[], false), "=f,~{memory}"),
            false => (context.i32_type().fn_type(&[], false), "=r,~{memory}"),
        };
        let value = self.inline(ty, (text, constraint), &[])?;
        value.ok_or_else(|| missing(self.symbol, "value of instructions"))
    }

    fn inline(
        &self,
        ty: FunctionType<'c>,
        (text, constraints): (&str, &str),
        args: &[BasicMetadataValueEnum<'c>],
    ) -> Result<Option<V<'c>>> {
        let (text, constraints) = (text.to_string(), constraints.to_string());
        let context = self.ir.context;
        let code = context.create_inline_asm(ty, text, constraints, true, false, None, false);
        let call = self.ir.builder.build_indirect_call(ty, code, args, "")?;
        // Names may be declared once, and loops around many instructions stay loops.
        call.add_attribute(AttributeLoc::Function, attribute(self.ir, "noduplicate", 0));
        Ok(call.try_as_basic_value().basic())
    }

    /// Lets all lanes of a block wait for each other.
    pub(super) fn barrier(&self) -> Result<()> {
        self.ir.intrinsic_call("llvm.nvvm.barrier0", &[], &[]).map(drop)
    }

    /// Copies a chunk to shared memory, or zeros where there are no elements: then nothing is read.
    pub(super) fn copy_chunk(
        &self,
        to: PointerValue<'c>,
        from: PointerValue<'c>,
        has_elements: Option<V<'c>>,
    ) -> Result<()> {
        let name = "llvm.nvvm.cp.async.cg.shared.global.16";
        let Some(has_elements) = has_elements else {
            return self.ir.intrinsic_call(name, &[], &[to.into(), from.into()]).map(drop);
        };
        let (whole, none) = (self.ir.i32(CHUNK as i32).into(), self.ir.i32(0).into());
        let length = self.ir.select(has_elements, whole, none)?;
        let args = [to.into(), from.into(), length];
        self.ir.intrinsic_call(&format!("{name}.s"), &[], &args).map(drop)
    }

    /// Four matrices of 8 x 8 elements of 16 bits, of which each lane gives the address of a row.
    pub(super) fn matrices(
        &self,
        address: PointerValue<'c>,
        transposed: bool,
    ) -> Result<Vec<V<'c>>> {
        let transposed = if transposed { ".trans" } else { "" };
        let name = format!("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{transposed}.b16");
        self.parts(self.ir.intrinsic(&name, &[address.get_type().into()], &[address.into()])?)
    }

    /// `mma.sync` of a form: the products of registers of both operands, added to sums.
    pub(super) fn multiply_add(
        &self,
        form: &str,
        [a, b]: [&[V<'c>]; 2],
        sums: &[V<'c>],
    ) -> Result<Vec<V<'c>>> {
        let pair = self.ir.context.f16_type().vec_type(2);
        let mut args = Vec::with_capacity(10);
        for word in a.iter().chain(b) {
            args.push(match form == HALF {
                true => self.ir.builder.build_bit_cast(*word, pair, "")?,
                false => *word,
            });
        }
        args.extend(sums);
        self.parts(self.ir.intrinsic(&format!("llvm.nvvm.mma.{form}"), &[], &args)?)
    }

    /// The four parts of what an intrinsic gives.
    fn parts(&self, value: V<'c>) -> Result<Vec<V<'c>>> {
        let V::StructValue(value) = value else {
            return Err(missing(self.symbol, "parts of what an intrinsic gives"));
        };
        (0..4).map(|part| Ok(self.ir.builder.build_extract_value(value, part, "")?)).collect()
    }

    /// The value of the lane whose number differs in the bits `bits`, of a warp that is whole.
    pub(super) fn exchanged(&self, value: V<'c>, bits: i32) -> Result<V<'c>> {
        let number = |value: i32| self.ir.i32(value).into();
        let args = [number(-1), value, number(bits), number(31)];
        self.ir.intrinsic("llvm.nvvm.shfl.sync.bfly.f32", &[], &args)
    }

    /// Two to the power of an `f32`, within 2 units in the last place; results below the normal numbers are 0.
    pub(super) fn power_of_two(&self, exponent: V<'c>) -> Result<V<'c>> {
        self.ir.intrinsic("llvm.nvvm.ex2.approx.ftz.f", &[], &[exponent])
    }

    /// Two `f32` rounded to numbers of 16 bits of a type, the first one in the lower half of a register.
    pub(super) fn rounded_pair(&self, dtype: DataType, pair: [V<'c>; 2]) -> Result<V<'c>> {
        let name = match dtype {
            DataType::F16 => "llvm.nvvm.ff2f16x2.rn",
            _ => "llvm.nvvm.ff2bf16x2.rn",
        };
        let packed = self.ir.intrinsic(name, &[], &[pair[1], pair[0]])?;
        Ok(self.ir.builder.build_bit_cast(packed, self.ir.context.i32_type(), "")?)
    }

    /// An operation with a constant.
    pub(super) fn op(&self, op: Op, a: IntValue<'c>, b: i64) -> Result<IntValue<'c>> {
        let b = a.get_type().const_int(b as u64, true);
        Ok(self.ir.binary(op, a.into(), b.into())?.into_int_value())
    }

    pub(super) fn add(&self, a: IntValue<'c>, b: IntValue<'c>) -> Result<IntValue<'c>> {
        Ok(self.ir.binary(Op::Add, a.into(), b.into())?.into_int_value())
    }

    /// The number that a register of the lane has, such as `tid.x`, in 64 bits.
    pub(super) fn special(&self, register: &str) -> Result<IntValue<'c>> {
        let name = format!("llvm.nvvm.read.ptx.sreg.{register}");
        let number = self.ir.intrinsic(&name, &[], &[])?;
        let long = self.ir.context.i64_type().into();
        Ok(self.ir.convert(Op::ZExt, number, long)?.into_int_value())
    }

    /// The byte at which a chunk of a line begins, where the order of a line's `chunks` changes every `turn` lines, so that
    /// the eight lines of a matrix lie in different banks.
    pub(super) fn byte(
        &self,
        (line, chunk): (IntValue<'c>, IntValue<'c>),
        (chunks, turn): (usize, usize),
    ) -> Result<IntValue<'c>> {
        let swizzle = self.op(Op::UDiv, line, turn as i64)?;
        let swizzle = self.op(Op::And, swizzle, chunks.min(8) as i64 - 1)?;
        let chunk = self.ir.binary(Op::Xor, chunk.into(), swizzle.into())?.into_int_value();
        let line = self.op(Op::Mul, line, (chunks * CHUNK) as i64)?;
        self.add(line, self.op(Op::Mul, chunk, CHUNK as i64)?)
    }
}

/// Products of float16, summed in `f32`.
pub(super) const HALF: &str = "m16n8k16.row.col.f32.f32";
/// Products of bfloat16, summed in `f32`.
pub(super) const BFLOAT: &str = "m16n8k16.row.col.bf16";

/// That a kernel lacks something that its template looked for.
pub(super) fn missing(symbol: &str, what: &str) -> CodegenError {
    CodegenError::Unsupported { symbol: symbol.to_string(), message: format!("no {what}") }
}
