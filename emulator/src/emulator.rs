//! The emulators that are known, and the one for a target.

use crate::error::{EmulatorError, Result};
use crate::machine::Machine;
use hone_artifact::Target;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// An emulator of one architecture that is installed here, with the processor it will emulate.
#[derive(Clone, Debug)]
pub struct Emulator {
    name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    runner: Arc<tempfile::TempDir>,
}

/// An architecture and what emulates it.
struct KnownEmulator {
    /// By LLVM's name.
    arch: &'static str,
    /// The program.
    program: &'static str,
    /// The emulated processor for code that executes these features.
    processor: fn(&Target) -> String,
    /// Features that are not emulated, by the beginnings of LLVM's names.
    missing: &'static [&'static str],
}

/// QEMU 7.2 is the oldest that is counted on: it is the first with AVX2 and version 1.0 of RISC-V's V.
const KNOWN_EMULATORS: [KnownEmulator; 3] = [
    KnownEmulator {
        arch: "aarch64",
        program: "qemu-aarch64",
        processor: |_| "max".to_string(),
        missing: &["sve2p", "sme"],
    },
    KnownEmulator { arch: "riscv64", program: "qemu-riscv64", processor: riscv, missing: &[] },
    KnownEmulator {
        arch: "x86_64",
        program: "qemu-x86_64",
        processor: |_| "max".to_string(),
        missing: &["avx512", "avxvnni", "amx", "avx10"],
    },
];

/// The file of the runner.
const RUNNER: &str = "runner";
/// What stands for its path in arguments.
const RUNNER_WORD: &str = "{runner}";

impl Emulator {
    /// The emulator that can run code for `target`.
    ///
    /// # Errors
    /// None is installed, or it does not have what the code executes; no linker for the runner.
    pub fn find(target: &Target) -> Result<Self> {
        let arch = target.triple.split('-').next().unwrap_or_default();
        let known = KNOWN_EMULATORS.iter().find(|known| known.arch == arch);
        let known = known.ok_or_else(|| EmulatorError::Missing {
            arch: arch.to_string(),
            advice: "none is known".to_string(),
        })?;
        let program = installed(known.program).ok_or_else(|| EmulatorError::Missing {
            arch: arch.to_string(),
            advice: format!("install {} (package qemu-user)", known.program),
        })?;
        let name = format!("{} {}", known.program, version(&program)?);
        let is_missing =
            |feature: &&String| known.missing.iter().any(|start| feature.starts_with(start));
        let missing: Vec<String> = target.features.iter().filter(is_missing).cloned().collect();
        if !missing.is_empty() {
            return Err(EmulatorError::Features { emulator: name, missing: missing.join(", ") });
        }
        let processor = (known.processor)(target);
        let arguments = ["-cpu", &processor, RUNNER_WORD].map(str::to_owned).to_vec();
        Ok(Self { name, program, arguments, runner: written_runner(arch)? })
    }

    /// Any other machine for code for `target`, real or emulated: `command` is a program and its arguments, and its standard
    /// input and output are those of the runner there. `{runner}` in it is the path of the runner's file here. Nothing is
    /// started yet.
    ///
    /// # Errors
    /// No command; an architecture that there is no runner for; no linker for it.
    pub fn behind(command: &[String], target: &Target) -> Result<Self> {
        let arch = target.triple.split('-').next().unwrap_or_default();
        let (program, arguments) = command.split_first().ok_or_else(|| EmulatorError::Missing {
            arch: arch.to_string(),
            advice: "the command that reaches it is empty".to_string(),
        })?;
        let (program, arguments) = (PathBuf::from(program), arguments.to_vec());
        Ok(Self { name: command.join(" "), program, arguments, runner: written_runner(arch)? })
    }

    /// Its name and version, such as `qemu-aarch64 7.2.22`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a runner starts and serves.
    ///
    /// # Errors
    /// How it ended instead.
    pub fn answers(&self) -> Result<()> {
        Machine::start(self)?.map(1).map(drop)
    }

    /// The program's arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let runner = self.runner.path().join(RUNNER).to_string_lossy().into_owned();
        self.arguments.iter().map(move |word| word.replace(RUNNER_WORD, &runner))
    }
}

/// A processor with everything in the user-level profile of 2022, and vectors of 128 bits or of what
/// the code is for: that is the width at which mistakes in lengths show.
fn riscv(target: &Target) -> String {
    let lengths = target
        .features
        .iter()
        .filter_map(|feature| feature.strip_prefix("zvl")?.strip_suffix('b')?.parse::<u32>().ok());
    let length = lengths.max().unwrap_or(128).clamp(128, 1024);
    format!("rv64,v=true,vlen={length},vext_spec=v1.0,zba=true,zbb=true,zbs=true")
}

/// The folder with the runner of an architecture.
fn written_runner(arch: &str) -> Result<Arc<tempfile::TempDir>> {
    let folder = tempfile::tempdir().map_err(EmulatorError::File)?;
    let bytes = hone_codegen::runner(arch)?;
    write_program(&folder.path().join(RUNNER), &bytes).map_err(EmulatorError::File)?;
    Ok(Arc::new(folder))
}

/// Writes an executable file: QEMU refuses others.
fn write_program(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o700).open(path)?.write_all(bytes)
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    candidates.find(|candidate| candidate.is_file())
}

/// The version, from `qemu-aarch64 version 7.2.22 (Debian …)`.
fn version(program: &Path) -> Result<String> {
    let start = |source| EmulatorError::Start { program: program.to_path_buf(), source };
    let output = Command::new(program).arg("--version").output().map_err(start)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "version");
    Ok(words.nth(1).unwrap_or("of unknown version").to_string())
}
