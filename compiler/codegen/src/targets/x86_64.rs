//! 64-bit x86.

use super::{Family, Features};
use inkwell::targets::{InitializationConfig, Target};

pub(crate) const FAMILY: Family = Family {
    names: &["amd64", "x64", "x86_64"],
    initialize: || Target::initialize_x86(&InitializationConfig::default()),
    default_cpu: "x86-64-v3",
    common_features: &[],
    abi: None,
    vector_bytes: |_, features| {
        if features.has("avx512f") {
            64
        } else if features.has("avx") {
            32
        } else {
            16
        }
    },
    masks: |features: &Features| features.has("avx512bw") && features.has("avx512vl"),
};

/// Processors that bring AVX-512 (F, BW, VL) by name alone.
const AVX512: [&str; 16] = [
    "x86-64-v4",
    "skylake-avx512",
    "skx",
    "cascadelake",
    "cooperlake",
    "cannonlake",
    "icelake-client",
    "icelake-server",
    "tigerlake",
    "rocketlake",
    "sapphirerapids",
    "emeraldrapids",
    "graniterapids",
    "graniterapids-d",
    "znver4",
    "znver5",
];

/// Processors without AVX by name, and those of them without SSE 4.1.
const NO_AVX: [&str; 4] = ["x86-64-v2", "nehalem", "westmere", "silvermont"];
const PLAIN: [&str; 3] = ["x86-64", "generic", "core2"];

/// Those of [`AVX512`] that sum products of bytes, and those that sum products of bfloat16, too.
const VNNI: [&str; 11] = [
    "cascadelake",
    "cooperlake",
    "icelake-client",
    "icelake-server",
    "tigerlake",
    "rocketlake",
    "sapphirerapids",
    "emeraldrapids",
    "graniterapids",
    "znver4",
    "znver5",
];
const BF16: [&str; 6] =
    ["cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids", "znver4", "znver5"];

/// Features, of those this room asks about, that a processor's name stands for.
pub(super) fn implied(cpu: &str) -> Vec<&'static str> {
    let mut features = base(cpu).to_vec();
    if VNNI.contains(&cpu) {
        features.push("avx512vnni");
    }
    if BF16.contains(&cpu) {
        features.push("avx512bf16");
    }
    features
}

fn base(cpu: &str) -> &'static [&'static str] {
    if AVX512.contains(&cpu) {
        &[
            "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
            "movbe", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl",
        ]
    } else if PLAIN.contains(&cpu) {
        &[]
    } else if NO_AVX.contains(&cpu) {
        &["sse4.1"]
    } else {
        &[
            "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
            "movbe",
        ]
    }
}
