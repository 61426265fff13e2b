//! What can go wrong between a loop program and a shared object.

use inkwell::builder::BuilderError;
use thiserror::Error;

/// Why no machine code came out.
#[derive(Debug, Error)]
pub enum CodegenError {
    /// The program does not hold what launches on a device need.
    #[error("the program is not fit for a device")]
    Verify(#[from] hone_tensor::VerifyError),
    /// LLVM has no such target, or it was not built in.
    #[error("target '{target}' is not available: {message}")]
    Target {
        /// The triple or platform asked for.
        target: String,
        /// What is missing.
        message: String,
    },
    /// A buffer in registers is indexed by something that is no constant after unrolling.
    #[error(
        "buffer '{buffer}' is in registers but indexed by '{index}', which is no constant: unroll \
         or vectorize the loops it depends on, or place the buffer in scratch memory"
    )]
    RegisterIndex {
        /// The buffer's name.
        buffer: String,
        /// The index, flattened.
        index: String,
    },
    /// The program uses something this generator has no code for.
    #[error("kernel '{symbol}': {message}")]
    Unsupported {
        /// The kernel's symbol.
        symbol: String,
        /// What it cannot do and what to do instead.
        message: String,
    },
    /// The generated LLVM code is malformed: a fault of this generator.
    #[error("internal: malformed code for '{symbol}': {message}")]
    Malformed {
        /// The kernel's symbol.
        symbol: String,
        /// LLVM's complaint.
        message: String,
    },
    /// LLVM refused an instruction: a fault of this generator.
    #[error("internal: an instruction could not be built")]
    Build(#[from] BuilderError),
    /// LLVM's optimizer or emitter failed.
    #[error("machine code for '{symbol}' could not be emitted: {message}")]
    Emit {
        /// The unit's symbol.
        symbol: String,
        /// LLVM's complaint.
        message: String,
    },
    /// No linker was found.
    #[error("no linker found (looked for {looked_for}): install lld 19")]
    NoLinker {
        /// The programs looked for.
        looked_for: String,
    },
    /// The linker refused the objects.
    #[error("linking failed: {message}")]
    Link {
        /// What the linker printed.
        message: String,
    },
    /// A file beside the linker could not be written or read.
    #[error("a temporary file for the linker could not be used")]
    File(#[from] std::io::Error),
}

/// Shorthand.
pub(crate) type Result<T> = std::result::Result<T, CodegenError>;
