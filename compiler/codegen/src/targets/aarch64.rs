//! 64-bit Arm. Vectors are NEON's 16 bytes; SVE is left to LLVM's choice of instructions.

use super::Family;
use inkwell::targets::{InitializationConfig, Target};

pub(crate) const FAMILY: Family = Family {
    names: &["arm64", "aarch64"],
    initialize: || Target::initialize_aarch64(&InitializationConfig::default()),
    default_cpu: "generic",
    common_features: &[],
    needed_feature: Some("neon"),
    abi: None,
    vector_bytes: |_| 16,
    vector_registers: |_| 32,
    masks: |_| false,
};
