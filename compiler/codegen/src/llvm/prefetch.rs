//! Bringing near what the next iteration of a loop will read.
//!
//! The elements that a block reads in one iteration of the loop lie in one stretch of memory. The
//! stretch of the next iteration is cut into as many steps as the loops between run rounds, and each
//! round asks for one step, so that the requests are spread evenly.

use super::emitter::Emitter;
use super::ir::V;
use crate::error::Result;
use crate::linear::{Linear, flatten};
use hone_tensor::{BinaryOp, Block, Expr, Loop, LoopKind, Prefetch, Realize, Statement, VarId};
use inkwell::values::PointerValue;

/// Bytes that one request brings.
const LINE: i64 = 64;

/// Stretches smaller than this stay in the first cache from one use to the next.
const SMALLEST: i64 = 16 << 10;

/// Most requests in one round.
const MOST: i64 = 4;

/// A stretch of memory that is being brought near.
#[derive(Clone, Debug)]
pub(crate) struct Stream<'c> {
    /// Where the stretch starts.
    start: PointerValue<'c>,
    /// The innermost running loop, in each round of which a step is asked for.
    innermost: VarId,
    /// Bytes from the start to this round's step.
    offset: Expr,
    /// Bytes of a step.
    step: i64,
}

impl<'c> Emitter<'c, '_> {
    /// Emits the body of a loop, with what it says to bring near ahead of its next iteration.
    pub(crate) fn ahead(
        &mut self,
        own: &Loop,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let known = self.streams.len();
        self.request(own.var)?;
        let program = self.program;
        for prefetch in program.prefetches.iter().filter(|other| other.target == own.var) {
            let stream = self.stream(own, prefetch)?;
            self.streams.extend(stream);
        }
        let result = body(self);
        self.streams.truncate(known);
        result
    }

    /// Asks for the steps that belong to a round of the loop `innermost`.
    fn request(&mut self, innermost: VarId) -> Result<()> {
        let due: Vec<Stream<'c>> =
            self.streams.iter().filter(|own| own.innermost == innermost).cloned().collect();
        for stream in due {
            let offset = self.environment.simplify(&stream.offset);
            let offset = self.index(&offset)?;
            let place = self.ir.offset(stream.start, offset)?;
            for line in 0..(stream.step + LINE - 1) / LINE {
                let address = self.ir.offset(place, self.ir.i64(line * LINE))?;
                // For reading, to the second cache, data.
                let [read, near, data] = [0, 2, 1].map(|own| V::from(self.ir.i32(own)));
                let args = [address.into(), read, near, data];
                self.ir.intrinsic_call("llvm.prefetch", &[address.get_type().into()], &args)?;
            }
        }
        Ok(())
    }

    /// The stretch that a block reads in the iteration of `own` after this one.
    fn stream(&mut self, own: &Loop, prefetch: &Prefetch) -> Result<Option<Stream<'c>>> {
        let Some((loops, realize)) = path_to(&own.body, prefetch) else { return Ok(None) };
        let program = self.program;
        let (block, buffer) = (&program.blocks[prefetch.block], &program.buffers[prefetch.buffer]);
        let Some(indices) = block.loads(prefetch.buffer).into_iter().next() else {
            return Ok(None);
        };
        let bytes = Expr::from(buffer.dtype.bytes());
        let flat = flatten(indices, &buffer.shape) * bytes;
        let flat = self.environment.simplify(&resolved(&flat, block, realize));
        let same = iterations_alike(&flat, own.var);
        let Some(Rounds { innermost, offset, step }) = rounds(&flat, own.var, same, &loops) else {
            return Ok(None);
        };
        let next = flat.substitute(&|var| match var == own.var {
            true => Some(Expr::Var(var) + same),
            false => loops.iter().any(|inner| inner.var == var).then_some(Expr::Integer(0)),
        });
        let Some(base) = self.buffers.get(&prefetch.buffer).copied() else { return Ok(None) };
        let next = self.environment.simplify(&next);
        let next = self.index(&next)?;
        Ok(Some(Stream { start: self.ir.offset(base, next)?, innermost, offset, step }))
    }
}

/// How a stretch is spread over the rounds of the loops in which it is asked for.
struct Rounds {
    innermost: VarId,
    offset: Expr,
    step: i64,
}

/// Iterations one after another of the loop `var` for which an address is the same: a fused loop
/// uses a quotient of its variable alone.
fn iterations_alike(address: &Expr, var: VarId) -> i64 {
    let (mut alike, mut bare) = (i64::MAX, 0);
    address.visit(&mut |part| match part {
        Expr::Binary(BinaryOp::FloorDivide, own, divisor) if **own == Expr::Var(var) => {
            alike = alike.min(divisor.as_integer().unwrap_or(1).max(1));
            bare -= 1;
        }
        Expr::Var(own) if *own == var => bare += 1,
        _ => {}
    });
    if bare == 0 && alike < i64::MAX { alike } else { 1 }
}

/// The rounds for an address in bytes below `loops`, where it is the `same` for so many iterations of
/// `target`; `None` where it is not worth it, or not known.
fn rounds(address: &Expr, target: VarId, same: i64, loops: &[&Loop]) -> Option<Rounds> {
    let mut bytes = 0;
    for (term, factor) in Linear::of(address).terms {
        match loops.iter().find(|inner| term.mentions(inner.var)) {
            Some(inner) if term == Expr::Var(inner.var) => {
                bytes += factor.abs() * (inner.most()? - 1);
            }
            Some(_) => return None,
            None => {}
        }
    }
    let running: Vec<(VarId, i64)> = loops
        .iter()
        .filter(|inner| inner.kind == LoopKind::Serial)
        .filter_map(|inner| Some((inner.var, inner.most().filter(|most| *most > 1)?)))
        .collect();
    let count: i64 = same * running.iter().map(|(_, extent)| extent).product::<i64>();
    let step = (bytes + count - 1) / count;
    if bytes < SMALLEST || step > MOST * LINE {
        return None;
    }
    let (mut offset, mut inside) = (Expr::Integer(0), step);
    for (var, extent) in running.iter().rev() {
        offset = Expr::Var(*var) * inside + offset;
        inside *= extent;
    }
    if same > 1 {
        offset = Expr::Var(target).modulo(same.into()) * inside + offset;
    }
    Some(Rounds { innermost: running.last()?.0, offset, step })
}

/// An expression of a block over loop variables.
fn resolved(expr: &Expr, block: &Block, realize: &Realize) -> Expr {
    expr.substitute(&|var| {
        let place = block.iterators.iter().position(|own| own.var == var)?;
        realize.bindings.get(place).cloned()
    })
}

/// The loops from `body` down to the block of a prefetch, and the block's place.
fn path_to<'a>(body: &'a [Statement], prefetch: &Prefetch) -> Option<(Vec<&'a Loop>, &'a Realize)> {
    body.iter().find_map(|statement| match statement {
        Statement::Realize(realize) => {
            (realize.block == prefetch.block).then(|| (Vec::new(), realize))
        }
        Statement::Loop(inner) => path_to(&inner.body, prefetch).map(|(mut loops, realize)| {
            loops.insert(0, &**inner);
            (loops, realize)
        }),
    })
}
