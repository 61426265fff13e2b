//! AMX: `tdpbf16ps`, `tdpbusd` and `tdpbsud`, products of tiles in eight registers of 16 rows of 64 bytes.

use super::{Emit, Gain, Instruction};
use crate::Target;
use hone_tensor::Intrinsic;
use hone_types::DataType;

pub(super) const BF16: Instruction = Instruction {
    intrinsic: Intrinsic::TILE_BF16,
    mnemonic: "tdpbf16ps",
    gain: |_| Gain::Always,
    present: |target| has(target, "amx-bf16"),
    emit: Emit::Tiles(&[(DataType::BF16, "llvm.x86.tdpbf16ps")]),
};

pub(super) const BYTES: Instruction = Instruction {
    intrinsic: Intrinsic::TILE_U8_I8,
    mnemonic: "tdpbusd",
    gain: |_| Gain::Always,
    present: |target| has(target, "amx-int8"),
    emit: Emit::Tiles(&[(DataType::U8, "llvm.x86.tdpbusd"), (DataType::I8, "llvm.x86.tdpbsud")]),
};

fn has(target: &Target, products: &str) -> bool {
    target.has("x86_64", "amx-tile") && target.has("x86_64", products)
}
