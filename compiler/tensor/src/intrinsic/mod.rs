//! Instructions of some machines that stand for small loop nests, as data: one file for each and one line in
//! [`Intrinsic::ALL`]. The nest stays in the program: it is the instruction's software model, and the code on
//! machines without the instruction. What a machine emits for it stands with the machine's code generator.
//!
//! What always holds of an intrinsic, and is tested for each of the list:
//! - its operands' steps have one entry for each of its loops, and its term names every operand;
//! - its software model ([`Intrinsic::model`]) is a program that the verifier takes and that matches it.

mod dot_bf16;
mod dot_i16;
mod dot_i8_u4;
mod dot_u8_i8;
mod find;
mod model;
mod tile_bf16;
mod tile_u8_i8;

use crate::BinaryOp;
use hone_types::DataType;
use std::fmt;
use std::hash::{Hash, Hasher};

pub use find::Match;

/// An instruction as the program knows it: what a loop nest must look like for it to compute the nest.
#[derive(Clone, Copy)]
pub struct Intrinsic(&'static Description);

/// What an instruction computes: `result[..] += term` over a nest of loops.
pub(crate) struct Description {
    /// The name in text forms.
    name: &'static str,
    /// The loops, outermost first.
    loops: &'static [Extent],
    /// What is read; [`Term::Operand`] counts from 0.
    operands: &'static [DataType],
    /// What is added to.
    result: DataType,
    /// By how many elements the access to the result moves with each loop; [`ANY`] is no step of zero.
    result_steps: &'static [i64],
    /// What is added.
    term: Term,
    /// The arrangements of its operands that it takes: for each operand, by how many elements the access moves
    /// with each loop.
    layouts: &'static [&'static [&'static [i64]]],
}

/// How often a loop of an intrinsic's nest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// As often as the machine has lanes: a constant that the code generator cuts into its vectors.
    Lanes,
    /// So often.
    Exactly(i64),
    /// So often, or fewer times: what is missing of a tile is left out.
    AtMost(i64),
}

/// In a description: a step of any length, the same between all neighbours.
const ANY: i64 = i64::MIN;

/// An expression over an intrinsic's operands. Sums and products match in either order.
pub(crate) enum Term {
    /// An element of an operand.
    Operand(usize),
    /// A number.
    Constant(f64, DataType),
    /// A number in another type.
    Cast(DataType, &'static Term),
    /// Two numbers combined.
    Binary(BinaryOp, &'static Term, &'static Term),
}

impl Intrinsic {
    /// Every intrinsic.
    pub const ALL: [Intrinsic; 6] = [
        Self::DOT_BF16,
        Self::DOT_I16,
        Self::DOT_U8_I8,
        Self::DOT_I8_U4,
        Self::TILE_BF16,
        Self::TILE_U8_I8,
    ];

    /// Pairs of bfloat16, summed in `f32` in every lane (AVX512-BF16 `vdpbf16ps`, Arm `bfdot`). The order of the
    /// two additions is the instruction's, and subnormal numbers count as zero.
    pub const DOT_BF16: Intrinsic = Intrinsic(&dot_bf16::DESCRIPTION);

    /// Pairs of integers of 16 bits, summed in `i32` in every lane (x86 `pmaddwd`). Sums wrap around.
    pub const DOT_I16: Intrinsic = Intrinsic(&dot_i16::DESCRIPTION);

    /// Fours of an unsigned and a signed byte, summed in `i32` in every lane (AVX-VNNI, AVX512-VNNI `vpdpbusd`,
    /// Arm `usdot`).
    pub const DOT_U8_I8: Intrinsic = Intrinsic(&dot_u8_i8::DESCRIPTION);

    /// Fours of bytes that hold two numbers of four bits each, multiplied by two fours of signed bytes and summed in
    /// `i32` in every lane (AVX512-VNNI `vpdpbusd` twice, x86 `pmaddubsw`, Arm `sdot` twice).
    pub const DOT_I8_U4: Intrinsic = Intrinsic(&dot_i8_u4::DESCRIPTION);

    /// Tiles of bfloat16, up to 16 rows by 16 columns by 32 terms, summed in `f32` (AMX `tdpbf16ps`). The order of the
    /// additions is the instruction's, and subnormal numbers count as zero.
    pub const TILE_BF16: Intrinsic = Intrinsic(&tile_bf16::DESCRIPTION);

    /// Tiles of unsigned and signed bytes, up to 16 rows by 16 columns by 64 terms, summed in `i32` (AMX `tdpbusd` and
    /// `tdpbsud`).
    pub const TILE_U8_I8: Intrinsic = Intrinsic(&tile_u8_i8::DESCRIPTION);

    /// The intrinsic of tiles whose products are those of an intrinsic of lanes.
    pub fn of_tiles(self) -> Option<Self> {
        [Self::TILE_BF16, Self::TILE_U8_I8].into_iter().find(|tiles| {
            let depth = |intrinsic: Self| intrinsic.loops().last().copied();
            tiles.operands() == self.operands()
                && tiles.result() == self.result()
                && depth(*tiles) == depth(self)
        })
    }

    /// Whether it works on tiles: rows, columns and groups of terms, outermost first, around the terms of a group.
    pub fn is_of_tiles(self) -> bool {
        matches!(self.0.loops, [Extent::AtMost(_), Extent::AtMost(_), Extent::AtMost(_), _])
    }

    /// The intrinsic that text forms call `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|intrinsic| intrinsic.name() == name)
    }

    /// The name in text forms.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The loops of its nest, outermost first.
    pub fn loops(self) -> &'static [Extent] {
        self.0.loops
    }

    /// Terms that each lane sums: how often its loops below the lanes run.
    pub fn depth(self) -> i64 {
        let below = self.0.loops.iter().map(|extent| match extent {
            Extent::Lanes | Extent::AtMost(_) => 1,
            Extent::Exactly(times) => *times,
        });
        below.product()
    }

    /// Element types of what it reads.
    pub fn operands(self) -> &'static [DataType] {
        self.0.operands
    }

    /// Element type of what it adds to.
    pub fn result(self) -> DataType {
        self.0.result
    }
}

impl PartialEq for Intrinsic {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Intrinsic {}

impl Hash for Intrinsic {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Intrinsic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
