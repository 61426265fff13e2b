//! 64-bit Arm. Vectors are NEON's 16 bytes; SVE is left to LLVM's choice of instructions.

use super::Family;
use inkwell::targets::{InitializationConfig, Target};

pub(crate) const FAMILY: Family = Family {
    names: &["arm64", "aarch64"],
    initialize: || Target::initialize_aarch64(&InitializationConfig::default()),
    default_cpu: "generic",
    common_features: &[],
    abi: None,
    vector_bytes: |_, _| 16,
    masks: |_| false,
};

/// Features of processors that dot products and half precision need, by LLVM's names of both.
const IMPLIED: [(&[&str], &[&str]); 2] = [
    (
        &["cortex-a55", "cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78", "neoverse-n1"],
        &["neon", "dotprod", "fullfp16"],
    ),
    (
        &["neoverse-n2", "neoverse-v1", "neoverse-v2"],
        &["neon", "dotprod", "fullfp16", "sve", "bf16", "i8mm"],
    ),
];

/// The features that a processor has for sure: NEON, and what is known of its name.
pub(super) fn implied(cpu: &str) -> &'static [&'static str] {
    let named = IMPLIED.iter().find(|(names, _)| names.contains(&cpu));
    named.map_or(&["neon"], |(_, features)| features)
}
