//! Why code did not run under an emulator.

use std::path::PathBuf;
use thiserror::Error;

/// What can go wrong.
#[derive(Debug, Error)]
pub enum EmulatorError {
    /// No emulator of the architecture is known, or none is installed.
    #[error("no emulator for {arch} is at hand: {advice}")]
    Missing {
        /// The architecture, by LLVM's name.
        arch: String,
        /// What to do.
        advice: String,
    },
    /// The emulator does not have what the code executes.
    #[error("{emulator} does not emulate {missing}")]
    Features {
        /// Its name and version.
        emulator: String,
        /// Features by LLVM's names, separated by commas.
        missing: String,
    },
    /// The program for the emulated machine could not be made.
    #[error("the program that holds memory in the emulator could not be made")]
    Runner(#[from] hone_codegen::CodegenError),
    /// The emulator could not be started.
    #[error("{} could not be started", program.display())]
    Start {
        /// The emulator.
        program: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file for the emulator could not be written.
    #[error("a temporary file for the emulator could not be written")]
    File(#[source] std::io::Error),
    /// The emulated program ended while it was needed, most often because code in it crashed.
    #[error("the emulated program ended during {during}: {end}")]
    Ended {
        /// The last request.
        during: String,
        /// Its status and what the emulator printed.
        end: String,
    },
    /// The emulator ended on an internal error.
    #[error("the emulator itself failed during {during}: {end}; a newer version of it may not")]
    Failed {
        /// The last request.
        during: String,
        /// Its status and what it printed.
        end: String,
    },
    /// The emulated system has no memory left.
    #[error("{bytes} bytes could not be reserved in the emulator")]
    Memory {
        /// How many were requested.
        bytes: u64,
    },
    /// The artifact is damaged.
    #[error("the artifact cannot be used")]
    Artifact(#[from] hone_artifact::ReadError),
    /// The artifact has no such variant.
    #[error("the artifact has no variant {variant}")]
    Variant {
        /// Its position in the manifest.
        variant: usize,
    },
    /// The code is no shared object as the compiler writes them.
    #[error("the code cannot be loaded: {message}")]
    Code {
        /// What is wrong with it.
        message: String,
    },
    /// A buffer does not have the size that the model or the step states.
    #[error("{what} has {found} bytes, {expected} are needed")]
    Size {
        /// The buffer.
        what: String,
        /// What it should have.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// Another number of inputs than the model has.
    #[error("{found} inputs given, {expected} are needed")]
    Count {
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A loop goes on although there is no more room for what it collects.
    #[error(
        "loop '{node}' goes on after {capacity} iterations, and there is no room for more results"
    )]
    Overrun {
        /// Name of the model's node.
        node: String,
        /// Iterations for which there is room.
        capacity: u64,
    },
    /// Strings that the artifact stores are refused.
    #[error("the strings that the artifact stores are refused: {reason}; compile the model again")]
    Text {
        /// Why.
        reason: String,
    },
    /// What the runtime computes itself cannot be computed of these operands.
    #[error("node '{node}' cannot be computed: {reason}")]
    Host {
        /// Name of the model's node.
        node: String,
        /// Why.
        reason: String,
    },
    /// The variant has no such step, or the step no such argument.
    #[error("there is no step {step}{}", argument.map_or(String::new(), |number| format!(" with an argument {number}")))]
    Step {
        /// Its position.
        step: usize,
        /// The argument's, where one was requested.
        argument: Option<usize>,
    },
}

/// Shorthand.
pub(crate) type Result<T> = std::result::Result<T, EmulatorError>;
