//! Attention on tensor cores, with the softmax computed while keys are read (Dao, FlashAttention-2, 2023).
//!
//! A block has 64 queries of one head, each of its four warps 16 of them, which stay in registers. Keys and values come in
//! tiles of 64 by `cp.async`, one of each at a time: while scores of a tile are computed its values are on their way, and while
//! those are multiplied the next keys are. A lane keeps the largest score and the sum of powers of its two rows; where the
//! largest one grows, what was summed is multiplied with the power of the difference. Powers are rounded to the operands'
//! type in the registers in which they are: the results of one `mma.sync` lie as the left operand of the next one does.
//!
//! What happens to scores before the softmax (masks that are added or choose, factors, tanh), and to results, is any
//! expression. Queries and keys that fill no tile are zeros that nobody reads from memory; keys that there are not have scores
//! of negative infinity. Heads of queries may share those of keys.

mod emit;
mod form;
mod scores;

use super::{Architecture, Module};
use crate::error::Result;
use crate::llvm::ir::Ir;
pub use form::ATTENTION_LENGTHS;
use form::Form;
use hone_machine::WARP_LANES;
use hone_tensor::{Argument, Kernel, Program, Scope, Step, verify};
use inkwell::context::Context;

/// Queries and keys of a tile.
const TILE: usize = 64;
/// Rows of a warp's part of a tile: those of one `mma.sync`.
const ROWS: usize = 16;
/// Lanes of a block.
const LANES: usize = TILE / ROWS * WARP_LANES;

/// Whether [`attention`] writes a program.
pub fn is_attention(program: &Program, architecture: Architecture) -> bool {
    chosen(program, architecture).is_some()
}

fn chosen(program: &Program, architecture: Architecture) -> Option<Form> {
    let form = Form::of(program).filter(|_| architecture.has_asynchronous_copies())?;
    let limits = architecture.limits();
    let fits = shared_bytes(&form) <= limits.shared_bytes
        && blocks(&form).iter().all(|blocks| (1..=limits.blocks).contains(blocks));
    fits.then_some(form)
}

/// Writes a plain program that is an attention of float16 or bfloat16 as one kernel `stem_0`: blocks of scores, their largest,
/// the sum of powers, the sum of weighted values, and what is done with it, whose maps are inlined. `None` where the program is
/// none, rows of queries, keys and values have other lengths than 32, 64 and 128 or do not begin at multiples of 16
/// bytes, or the architecture has no such instructions (sm_75).
///
/// # Errors
/// What the verifier finds; operations on scores or results that have no code.
pub fn attention(
    program: &Program,
    architecture: Architecture,
    stem: &str,
) -> Result<Option<Module>> {
    verify(program)?;
    let Some(form) = chosen(program, architecture) else { return Ok(None) };
    let kernel = kernel(program, &form, stem);
    let target = architecture.target();
    let context = Context::create();
    let ir = Ir::new(&context, stem, &target);
    emit::emit(&ir, program, &target, &form, &kernel)?;
    let text = super::text(&ir, &target, stem)?;
    Ok(Some(Module { text, steps: vec![Step::Launch(kernel)] }))
}

/// Bytes of shared memory: a tile of queries, one of keys, and one of values.
fn shared_bytes(form: &Form) -> usize {
    TILE * form.dtype.bytes() * (2 * form.size + form.width)
}

/// Blocks along tiles of queries and the batch.
fn blocks(form: &Form) -> [usize; 3] {
    let batch = form.batch.iter().map(|axis| axis.extent).product();
    [form.query.extent.div_ceil(TILE), 1, batch]
}

fn kernel(program: &Program, form: &Form, stem: &str) -> Kernel {
    let store = &program.blocks[form.store];
    let inner = [form.scores, form.largest, form.sums, form.products];
    let mut masks = Vec::new();
    form.masked.visit(&mut |expr| {
        if let hone_tensor::Expr::Load(buffer, _) = expr {
            masks.push(*buffer);
        }
    });
    let used = program.buffers.iter().filter(|(id, buffer)| {
        let read = form.operands.iter().any(|operand| operand.buffer == *id)
            || masks.contains(id)
            || store.reads(*id);
        buffer.scope == Scope::Global && !inner.contains(id) && (read || store.buffer == *id)
    });
    Kernel {
        name: format!("{stem}_0"),
        arguments: used.map(|(id, _)| Argument::Buffer(id)).collect(),
        groups: blocks(form),
        items: [LANES, 1, 1],
        shared_bytes: shared_bytes(form),
    }
}
