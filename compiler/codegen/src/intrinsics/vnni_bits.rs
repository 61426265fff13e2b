//! Numbers of four bits by AVX512-VNNI and AVX-VNNI: `vpdpbusd` for those in the lower halves of bytes, and once more
//! for those in the upper ones.

use super::{Emit, Gain, Instruction, halves_of_bytes, vnni};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_I8_U4,
    mnemonic: "vpdpbusd",
    // What it gains concerns nothing but numbers of four bits.
    gain: |_| Gain::None,
    present: vnni::INSTRUCTION.present,
    emit: Emit::Words(|ir, words| {
        let [first, second, bits] = words.operands()?;
        let [low, high] = halves_of_bytes(ir, bits, words.lanes)?;
        let sums = vnni::dot(ir, words.lanes, [words.sums, low, first])?;
        vnni::dot(ir, words.lanes, [sums, high, second])
    }),
};
