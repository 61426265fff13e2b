//! Runs an artifact whose code is for another processor, under an emulator of that processor: its
//! answers can be compared with the reference, its speed means nothing. Or on a machine that a command reaches
//! ([`Emulator::behind`]), whose own clock times the steps.
//!
//! The emulator is QEMU's for programs (`qemu-aarch64` and its siblings). It runs one small program,
//! [`hone_codegen::runner`], which serves requests of this process over two pipes: reserve memory, read and
//! write it, call a function. Code, weights, arena and step table are laid out from here, so that
//! neither a compiler nor a library of the emulated machine is needed.

mod emulator;
mod error;
mod image;
mod images;
mod machine;
mod model;
mod program;

pub use emulator::Emulator;
pub use error::EmulatorError;
pub use model::Model;
