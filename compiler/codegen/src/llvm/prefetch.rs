//! Prefetches what the next iteration of a loop will read.
//!
//! The elements that a block reads in one iteration of the loop form ranges of memory, one for each
//! iteration of those outer loops between that jump. A range of the next iteration is cut into as many
//! steps as the inner loops have iterations, and each iteration prefetches one step, so that the
//! requests are spread evenly.

use super::emitter::Emitter;
use super::ir::V;
use crate::error::Result;
use crate::linear::{Linear, flatten};
use hone_machine::{LINE_BYTES, TYPICAL_L1_BYTES, TYPICAL_L2_BYTES};
use hone_tensor::{BinaryOp, Block, Expr, Loop, LoopKind, Prefetch, Realize, Statement, VarId};
use inkwell::values::PointerValue;

/// Bytes that one request loads.
const LINE: i64 = LINE_BYTES as i64;

/// Fewer bytes than this in one iteration are not worth the instructions, where the processor sees the ranges and
/// follows them itself, or where the buffer is in its cache already.
const MIN_BYTES: i64 = 4 << 10;

/// Ranges in one iteration that the processor follows. Measured on Zen 3 with pointwise convolutions of 32 images of 56 × 56
/// elements: with 16 ranges and more they take 0.4 to 0.6 of the time when each range is prefetched, with 12 they take
/// 0.9, with 10 and fewer it is the same.
const MAX_FOLLOWED_RANGES: i64 = 10;

/// Up to this many bytes, half of a typical first-level cache, go there, more to the second.
const MAX_L1_BYTES: i64 = (TYPICAL_L1_BYTES / 2) as i64;

/// A loop jumps where its stride is more than so many times the range that the loops inside it read.
const JUMP_RATIO: i64 = 2;

/// Maximum requests in one iteration.
const MAX_REQUESTS: i64 = 4;

/// A range of memory that is being prefetched.
#[derive(Clone, Debug)]
pub(crate) struct Stream<'c> {
    /// Where the range starts.
    start: PointerValue<'c>,
    /// The innermost running loop, in each iteration of which a step is prefetched.
    innermost: VarId,
    /// Bytes from the start to this iteration's step.
    offset: Expr,
    /// Bytes of a step.
    step: i64,
    /// LLVM's number for the cache to load it into.
    locality: i32,
}

impl<'c> Emitter<'c, '_> {
    /// Emits the body of a loop, with the prefetches for its next iteration.
    pub(crate) fn with_prefetches(
        &mut self,
        loop_: &Loop,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let outer = self.streams.len();
        self.request(loop_.var)?;
        let program = self.program;
        for prefetch in program.prefetches.iter().filter(|other| other.target == loop_.var) {
            let stream = self.stream(loop_, prefetch)?;
            self.streams.extend(stream);
        }
        let result = body(self);
        self.streams.truncate(outer);
        result
    }

    /// Prefetches the steps that belong to an iteration of the loop `innermost`.
    fn request(&mut self, innermost: VarId) -> Result<()> {
        let due: Vec<Stream<'c>> =
            self.streams.iter().filter(|stream| stream.innermost == innermost).cloned().collect();
        for stream in due {
            let offset = self.environment.simplify(&stream.offset);
            let offset = self.index(&offset)?;
            let start = self.ir.offset(stream.start, offset)?;
            for line in 0..(stream.step + LINE - 1) / LINE {
                let address = self.ir.offset(start, self.ir.i64(line * LINE))?;
                // For reading; of data.
                let [read, cache, data] =
                    [0, stream.locality, 1].map(|argument| V::from(self.ir.i32(argument)));
                let args = [address.into(), read, cache, data];
                self.ir.intrinsic_call("llvm.prefetch", &[address.get_type().into()], &args)?;
            }
        }
        Ok(())
    }

    /// The range that a block reads in the iteration of `loop_` after this one.
    fn stream(&mut self, loop_: &Loop, prefetch: &Prefetch) -> Result<Option<Stream<'c>>> {
        let Some((loops, realize)) = path_to(&loop_.body, prefetch) else { return Ok(None) };
        let program = self.program;
        let (block, buffer) = (&program.blocks[prefetch.block], &program.buffers[prefetch.buffer]);
        let Some(indices) = block.loads(prefetch.buffer).into_iter().next() else {
            return Ok(None);
        };
        let bytes = Expr::from(buffer.dtype.bytes());
        let Some(flat) = flatten(indices, &buffer.shape) else { return Ok(None) };
        let flat = flat * bytes;
        let flat = self.environment.simplify(&resolved(&flat, block, realize));
        let same = invariant_iterations(&flat, loop_.var);
        let is_near = buffer.bytes() <= TYPICAL_L2_BYTES;
        let Some(Spread { innermost, offset, step, locality }) =
            spread(&flat, (loop_.var, same), (&loops, is_near), &|var| {
                program.limit_of(var).is_some()
            })
        else {
            return Ok(None);
        };
        let next = flat.substitute(&|var| match var == loop_.var {
            true => Some(Expr::Var(var) + same),
            false => loops.iter().any(|inner| inner.var == var).then_some(Expr::Integer(0)),
        });
        let Some(base) = self.buffers.get(&prefetch.buffer).copied() else { return Ok(None) };
        let next = self.environment.simplify(&next);
        let next = self.index(&next)?;
        let start = self.ir.offset(base, next)?;
        Ok(Some(Stream { start, innermost, offset, step, locality }))
    }
}

/// How ranges are spread over the iterations of the loops in which they are prefetched.
struct Spread {
    innermost: VarId,
    offset: Expr,
    step: i64,
    locality: i32,
}

/// A loop between, and what it adds to the address, in bytes, in each iteration.
struct StridedLoop {
    var: VarId,
    extent: i64,
    /// In how many of its first iterations steps are prefetched.
    requests: i64,
    stride: i64,
    is_serial: bool,
}

impl StridedLoop {
    /// Bytes from the first to the last element that the loop reaches.
    fn span(&self) -> i64 {
        self.stride.abs() * (self.extent - 1)
    }
}

/// The strides of `loops` in an address; `None` where they are not known.
fn strided_loops(
    address: &Expr,
    loops: &[&Loop],
    is_limited: &dyn Fn(VarId) -> bool,
) -> Option<Vec<StridedLoop>> {
    let terms = Linear::of(address).terms;
    let is_known = |term: &Expr| {
        let mentions = |inner: &&&Loop| term.mentions(inner.var);
        loops.iter().find(mentions).is_none_or(|inner| *term == Expr::Var(inner.var))
    };
    if !terms.iter().all(|(term, _)| is_known(term)) {
        return None;
    }
    let strided = |inner: &&Loop| {
        let factor = terms.iter().find(|(term, _)| *term == Expr::Var(inner.var));
        let (stride, is_serial) =
            (factor.map_or(0, |(_, factor)| *factor), inner.kind == LoopKind::Serial);
        let extent = inner.most()?.max(1);
        // Sizes are mostly more than half of the bound, whose half is the next one: by then all has been asked for.
        let halves = stride == 0 && is_serial && is_limited(inner.var);
        let requests = if halves { extent.div_euclid(2).max(1) } else { extent };
        Some(StridedLoop { var: inner.var, extent, requests, stride, is_serial })
    };
    loops.iter().map(strided).collect()
}

/// Iterations one after another of the loop `var` for which an address is the same: a fused loop
/// uses a quotient of its variable alone.
fn invariant_iterations(address: &Expr, var: VarId) -> i64 {
    let (mut repeats, mut bare) = (i64::MAX, 0);
    address.visit(&mut |part| match part {
        Expr::Binary(BinaryOp::FloorDivide, dividend, divisor) if **dividend == Expr::Var(var) => {
            repeats = repeats.min(divisor.as_integer().unwrap_or(1).max(1));
            bare -= 1;
        }
        Expr::Var(other) if *other == var => bare += 1,
        _ => {}
    });
    if bare == 0 && repeats < i64::MAX { repeats } else { 1 }
}

/// The spread of an address in bytes below `loops`, where it is the `same` for so many iterations of
/// `target`; `None` where it is not worth it, or not known. `is_near` says that the buffer fits the second-level cache.
fn spread(
    address: &Expr,
    (target, same): (VarId, i64),
    (loops, is_near): (&[&Loop], bool),
    is_limited: &dyn Fn(VarId) -> bool,
) -> Option<Spread> {
    let mut strided = strided_loops(address, loops, is_limited)?;
    strided.retain(|loop_| loop_.extent > 1);
    let innermost = strided.iter().rfind(|loop_| loop_.is_serial)?.var;
    // The target's iterations are outermost; they never jump.
    let repeats =
        StridedLoop { var: target, extent: same, requests: same, stride: 0, is_serial: true };
    let mut offset = Expr::Integer(0);
    let mut ranges = 1;
    while let Some(index) =
        strided.iter().position(|loop_| loop_.is_serial && loop_.var != innermost)
    {
        let rest: i64 = strided.iter().map(StridedLoop::span).sum::<i64>() - strided[index].span();
        if strided[index].stride.abs() <= JUMP_RATIO * rest {
            break;
        }
        let jumping = strided.remove(index);
        offset = Expr::Var(jumping.var) * jumping.stride + offset;
        ranges *= jumping.extent;
    }
    let bytes = strided.iter().map(StridedLoop::span).sum::<i64>() + LINE;
    let serial: Vec<&StridedLoop> =
        [&repeats].into_iter().chain(strided.iter().filter(|loop_| loop_.is_serial)).collect();
    let count: i64 = serial.iter().map(|loop_| loop_.requests).product();
    let step = (bytes + count - 1) / count;
    let is_followed = ranges <= MAX_FOLLOWED_RANGES || is_near;
    let is_short = bytes * ranges < MIN_BYTES && is_followed;
    if is_short || step > MAX_REQUESTS * LINE {
        return None;
    }
    let mut inside = step;
    for loop_ in serial.iter().rev().filter(|loop_| loop_.extent > 1) {
        let var = Expr::Var(loop_.var);
        let iteration = if loop_.var == target {
            var.modulo(loop_.extent.into())
        } else if loop_.requests < loop_.extent {
            var.minimum((loop_.requests - 1).into())
        } else {
            var
        };
        offset = iteration * inside + offset;
        inside *= loop_.requests;
    }
    let locality = if bytes * ranges <= MAX_L1_BYTES { 3 } else { 2 };
    Some(Spread { innermost, offset, step, locality })
}

/// An expression of a block over loop variables.
fn resolved(expr: &Expr, block: &Block, realize: &Realize) -> Expr {
    expr.substitute(&|var| {
        let axis = block.iterators.iter().position(|iterator| iterator.var == var)?;
        realize.bindings.get(axis).cloned()
    })
}

/// The loops from `body` down to the block of a prefetch, and where the block is realized.
fn path_to<'a>(body: &'a [Statement], prefetch: &Prefetch) -> Option<(Vec<&'a Loop>, &'a Realize)> {
    body.iter().find_map(|statement| match statement {
        Statement::Sync(_) => None,
        Statement::Realize(realize) => {
            (realize.block == prefetch.block).then(|| (Vec::new(), realize))
        }
        Statement::Loop(inner) => path_to(&inner.body, prefetch).map(|(mut loops, realize)| {
            loops.insert(0, &**inner);
            (loops, realize)
        }),
    })
}
