//! AVX512-BF16: `vdpbf16ps`.

use super::{Emit, Gain, Instruction};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_BF16,
    mnemonic: "vdpbf16ps",
    gain: |_| Gain::Always,
    present: |target| target.has("x86_64", "avx512bf16") && target.has("x86_64", "avx512vl"),
    emit: Emit::Words(|ir, words| {
        let pairs = ir.context.bf16_type().vec_type(2 * words.lanes);
        let [a, b] = words.operands()?;
        let a = ir.builder.build_bit_cast(a, pairs, "")?;
        let b = ir.builder.build_bit_cast(b, pairs, "")?;
        let name = format!("llvm.x86.avx512bf16.dpbf16ps.{}", 32 * words.lanes);
        ir.intrinsic(&name, &[], &[words.sums, a, b])
    }),
};
