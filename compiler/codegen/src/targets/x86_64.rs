//! 64-bit x86.

use super::{Family, Features};
use inkwell::targets::{InitializationConfig, Target};

pub(crate) const FAMILY: Family = Family {
    names: &["amd64", "x64", "x86_64"],
    initialize: || Target::initialize_x86(&InitializationConfig::default()),
    default_cpu: "x86-64-v3",
    common_features: &[],
    needed_feature: Some("64bit"),
    abi: None,
    vector_bytes: |features| {
        if features.has("avx512f") {
            64
        } else if features.has("avx") {
            32
        } else {
            16
        }
    },
    vector_registers: |features| if features.has("avx512f") { 32 } else { 16 },
    masks: |features: &Features| features.has("avx512bw") && features.has("avx512vl"),
};
