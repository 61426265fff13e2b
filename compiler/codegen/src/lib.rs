//! Scheduled loop programs to machine code, with LLVM: the only room that knows LLVM.
//!
//! A [`Program`](hone_tensor::Program) becomes one kernel per top-level statement. A kernel is
//!
//! ```c
//! void symbol(void *const *buffers, int64_t begin, int64_t end, void *scratch);
//! ```
//!
//! `buffers` are the program's parameters in order, each aligned for its elements, then its
//! temporaries in the arena in order of their handles, each at a multiple of 64 bytes. Where the
//! outermost loop is parallel, `begin..end` is the range of its iterations to run; else it is ignored.
//! `scratch` is [`Kernel::scratch_bytes`] of memory of the calling thread, at a multiple of 64 bytes.
//!
//! Invariants: the code calls nothing (no C library, no mathematics library), so a linked object
//! needs nothing; it never traps on integer division; equal input gives equal bytes.
//!
//! A program that is bound to a device's blocks and lanes becomes text for NVIDIA's devices: [`nvptx`].

mod compile;
mod disassemble;
mod error;
mod intrinsics;
mod linear;
mod link;
mod llvm;
pub mod nvptx;
mod prepare;
mod probe;
mod round;
mod runner;
mod targets;
mod text;

pub use compile::{assembly, compile, kernels, llvm_ir};
pub use disassemble::disassemble;
pub use error::CodegenError;
pub use link::link;
pub use probe::{probe, probe_as};
pub use runner::runner;
pub use targets::Target;

use hone_tensor::{BufferId, Program, Waves};

/// One program to compile.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// Symbol of its kernel; kernels of a program with several are numbered, `symbol_0` and so on.
    pub symbol: &'a str,
    /// The program, scheduled.
    pub program: &'a Program,
}

/// How to compile.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Buffers that may overlap others while a kernel runs (done in place); all others may not.
    pub may_alias: Vec<BufferId>,
    /// Threads to compile on; 0 is one per core.
    pub threads: usize,
}

/// One function of the machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub symbol: String,
    /// Extent of the outermost loop, where it is parallel; else 1.
    pub tasks: u64,
    /// How threads may divide it, where it has one task and runs in waves: it is then called with 0 and 1 for all of it, and
    /// with `1 + w * parts + begin` and `1 + w * parts + end` for some parts of wave `w`.
    pub waves: Option<Waves>,
    /// Memory that each calling thread provides, in bytes.
    pub scratch_bytes: u64,
}

/// A unit's machine code.
#[derive(Clone, Debug)]
pub struct ObjectCode {
    /// A relocatable object file.
    pub bytes: Vec<u8>,
    /// Its kernels, one per top-level statement of the program, in order.
    pub kernels: Vec<Kernel>,
}
