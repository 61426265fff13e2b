//! Bytes on x86 without VNNI: `pmaddwd` on the even and on the odd bytes, widened to 16 bits, is exact.
//! `pmaddubsw` would multiply twice as many bytes at once, but saturates at 16 bits: 255 * 127 * 2 is twice what
//! fits. Widening is the same for all products that share an operand, and is computed once for them.

use super::{Gain, Instruction};
use crate::error::Result;
use crate::llvm::ir::{Ir, V};
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_U8_I8,
    mnemonic: "pmaddwd",
    // With AVX2 on an Intel server core (family 6, model 207) ResNet-50 in QDQ form takes 93 ms so and 87 ms in f32,
    // while BERT-base with products of integers takes 266 ms so and 1,200 ms with multiplications of 32 bits. There
    // additions share three units with multiplications; Zen 3 has four. On Zen 3, single convolutions between
    // quantizations take of their time in f32: 256 to 256 channels, 1x1, 28x28 0.82; 128 to 128, 3x3 in steps of two,
    // 56x56 0.72; the same in steps of one, 28x28, 2.7, since there f32 takes Winograd's way.
    gain: |target| match target.cpu.as_str() {
        "znver3" if target.vector_bytes == 32 => Gain::Direct,
        _ => Gain::None,
    },
    present: |target| {
        let needed = match target.vector_bytes {
            64 => "avx512bw",
            32 => "avx2",
            _ => "sse2",
        };
        target.has("x86_64", needed)
    },
    emit: |ir, words| {
        let halves = ir.context.i16_type().vec_type(2 * words.lanes);
        let [unsigned, signed] = words.operands;
        let unsigned = ir.builder.build_bit_cast(unsigned, halves, "")?.into_vector_value();
        let signed = ir.builder.build_bit_cast(signed, halves, "")?.into_vector_value();
        let splat = |value: u64| -> Result<_> {
            let scalar = ir.context.i16_type().const_int(value, false);
            Ok(ir.splat(scalar.into(), 2 * words.lanes)?.into_vector_value())
        };
        let eight = splat(8)?;
        let builder = &ir.builder;
        let even_unsigned = builder.build_and(unsigned, splat(0xff)?, "")?;
        let odd_unsigned = builder.build_right_shift(unsigned, eight, false, "")?;
        let even_signed = builder.build_left_shift(signed, eight, "")?;
        let even_signed = builder.build_right_shift(even_signed, eight, true, "")?;
        let odd_signed = builder.build_right_shift(signed, eight, true, "")?;
        let even = multiply(ir, [even_unsigned.into(), even_signed.into()], words.lanes)?;
        let odd = multiply(ir, [odd_unsigned.into(), odd_signed.into()], words.lanes)?;
        let sums = words.sums.into_vector_value();
        let sums = builder.build_int_add(sums, even.into_vector_value(), "")?;
        Ok(builder.build_int_add(sums, odd.into_vector_value(), "")?.into())
    },
};

/// The sums of the products of two neighbours each.
fn multiply<'c>(ir: &Ir<'c>, factors: [V<'c>; 2], lanes: u32) -> Result<V<'c>> {
    let name = match lanes {
        16.. => "llvm.x86.avx512.pmaddw.d.512",
        8.. => "llvm.x86.avx2.pmadd.wd",
        _ => "llvm.x86.sse2.pmadd.wd",
    };
    ir.intrinsic(name, &[], &factors)
}
