//! AVX512-VNNI and AVX-VNNI: `vpdpbusd`.

use super::{Emit, Gain, Instruction};
use crate::error::Result;
use crate::llvm::ir::{Ir, V};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_U8_I8,
    mnemonic: "vpdpbusd",
    gain: |_| Gain::Always,
    present: |target| {
        let has = |feature| target.has("x86_64", feature);
        // AVX-VNNI has the same instruction for vectors of up to 32 bytes.
        has("avx512vnni") && has("avx512vl") || has("avxvnni") && target.vector_bytes <= 32
    },
    emit: Emit::Words(|ir, words| {
        let [unsigned, signed] = words.operands()?;
        dot(ir, words.lanes, [words.sums, unsigned, signed])
    }),
};

/// Sums, unsigned bytes and signed bytes: the sums after it.
pub(super) fn dot<'c>(ir: &Ir<'c>, lanes: u32, operands: [V<'c>; 3]) -> Result<V<'c>> {
    ir.intrinsic(&format!("llvm.x86.avx512.vpdpbusd.{}", 32 * lanes), &[], &operands)
}
