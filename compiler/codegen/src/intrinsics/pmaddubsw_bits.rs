//! Numbers of four bits on x86 without VNNI: `pmaddubsw`, which sums two products in 16 bits and saturates there. It never
//! does so here: four products of numbers up to 15 and -128 are 7,680 at most. Two such sums are added in 16 bits, and
//! `pmaddwd` by ones makes 32 bits of neighbours.

use super::{Emit, Gain, Instruction, halves_of_bytes, pmaddwd};
use crate::error::Result;
use crate::llvm::ir::{Ir, V};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_I8_U4,
    mnemonic: "pmaddubsw",
    // What it gains concerns nothing but numbers of four bits.
    gain: |_| Gain::None,
    present: |target| {
        let needed = match target.vector_bytes {
            64 => "avx512bw",
            32 => "avx2",
            _ => "ssse3",
        };
        target.has("x86_64", needed)
    },
    emit: Emit::Words(|ir, words| {
        let lanes = words.lanes;
        let [first, second, bits] = words.operands()?;
        let [low, high] = halves_of_bytes(ir, bits, lanes)?;
        let (low, high) = (multiply(ir, low, first, lanes)?, multiply(ir, high, second, lanes)?);
        let both =
            ir.builder.build_int_add(low.into_vector_value(), high.into_vector_value(), "")?;
        let one = ir.context.i16_type().const_int(1, false);
        let ones = ir.splat(one.into(), 2 * lanes)?;
        let extended = pmaddwd::multiply(ir, [both.into(), ones], lanes)?.into_vector_value();
        Ok(ir.builder.build_int_add(words.sums.into_vector_value(), extended, "")?.into())
    }),
};

/// Words of unsigned and of signed bytes: the sums of the products of two neighbours each, in 16 bits.
fn multiply<'c>(ir: &Ir<'c>, unsigned: V<'c>, signed: V<'c>, lanes: u32) -> Result<V<'c>> {
    let bytes = ir.context.i8_type().vec_type(4 * lanes);
    let unsigned = ir.builder.build_bit_cast(unsigned, bytes, "")?;
    let signed = ir.builder.build_bit_cast(signed, bytes, "")?;
    let name = match lanes {
        16.. => "llvm.x86.avx512.pmaddubs.w.512",
        8.. => "llvm.x86.avx2.pmadd.ub.sw",
        _ => "llvm.x86.ssse3.pmadd.ub.sw.128",
    };
    ir.intrinsic(name, &[], &[unsigned, signed])
}
