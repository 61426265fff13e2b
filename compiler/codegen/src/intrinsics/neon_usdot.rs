//! Arm's integer matrix extension (FEAT_I8MM): `usdot`.

use super::neon_sdot::{bytes, vector};
use super::{Emit, Gain, Instruction};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_U8_I8,
    mnemonic: "usdot",
    gain: |_| Gain::Always,
    present: |target| target.has("aarch64", "i8mm"),
    emit: Emit::Words(|ir, words| {
        let [unsigned, signed] = words.operands()?;
        let (unsigned, signed) = (bytes(ir, unsigned)?, bytes(ir, signed)?);
        let types = vector(ir);
        ir.intrinsic("llvm.aarch64.neon.usdot", &types, &[words.sums, unsigned, signed])
    }),
};
