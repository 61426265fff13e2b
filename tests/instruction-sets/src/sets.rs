//! The instruction sets, and what runs each of them.

use anyhow::{Result, bail};
use hone_driver::{Target, manifest_target};
use hone_emulator::{Emulator, EmulatorError};
use hone_onnx_tests::Machine;

/// An instruction set.
pub struct InstructionSet {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in the report.
    pub title: &'static str,
    triple: &'static str,
    cpu: &'static str,
    /// Features on top of the processor's, by LLVM's names.
    features: &'static [&'static str],
    /// Features that are added where this machine has them.
    optional: &'static [&'static str],
    /// Only the networks whose names begin so, and no operator cases: for sets that differ from another by
    /// instructions which nothing else has.
    pub only: Option<&'static str>,
    /// The intrinsic that one of these networks at least must be scheduled with, by its name.
    pub intrinsic: Option<&'static str>,
}

/// Every set.
pub const SETS: [InstructionSet; 8] = [
    InstructionSet {
        name: "sse",
        title: "SSE (x86-64)",
        triple: "x86_64-unknown-linux-gnu",
        cpu: "x86-64",
        features: &[],
        optional: &[],
        only: None,
        intrinsic: None,
    },
    InstructionSet {
        name: "avx2",
        title: "AVX2 (x86-64-v3)",
        triple: "x86_64-unknown-linux-gnu",
        cpu: "x86-64-v3",
        features: &[],
        optional: &[],
        only: None,
        intrinsic: None,
    },
    InstructionSet {
        name: "avx512",
        title: "AVX-512 (x86-64-v4)",
        triple: "x86_64-unknown-linux-gnu",
        cpu: "x86-64-v4",
        features: &[],
        optional: &["avx512vnni", "avx512bf16"],
        only: None,
        intrinsic: None,
    },
    InstructionSet {
        name: "amx",
        title: "AMX (Sapphire Rapids)",
        triple: "x86_64-unknown-linux-gnu",
        cpu: "sapphirerapids",
        features: &[],
        optional: &[],
        only: Some("quantized"),
        intrinsic: Some("tile_u8_i8"),
    },
    InstructionSet {
        name: "neon",
        title: "AArch64 (NEON)",
        triple: "aarch64-unknown-linux-gnu",
        cpu: "generic",
        features: &[],
        optional: &[],
        only: None,
        intrinsic: None,
    },
    InstructionSet {
        name: "neon-dot",
        title: "AArch64 (dot products)",
        triple: "aarch64-unknown-linux-gnu",
        cpu: "generic",
        features: &["dotprod"],
        optional: &[],
        only: Some("quantized"),
        intrinsic: Some("dot_u8_i8"),
    },
    InstructionSet {
        name: "neon-i8mm",
        title: "AArch64 (i8mm)",
        triple: "aarch64-unknown-linux-gnu",
        cpu: "generic",
        features: &["dotprod", "i8mm"],
        optional: &[],
        only: Some("quantized"),
        intrinsic: Some("dot_u8_i8"),
    },
    InstructionSet {
        name: "rvv",
        title: "RISC-V (V, 128 bits)",
        triple: "riscv64-unknown-linux-gnu",
        cpu: "generic-rv64",
        features: &["v"],
        optional: &[],
        only: None,
        intrinsic: None,
    },
];

/// The set of this name.
pub fn named(name: &str) -> Option<&'static InstructionSet> {
    SETS.iter().find(|set| set.name == name)
}

impl InstructionSet {
    /// What to compile for, what runs it, and that in words. An emulator that is not installed is an
    /// error where `CI` is set or `HONE_EMULATORS` is `required`.
    pub fn machine(&self) -> Result<(Target, Machine, String)> {
        let mut target = self.target(&[])?;
        let here = |target: &Target| hone_runtime::cpu::refusal(&manifest_target(target)).is_none();
        if here(&target) {
            let added: Vec<&str> = self
                .optional
                .iter()
                .copied()
                .filter(|feature| self.target(&[feature]).is_ok_and(|target| here(&target)))
                .collect();
            target = self.target(&added)?;
            let with = if added.is_empty() {
                String::new()
            } else {
                format!(", with {}", added.join(" and "))
            };
            return Ok((target, Machine::Here, format!("run by this machine{with}")));
        }
        let is_required = std::env::var_os("CI").is_some()
            || std::env::var_os("HONE_EMULATORS").is_some_and(|word| word == "required");
        match Emulator::find(&manifest_target(&target)) {
            Ok(emulator) => {
                let how = format!("run by {}", emulator.name());
                Ok((target, Machine::Emulated(emulator), how))
            }
            Err(error @ EmulatorError::Features { .. }) => Ok((
                target,
                Machine::None,
                format!("not run here: this machine lacks it, and {error}"),
            )),
            Err(error) if is_required => bail!("{}: {error}", self.title),
            Err(error) => Ok((target, Machine::None, format!("not run here: {error}"))),
        }
    }

    fn target(&self, more: &[&str]) -> Result<Target> {
        let features = self.features.iter().chain(more).map(|name| format!("+{name}"));
        Ok(Target::new(self.triple, self.cpu, features.collect())?)
    }
}
