//! What each machine emits for the intrinsics of loop programs: a file for each instruction and a line in
//! [`INSTRUCTIONS`]. docs/intrinsics.md shows how one is added.
//!
//! Most instructions work on words of 32 bits: each lane has a word of each operand, in which the elements that the lane
//! sums lie one behind the other. Others work on tiles, matrices in registers of their kind.

mod amx;
mod avx512_bf16;
mod neon_bfdot;
mod neon_sdot;
mod neon_sdot_bits;
mod neon_usdot;
mod pmaddubsw_bits;
mod pmaddwd;
mod pmaddwd_bytes;
mod vnni;
mod vnni_bits;

use crate::Target;
use crate::error::{CodegenError, Result};
use crate::llvm::ir::{Ir, V};
use hone_tensor::Intrinsic;
use hone_types::DataType;

/// What an instruction's products gain over products of `f32`: where they are faster, what is real may be computed as
/// integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gain {
    /// They are no faster than as many.
    None,
    /// They are faster than as many, but not than the fewer that Winograd's filtering takes.
    Direct,
    /// They are faster than those, too.
    Always,
}

/// How a family of machines computes an intrinsic.
pub(crate) struct Instruction {
    /// What it computes.
    pub(crate) intrinsic: Intrinsic,
    /// Its name in assembly text.
    pub(crate) mnemonic: &'static str,
    /// What it gains over products of `f32` on a machine that has it.
    pub(crate) gain: fn(&Target) -> Gain,
    /// Whether a machine has it, for vectors as wide as the machine's.
    pub(crate) present: fn(&Target) -> bool,
    /// How it is emitted.
    pub(crate) emit: Emit,
}

/// How an instruction is emitted.
#[derive(Clone, Copy)]
pub(crate) enum Emit {
    /// From words of its operands: the sums after it.
    Words(EmitWords),
    /// On tile registers: LLVM's intrinsic, by the element type of the operand that has the rows.
    Tiles(&'static [(DataType, &'static str)]),
}

/// Emits an instruction on words: the sums after it.
type EmitWords = for<'c> fn(&Ir<'c>, Words<'c, '_>) -> Result<V<'c>>;

/// What an instruction works on.
pub(crate) struct Words<'c, 'a> {
    /// The sums before, one for each lane.
    pub(crate) sums: V<'c>,
    /// For each operand of the intrinsic, a vector of as many words of 32 bits.
    pub(crate) operands: &'a [V<'c>],
    /// How many lanes: a power of two, four at least and at most those of the machine's vectors.
    pub(crate) lanes: u32,
}

impl<'c> Words<'c, '_> {
    /// The operands of an instruction that has so many.
    fn operands<const COUNT: usize>(&self) -> Result<[V<'c>; COUNT]> {
        <[V<'c>; COUNT]>::try_from(self.operands).map_err(|_| CodegenError::Emit {
            symbol: "an instruction".to_string(),
            message: format!("it takes {COUNT} operands, not {}", self.operands.len()),
        })
    }
}

/// The numbers of four bits that the bytes of some words hold, each in a byte: those in the lower halves, and those in the
/// upper ones.
fn halves_of_bytes<'c>(ir: &Ir<'c>, words: V<'c>, lanes: u32) -> Result<[V<'c>; 2]> {
    let splat = |value: u64| -> Result<_> {
        let scalar = ir.context.i32_type().const_int(value, false);
        Ok(ir.splat(scalar.into(), lanes)?.into_vector_value())
    };
    let (words, mask) = (words.into_vector_value(), splat(0x0f0f_0f0f)?);
    let low = ir.builder.build_and(words, mask, "")?;
    let high = ir.builder.build_right_shift(words, splat(4)?, false, "")?;
    let high = ir.builder.build_and(high, mask, "")?;
    Ok([low.into(), high.into()])
}

/// Every instruction; of two for the same intrinsic that a machine has, the first is taken.
const INSTRUCTIONS: [&Instruction; 12] = [
    &amx::BF16,
    &amx::BYTES,
    &avx512_bf16::INSTRUCTION,
    &neon_bfdot::INSTRUCTION,
    &vnni::INSTRUCTION,
    &pmaddwd::INSTRUCTION,
    &pmaddwd_bytes::INSTRUCTION,
    &neon_usdot::INSTRUCTION,
    &neon_sdot::INSTRUCTION,
    &vnni_bits::INSTRUCTION,
    &pmaddubsw_bits::INSTRUCTION,
    &neon_sdot_bits::INSTRUCTION,
];

/// The instruction by which a machine computes an intrinsic, where it has one.
pub(crate) fn instruction(target: &Target, intrinsic: Intrinsic) -> Option<&'static Instruction> {
    INSTRUCTIONS
        .into_iter()
        .find(|instruction| instruction.intrinsic == intrinsic && (instruction.present)(target))
}
