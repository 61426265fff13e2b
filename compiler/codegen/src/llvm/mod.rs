//! LLVM code straight from the loop tree.
//!
//! The emitter visits a kernel's statements with what is known of every variable: a constant, a
//! running value with its range, or the vector's lanes. Tiling, unrolling and vectors are the
//! schedule's; LLVM selects instructions and allocates registers.

mod convert;
pub(crate) mod emitter;
pub(crate) mod environment;
mod group;
pub(crate) mod ir;
pub(crate) mod lanes;
mod limits;
mod loops;
mod math;
mod memory;
pub(crate) mod module;
mod pointers;
mod prefetch;
mod tensorize;
mod tiles;
mod value;
mod waves;
