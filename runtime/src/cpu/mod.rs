//! What this processor can execute, asked of the processor and the system, never assumed.
//!
//! Features go by their LLVM names. One that this runtime does not know counts as missing: refusing is
//! safe, an illegal instruction is not.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::env::consts::{ARCH, OS};

use hone_artifact::{Target, Variant};

use crate::VariantRefusal;

#[cfg(target_arch = "aarch64")]
use aarch64::{has, names};
#[cfg(target_arch = "riscv64")]
use riscv64::{has, names};
#[cfg(target_arch = "x86_64")]
use x86_64::{has, names};

/// On other architectures only the baseline is known to be there.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
fn has(_: &str) -> bool {
    false
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
fn names() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}

/// LLVM names of all features that this machine has and a manifest may ask for, sorted.
pub fn features() -> Vec<&'static str> {
    let mut found: Vec<_> = names().filter(|name| has(name)).collect();
    found.sort_unstable();
    found
}

/// Why code for `target` cannot run here; `None` where it can.
pub fn refusal(target: &Target) -> Option<VariantRefusal> {
    let same_machine = same_machine(&target.triple);
    let mut missing = Vec::new();
    if same_machine {
        missing.extend(target.features.iter().filter(|name| !has(name)).cloned());
    }
    if same_machine && missing.is_empty() {
        return None;
    }
    let (triple, cpu) = (target.triple.clone(), target.cpu.clone());
    Some(VariantRefusal { triple, cpu, missing })
}

/// The first variant that can run here, or why none can.
pub(crate) fn choose(variants: &[Variant]) -> Result<usize, Vec<VariantRefusal>> {
    let mut refusals = Vec::new();
    for (index, variant) in variants.iter().enumerate() {
        match refusal(&variant.target) {
            None => return Ok(index),
            Some(refusal) => refusals.push(refusal),
        }
    }
    Err(refusals)
}

/// Whether architecture and system of a triple are this machine's.
fn same_machine(triple: &str) -> bool {
    let mut parts = triple.split('-');
    let arch = match parts.next() {
        Some("amd64") => "x86_64",
        Some("arm64") => "aarch64",
        Some(other) => other,
        None => "",
    };
    arch == ARCH && parts.any(|part| part == OS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn target(triple: String, features: &[&str]) -> Target {
        let features = features.iter().map(|f| f.to_string()).collect();
        Target { triple, cpu: "test".into(), features, accelerator: None }
    }

    #[test]
    fn this_machine_runs_its_own_features_and_no_unknown_ones() {
        let here = format!("{ARCH}-unknown-{OS}-gnu");
        assert_eq!(refusal(&target(here.clone(), &features())), None);
        let refused = refusal(&target(here, &["no-such-feature"])).unwrap();
        assert_eq!(refused.missing, ["no-such-feature"]);
    }

    #[test]
    fn another_architecture_is_refused_without_naming_features() {
        let refused = refusal(&target(format!("vax-unknown-{OS}"), &["fpa"])).unwrap();
        assert!(refused.missing.is_empty());
    }

    /// The standard library probes a part of the same features in its own way.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn agrees_with_the_standard_library() {
        macro_rules! agree {
            ($($llvm:literal $std:tt),* $(,)?) => { $(
                assert_eq!(has($llvm), std::arch::is_x86_feature_detected!($std), $llvm);
            )* };
        }
        agree!(
            "sse3" "sse3", "ssse3" "ssse3", "sse4.1" "sse4.1", "sse4.2" "sse4.2", "avx" "avx",
            "avx2" "avx2", "fma" "fma", "f16c" "f16c", "bmi" "bmi1", "bmi2" "bmi2", "adx" "adx",
            "lzcnt" "lzcnt", "popcnt" "popcnt", "sha" "sha", "avx512f" "avx512f",
            "avx512cd" "avx512cd", "avx512bw" "avx512bw", "avx512dq" "avx512dq",
            "avx512vl" "avx512vl", "avx512vnni" "avx512vnni", "avx512bf16" "avx512bf16",
            "avx512vbmi" "avx512vbmi", "avx512vbmi2" "avx512vbmi2", "avx512fp16" "avx512fp16",
            "avx512vpopcntdq" "avx512vpopcntdq", "gfni" "gfni", "vaes" "vaes",
            "avxvnni" "avxvnni", "xsavec" "xsavec", "cx16" "cmpxchg16b", "movbe" "movbe",
        );
    }
}
