//! Arm's bfloat16 (FEAT_BF16): `bfdot`.

use super::{Emit, Gain, Instruction};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_BF16,
    mnemonic: "bfdot",
    gain: |_| Gain::Always,
    present: |target| target.has("aarch64", "bf16"),
    emit: Emit::Words(|ir, words| {
        let pairs = ir.context.bf16_type().vec_type(2 * words.lanes);
        let [a, b] = words.operands()?;
        let a = ir.builder.build_bit_cast(a, pairs, "")?;
        let b = ir.builder.build_bit_cast(b, pairs, "")?;
        let sums = ir.context.f32_type().vec_type(words.lanes);
        ir.intrinsic("llvm.aarch64.neon.bfdot", &[sums.into(), pairs.into()], &[words.sums, a, b])
    }),
};
