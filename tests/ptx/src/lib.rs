//! An interpreter of PTX for tests, and `ptxas`, NVIDIA's assembler of it.
//!
//! [`parse`] reads a text as LLVM writes it, [`launch`] runs a kernel of it. The text is all that is known: nothing of
//! the compiler is used, so what is wrong in its output is wrong here too. What no device would do is an error and
//! not a result: accesses out of bounds or misaligned, races between lanes and between blocks, barriers that some lanes
//! do not reach, instructions of a warp or warpgroup that some of its lanes do not run. Shared memory, outputs and registers begin
//! with bits that are no number; copies that are started land when they are waited for.

mod access;
mod decode;
mod execute;
mod machine;
mod memory;
mod parse;
mod program;
mod ptxas;
mod run;
mod tensor_core;
mod types;
mod warpgroup;

pub use machine::{Statistics, launch};
pub use memory::{Global, UNWRITTEN};
pub use parse::parse;
pub use program::{Entry, Text};
pub use ptxas::{Assembled, Ptxas, Resources};
pub use run::{run, run_counted};
