//! Bringing near what the next iteration of a loop will read.
//!
//! The elements that a block reads in one iteration of the loop lie in stretches of memory, one for
//! each round of the outer loops between that jump. A stretch of the next iteration is cut into as
//! many steps as the loops further in run rounds, and each round asks for one step, so that the
//! requests are spread evenly.

use super::emitter::Emitter;
use super::ir::V;
use crate::error::Result;
use crate::linear::{Linear, flatten};
use hone_tensor::{BinaryOp, Block, Expr, Loop, LoopKind, Prefetch, Realize, Statement, VarId};
use inkwell::values::PointerValue;

/// Bytes that one request brings.
const LINE: i64 = 64;

/// Less than this in one iteration is not worth the instructions.
const SMALLEST: i64 = 4 << 10;

/// Up to this much is brought to the first cache, more to the second.
const FIRST_CACHE: i64 = 16 << 10;

/// A loop jumps where it steps over so many times what the loops inside it read.
const JUMP: i64 = 2;

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
    /// LLVM's number for the cache to bring it to.
    locality: i32,
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
                // For reading; of data.
                let [read, cache, data] =
                    [0, stream.locality, 1].map(|own| V::from(self.ir.i32(own)));
                let args = [address.into(), read, cache, data];
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
        let Some(flat) = flatten(indices, &buffer.shape) else { return Ok(None) };
        let flat = flat * bytes;
        let flat = self.environment.simplify(&resolved(&flat, block, realize));
        let same = iterations_alike(&flat, own.var);
        let Some(Rounds { innermost, offset, step, locality }) =
            rounds(&flat, own.var, same, &loops)
        else {
            return Ok(None);
        };
        let next = flat.substitute(&|var| match var == own.var {
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

/// How stretches are spread over the rounds of the loops in which they are asked for.
struct Rounds {
    innermost: VarId,
    offset: Expr,
    step: i64,
    locality: i32,
}

/// A loop between, and what it adds to the address, in bytes, in each round.
struct Walk {
    var: VarId,
    extent: i64,
    factor: i64,
    runs: bool,
}

impl Walk {
    fn reach(&self) -> i64 {
        self.factor.abs() * (self.extent - 1)
    }
}

/// How `loops` walk along an address; `None` where that is not known.
fn walks(address: &Expr, loops: &[&Loop]) -> Option<Vec<Walk>> {
    let terms = Linear::of(address).terms;
    let known = |term: &Expr| {
        let mentions = |inner: &&&Loop| term.mentions(inner.var);
        loops.iter().find(mentions).is_none_or(|inner| *term == Expr::Var(inner.var))
    };
    if !terms.iter().all(|(term, _)| known(term)) {
        return None;
    }
    let walk = |inner: &&Loop| {
        let factor = terms.iter().find(|(term, _)| *term == Expr::Var(inner.var));
        let (factor, runs) = (factor.map_or(0, |(_, own)| *own), inner.kind == LoopKind::Serial);
        Some(Walk { var: inner.var, extent: inner.most()?.max(1), factor, runs })
    };
    loops.iter().map(walk).collect()
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
    let mut walks = walks(address, loops)?;
    walks.retain(|own| own.extent > 1);
    let innermost = walks.iter().rfind(|own| own.runs)?.var;
    // The target's own rounds are outermost; they never jump.
    let again = Walk { var: target, extent: same, factor: 0, runs: true };
    let mut offset = Expr::Integer(0);
    let mut pieces = 1;
    while let Some(place) = walks.iter().position(|own| own.runs && own.var != innermost) {
        let rest: i64 = walks.iter().map(Walk::reach).sum::<i64>() - walks[place].reach();
        if walks[place].factor.abs() <= JUMP * rest {
            break;
        }
        let jumping = walks.remove(place);
        offset = Expr::Var(jumping.var) * jumping.factor + offset;
        pieces *= jumping.extent;
    }
    let bytes = walks.iter().map(Walk::reach).sum::<i64>() + LINE;
    let running: Vec<&Walk> =
        [&again].into_iter().chain(walks.iter().filter(|own| own.runs)).collect();
    let count: i64 = running.iter().map(|own| own.extent).product();
    let step = (bytes + count - 1) / count;
    if bytes * pieces < SMALLEST || step > MOST * LINE {
        return None;
    }
    let mut inside = step;
    for own in running.iter().rev().filter(|own| own.extent > 1) {
        let var = Expr::Var(own.var);
        let round = if own.var == target { var.modulo(own.extent.into()) } else { var };
        offset = round * inside + offset;
        inside *= own.extent;
    }
    let locality = if bytes * pieces <= FIRST_CACHE { 3 } else { 2 };
    Some(Rounds { innermost, offset, step, locality })
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
