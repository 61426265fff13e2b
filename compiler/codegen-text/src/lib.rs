//! Loop programs to source text for devices of many lanes: OpenCL C and WGSL.
//!
//! A bound, verified program becomes one text with a kernel per launch, and the order in which a host runs
//! them ([`Module::steps`]). What a language writes its own way stands behind [`Dialect`]; walking the loops,
//! addresses and the order of evaluation are common to all.
//!
//! How a program becomes text:
//! - a loop over blocks becomes the work-group's number, one over lanes the work-item's, behind a condition
//!   where the loop has fewer iterations than the launch has lanes; a loop bound to the grid becomes a number
//!   that the host passes;
//! - a statement that stands below no loop over lanes of some dimension is run by the first lane along it;
//! - shared buffers are memory of the work-group, scratch memory and registers private arrays; serial loops
//!   stay loops, unrolled ones carry a hint;
//! - what the expressions of a statement compute more than once gets a name, and is computed once (`values.rs`);
//! - integers wrap and casts saturate as the interpreter of loop programs has it; floating-point values are
//!   computed in their own type, those of 16 bits as `float`, and rounded to 16 bits where they are stored or
//!   cast.

mod dialect;
mod emit;
mod error;
mod expression;
mod module;
mod opencl;
mod values;
mod wgsl;

pub use dialect::{Dialect, Element};
pub use emit::emit;
pub use error::EmitError;
pub use hone_tensor::{Argument, Kernel, Step};
pub use module::{Module, source};
pub use opencl::OpenClC;
pub use wgsl::Wgsl;
