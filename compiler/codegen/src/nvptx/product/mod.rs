//! Products and convolutions on tensor cores: `mma.sync` or `wgmma.mma_async` on tiles that `cp.async` brings to shared memory
//! in stages.
//!
//! A block computes a tile of the result, a warp of it a part, in registers. While one tile of the depth is multiplied
//! the next ones are on their way. For `mma.sync`, `ldmatrix` reads matrices of 8x8 elements; chunks of 16 bytes are stored in
//! an order that changes from line to line, so that neither copies nor reads meet in a bank. For `wgmma.mma_async`, which
//! reads shared memory itself, that order is its swizzle of 128 or 64 bytes. What the program does with a sum is computed on it in
//! registers, by the code for any expression; a warp's registers hold the same rows and columns in both cases.
//!
//! Operands are float16 or bfloat16 with sums in `f32`, bytes with sums in 32 bits, and, where that is allowed, `f32` of
//! which the instruction leaves out 13 bits (TF32). Lines begin at multiples of 16 bytes, and buffers have to. Tiles that are
//! not whole are filled up with zeros by the copies, and what lies outside of the results is not stored. This is how CUTLASS
//! computes products on these devices (Thakkar et al., 2023).
//!
//! Rows, columns and depth may have several axes each. Where the left operand's index is a sum of row axes and axes of the
//! depth, the product is a convolution, whose patches of the input are never written (implicit GEMM; Chetlur et al., cuDNN,
//! 2014). What lies in the padding is zero: a lane notes once, in bits, with which steps of the window its rows leave the
//! input, and copies zeros there.

mod copies;
mod depth_order;
mod emit;
mod factor;
mod form;
mod results;
mod rounds;
mod tiles;
mod warpgroups;

pub use tiles::{Multiplier, Tiles};

pub(super) use factor::Factor;
pub(super) use tiles::CHUNK;

use super::{Architecture, Module};
use crate::error::Result;
use crate::llvm::ir::Ir;
use depth_order::DepthOrder;
use form::Form;
use hone_tensor::{Argument, Kernel, Program, Scope, Step, verify};
use inkwell::context::Context;

/// How products are computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProductOptions {
    /// The tiles; else those of [`Tiles::ALL`] and [`Tiles::WARPGROUPS`] that take the fewest cycles, by a model.
    pub tiles: Option<Tiles>,
    /// Whether products of `f32` may leave out 13 of the 23 bits of each factor's fraction (TF32).
    pub rounded: bool,
}

/// Whether [`product`] writes a program.
pub fn is_product(program: &Program, architecture: Architecture, options: &ProductOptions) -> bool {
    chosen(program, architecture, options).is_some()
}

/// The form of a program that is a product, and its tiles.
fn chosen(
    program: &Program,
    architecture: Architecture,
    options: &ProductOptions,
) -> Option<(Form, Tiles)> {
    let form = Form::of(program, options.rounded)?;
    let form = Some(form).filter(|_| architecture.has_asynchronous_copies())?;
    let fit =
        |tiles: &Tiles| tiles.fit(&form, architecture) && DepthOrder::of(&form, tiles).is_some();
    let tiles = match options.tiles {
        Some(tiles) => Some(tiles).filter(fit),
        // Most of a tile would be filled up.
        None if [0, 1].iter().any(|side| form.extent(*side) < FEWEST) => None,
        None => {
            let all = Tiles::WARPGROUPS.into_iter().chain(Tiles::ALL);
            all.filter(fit).min_by_key(|tiles| tiles.cycles(&form, architecture))
        }
    };
    let tiles = tiles?;
    Some((form, tiles))
}

/// Rows and columns from which on a product gets tiles that nobody asked for: the columns of one `mma.sync`.
const FEWEST: usize = 8;

/// Writes a plain program that is a product, with what is done with each sum, as one kernel `stem_0`. `None` where the
/// program is no such product, its lines do not come in chunks of 16 bytes, or the architecture has no such instructions
/// (sm_75).
///
/// # Errors
/// What the verifier finds; operations on sums that have no code.
pub fn product(
    program: &Program,
    architecture: Architecture,
    options: &ProductOptions,
    stem: &str,
) -> Result<Option<Module>> {
    verify(program)?;
    let Some((form, tiles)) = chosen(program, architecture, options) else { return Ok(None) };
    let kernel = kernel(program, &form, &tiles, stem);
    let target = architecture.target();
    let context = Context::create();
    let ir = Ir::new(&context, stem, &target);
    emit::emit(&ir, program, &target, &form, &tiles, &kernel)?;
    let text = super::text(&ir, &target, stem)?;
    Ok(Some(Module { text, steps: vec![Step::Launch(kernel)] }))
}

fn kernel(program: &Program, form: &Form, tiles: &Tiles, stem: &str) -> Kernel {
    let store = &program.blocks[form.store];
    let used = program.buffers.iter().filter(|(id, buffer)| {
        let operand = form.operands.iter().any(|operand| operand.buffer == *id);
        let stored = store.buffer == *id || store.reads(*id);
        buffer.scope == Scope::Global && *id != form.sums && (operand || stored)
    });
    Kernel {
        name: format!("{stem}_0"),
        arguments: used.map(|(id, _)| Argument::Buffer(id)).collect(),
        groups: tiles.blocks(form),
        items: [tiles.lanes(), 1, 1],
        shared_bytes: tiles.shared_bytes(),
    }
}
