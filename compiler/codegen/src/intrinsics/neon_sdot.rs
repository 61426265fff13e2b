//! Arm's dot products (FEAT_DotProd) of two signed bytes: `sdot`. An unsigned byte less 128 is a signed one, and
//! 128 times the other operand, which is the same for all products that share it, is added.

use super::{Emit, Gain, Instruction};
use crate::error::Result;
use crate::llvm::ir::{Ir, T, V};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_U8_I8,
    mnemonic: "sdot",
    gain: |_| Gain::Always,
    present: |target| target.has("aarch64", "dotprod"),
    emit: Emit::Words(|ir, words| {
        let [unsigned, signed] = words.operands()?;
        let (unsigned, signed) = (bytes(ir, unsigned)?, bytes(ir, signed)?);
        let splat = |value: u64| -> Result<V<'_>> {
            ir.splat(ir.context.i8_type().const_int(value, false).into(), 16)
        };
        let dot = |sums, a, b| ir.intrinsic("llvm.aarch64.neon.sdot", &vector(ir), &[sums, a, b]);
        let lowered = ir.builder.build_xor(
            unsigned.into_vector_value(),
            splat(0x80)?.into_vector_value(),
            "",
        )?;
        let none = words.sums.get_type().const_zero();
        let once = dot(none, signed, splat(64)?)?;
        let twice = dot(once, signed, splat(64)?)?;
        let sums = dot(words.sums, lowered.into(), signed)?;
        let added =
            ir.builder.build_int_add(sums.into_vector_value(), twice.into_vector_value(), "")?;
        Ok(added.into())
    }),
};

/// Four words as sixteen bytes.
pub(super) fn bytes<'c>(ir: &Ir<'c>, words: V<'c>) -> Result<V<'c>> {
    let bytes = ir.context.i8_type().vec_type(16);
    Ok(ir.builder.build_bit_cast(words, bytes, "")?)
}

/// The types that Arm's instructions on bytes are overloaded over.
pub(super) fn vector<'c>(ir: &Ir<'c>) -> [T<'c>; 2] {
    [ir.context.i32_type().vec_type(4).into(), ir.context.i8_type().vec_type(16).into()]
}
