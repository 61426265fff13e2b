//! Bound programs to PTX, the text that NVIDIA's driver and assembler read.
//!
//! A bound, verified program becomes one text with a kernel per launch, and the steps by which a host runs them
//! ([`hone_tensor::Program::steps`]). Loops, expressions, conversions and mathematics are those of the code for
//! processors, on scalars: a lane is a thread.
//!
//! - A loop over blocks becomes `%ctaid`, one over lanes `%tid`, behind a condition where it has fewer iterations
//!   than the launch has lanes; a loop bound to the grid becomes a parameter of 64 bits.
//! - What stands below no loop over lanes of some dimension is run by the first lane along it.
//! - Global buffers are parameters in global memory, which begin at multiples of 64 bytes where they are temporaries,
//!   and at a multiple of their elements' size else. Shared buffers are shared memory of a size that is known when
//!   the text is assembled. Scratch buffers are local memory; those in registers have constant indices only, and LLVM
//!   makes registers of them.
//! - Address spaces are explicit: no address is generic but those of local memory.
//! - Nothing is called: no library of NVIDIA's is needed. Subnormal numbers are kept.

mod architecture;
mod attention;
mod instructions;
mod kernel;
mod product;

pub use architecture::Architecture;
pub use attention::{ATTENTION_LENGTHS, attention, is_attention};
pub use product::{Multiplier, ProductOptions, Tiles, is_product, product};

use crate::compile::{optimize, write};
use crate::error::{CodegenError, Result};
use crate::llvm::ir::Ir;
use hone_tensor::{Limits, Program, Step, verify, verify_launches, verify_registers};
use inkwell::context::Context;
use inkwell::targets::FileType;

/// A program as PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The text, complete.
    pub text: String,
    /// What the host runs, in order.
    pub steps: Vec<Step>,
}

/// Writes a program, whose kernels' names begin with `stem`, for an architecture, under `limits` that are at most those
/// of the architecture ([`Architecture::limits`]).
///
/// # Errors
/// What the verifier finds; loops of processors, and operations that have no code ([`CodegenError::Unsupported`]).
pub fn emit(
    program: &Program,
    architecture: Architecture,
    limits: &Limits,
    stem: &str,
) -> Result<Module> {
    verify(program)?;
    verify_registers(program)?;
    verify_launches(program, limits)?;
    let target = architecture.target();
    let context = Context::create();
    let ir = Ir::new(&context, stem, &target);
    let mut emit = |launch: &hone_tensor::Launch<'_>, kernel: &hone_tensor::Kernel| {
        kernel::emit(&ir, program, &target, launch, kernel)
    };
    let steps = program.launch_steps(stem, &mut emit)?;
    Ok(Module { text: text(&ir, &target, stem)?, steps })
}

/// The text of a finished module.
fn text(ir: &Ir<'_>, target: &crate::Target, stem: &str) -> Result<String> {
    ir.module.verify().map_err(|message| CodegenError::Malformed {
        symbol: stem.to_string(),
        message: message.to_string(),
    })?;
    let machine = target.machine()?;
    optimize(&ir.module, &machine, stem)?;
    let bytes = write(&ir.module, &machine, FileType::Assembly, stem)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// One text of several complete ones of one architecture, whose kernels have different names.
pub fn source(texts: &[&str]) -> String {
    let mut source = String::new();
    for (position, text) in texts.iter().enumerate() {
        let body = text.split_once(".address_size 64").map(|(_, body)| body);
        source += if position == 0 { text } else { body.unwrap_or_default() };
    }
    source
}
