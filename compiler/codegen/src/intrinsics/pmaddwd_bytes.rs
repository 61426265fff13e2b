//! Bytes on x86 without VNNI: `pmaddwd` on the even and on the odd bytes, which are widened to 16 bits where they are
//! read. Where few results share what is read, half of the memory that numbers of 16 bits take counts for more.
//! Widening is the same for all products that share an operand, and is computed once for them.

use super::pmaddwd::{multiply, present};
use super::{Emit, Gain, Instruction};
use crate::error::Result;
use hone_tensor::Intrinsic;

pub(super) const INSTRUCTION: Instruction = Instruction {
    intrinsic: Intrinsic::DOT_U8_I8,
    mnemonic: "pmaddwd",
    gain: |_| Gain::None,
    present,
    emit: Emit::Words(|ir, words| {
        let halves = ir.context.i16_type().vec_type(2 * words.lanes);
        let [unsigned, signed] = words.operands()?;
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
    }),
};
