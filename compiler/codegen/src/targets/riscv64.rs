//! 64-bit RISC-V. With the V extension, vectors of the 16 bytes that every such machine has.

use super::Family;
use inkwell::targets::{InitializationConfig, Target};

pub(crate) const FAMILY: Family = Family {
    names: &["riscv64"],
    initialize: || Target::initialize_riscv(&InitializationConfig::default()),
    default_cpu: "generic-rv64",
    common_features: &["+m", "+a", "+f", "+d", "+c"],
    needed_feature: Some("64bit"),
    abi: Some("lp64d"),
    vector_bytes: |_| 16,
    vector_registers: |_| 32,
    masks: |features| features.has("v"),
};
