//! Numbers of four bits by Arm's dot products (FEAT_DotProd): `sdot`, since such a number is a signed byte too.

use super::neon_sdot::{bytes, vector};
use super::{Emit, Gain, Instruction, halves_of_bytes};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_I8_U4,
    mnemonic: "sdot",
    // What it gains concerns nothing but numbers of four bits.
    gain: |_| Gain::None,
    present: |target| target.has("aarch64", "dotprod"),
    emit: Emit::Words(|ir, words| {
        let [first, second, bits] = words.operands()?;
        let [low, high] = halves_of_bytes(ir, bits, words.lanes)?;
        let dot = |sums, a, b| {
            let operands = [sums, bytes(ir, a)?, bytes(ir, b)?];
            ir.intrinsic("llvm.aarch64.neon.sdot", &vector(ir), &operands)
        };
        dot(dot(words.sums, low, first)?, high, second)
    }),
};
