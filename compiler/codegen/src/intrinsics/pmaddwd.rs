//! Pairs of 16 bits on every x86: `pmaddwd`. Bytes that were widened once where they are stored are multiplied so
//! exactly; `pmaddubsw` would multiply twice as many bytes at once, but saturates at 16 bits: 255 * 127 * 2 is twice
//! what fits.

use super::{Emit, Gain, Instruction};
use crate::Target;
use crate::error::Result;
use crate::llvm::ir::{Ir, V};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_I16,
    mnemonic: "pmaddwd",
    // A vector takes a multiplication and an addition for twice as many products as a fused multiply-add of `f32`. By
    // the units that they have for vectors of up to 32 bytes, Zen 3 may compute twice the products in a cycle, and
    // Intel's cores, where three units share both, one and a half times; vectors of 64 bytes have two units for both.
    // Measured on Zen 3: a 1x1 convolution of 256 to 256 channels, 28x28, takes 0.75 of its time in `f32`. On Zen 4 an inner
    // loop of 4 rows by 2 vectors begins 23 multiply-adds in a cycle, one of `f32` 16; Intel's cores were not measured.
    gain: |target| if target.vector_bytes <= 32 { Gain::Direct } else { Gain::None },
    present,
    emit: Emit::Words(|ir, words| {
        let pairs = ir.context.i16_type().vec_type(2 * words.lanes);
        let [a, b] = words.operands()?;
        let a = ir.builder.build_bit_cast(a, pairs, "")?;
        let b = ir.builder.build_bit_cast(b, pairs, "")?;
        let products = multiply(ir, [a, b], words.lanes)?.into_vector_value();
        Ok(ir.builder.build_int_add(words.sums.into_vector_value(), products, "")?.into())
    }),
};

/// Whether a machine has it for vectors as wide as its own.
pub(super) fn present(target: &Target) -> bool {
    let needed = match target.vector_bytes {
        64 => "avx512bw",
        32 => "avx2",
        _ => "sse2",
    };
    target.has("x86_64", needed)
}

/// The sums of the products of two neighbours each.
pub(super) fn multiply<'c>(ir: &Ir<'c>, factors: [V<'c>; 2], lanes: u32) -> Result<V<'c>> {
    let name = match lanes {
        16.. => "llvm.x86.avx512.pmaddw.d.512",
        8.. => "llvm.x86.avx2.pmadd.wd",
        _ => "llvm.x86.sse2.pmadd.wd",
    };
    ir.intrinsic(name, &[], &factors)
}
