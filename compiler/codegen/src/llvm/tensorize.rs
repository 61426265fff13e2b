//! Tensorized loops: one instruction for the lanes and the sum inside them. Where the target lacks
//! the instruction, or lanes are masked, the nest itself runs.

use super::emitter::Emitter;
use super::environment::{Binding, Lanes};
use super::ir::{T, V};
use crate::error::Result;
use hone_tensor::{BlockId, BufferId, Dot, Expr, Intrinsic, Loop, LoopKind, Realize, Statement};

/// Minimum lanes that the instructions take.
const MIN_LANES: i64 = 4;

impl<'c> Emitter<'c, '_> {
    /// A tensorized loop of constant extent.
    pub(crate) fn tensorized(
        &mut self,
        loop_: &Loop,
        intrinsic: Intrinsic,
        extent: i64,
    ) -> Result<()> {
        let native = (self.target.vector_bytes / intrinsic.sum().bytes()) as i64;
        let free = self.environment.lanes().is_none() && self.mask.is_none();
        let fits = free && extent % MIN_LANES == 0 && self.target.has_intrinsic(intrinsic);
        // The program's nest is found by its variable; `loop_` may be a copy of it with variables replaced.
        let program = self.program;
        let (true, Ok(dot)) = (fits, program.dot(loop_, intrinsic)) else {
            return self.nest(loop_);
        };
        let mut first = 0;
        while first < extent {
            let left = extent - first;
            let width = if left >= native { native } else { 1 << left.ilog2() };
            let lanes = Lanes { var: loop_.var, first, count: width as u32, width: width as u32 };
            self.environment.bind(loop_.var, Binding::Lanes(lanes));
            self.environment.bind(dot.depth.var, Binding::Constant(0));
            let result = self.dot(&dot, intrinsic, width as u32);
            self.environment.unbind(dot.depth.var);
            self.environment.unbind(loop_.var);
            result?;
            first += width;
        }
        Ok(())
    }

    /// The software model: lanes around unrolled sums.
    fn nest(&mut self, loop_: &Loop) -> Result<()> {
        let mut nest = loop_.clone();
        nest.kind = LoopKind::Vectorized;
        for statement in &mut nest.body {
            if let Statement::Loop(depth) = statement {
                depth.kind = LoopKind::Unrolled;
            }
        }
        self.loop_statement(&nest)
    }

    /// One instruction: `width` lanes of sums.
    fn dot(&mut self, dot: &Dot, intrinsic: Intrinsic, width: u32) -> Result<()> {
        let (buffer, indices) = self.sums(dot.realize.block);
        let indices = self.placed(dot.realize, &indices);
        let sums = self.access(buffer, &indices)?;
        let depth = intrinsic.depth() as u32;
        let word = self.ir.context.i32_type().into();
        let shared = self.packed_factor(dot.realize, dot.broadcast, word)?;
        let shared = self.ir.splat(shared, width)?;
        let per_lane = match self.ir.with_lanes(word, Some(width)) {
            T::VectorType(_) if depth == 2 => {
                let pairs = self.ir.with_lanes(self.ir.context.bf16_type().into(), Some(2 * width));
                self.packed_factor(dot.realize, dot.streamed, pairs)?
            }
            words => self.packed_factor(dot.realize, dot.streamed, words)?,
        };
        let shared = self.ir.builder.build_bit_cast(shared, per_lane.get_type(), "")?;
        let before = self.load_access(&sums)?;
        let after = self.multiply_packed(intrinsic, before, [shared, per_lane], dot, width)?;
        self.store_access(&sums, after)
    }

    fn multiply_packed(
        &self,
        intrinsic: Intrinsic,
        sums: V<'c>,
        [shared, per_lane]: [V<'c>; 2],
        dot: &Dot,
        width: u32,
    ) -> Result<V<'c>> {
        let bits = 32 * width;
        match intrinsic {
            Intrinsic::DotBf16 => {
                let name = format!("llvm.x86.avx512bf16.dpbf16ps.{bits}");
                self.ir.intrinsic(&name, &[], &[sums, per_lane, shared])
            }
            Intrinsic::DotU8I8 => {
                let unsigned = dot.broadcast.dtype(self.program) == intrinsic.factors()[0];
                let factors = if unsigned { [shared, per_lane] } else { [per_lane, shared] };
                let name = format!("llvm.x86.avx512.vpdpbusd.{bits}");
                self.ir.intrinsic(&name, &[], &[sums, factors[0], factors[1]])
            }
        }
    }

    /// The memory from a factor's first element on, read as `ty`.
    fn packed_factor(&mut self, realize: &Realize, load: &Expr, ty: T<'c>) -> Result<V<'c>> {
        let Expr::Load(buffer, indices) = load else {
            return Err(self.unsupported("a factor of a tensorized product is no load"));
        };
        let indices = self.placed(realize, indices);
        let access = self.access(*buffer, &indices)?;
        let (address, align) = access.start();
        self.ir.load(ty, address, align)
    }

    fn sums(&self, block: BlockId) -> (BufferId, Vec<Expr>) {
        let block = &self.program.blocks[block];
        (block.buffer, block.indices.clone())
    }

    /// Indices of a block with its iterators bound, simplified.
    fn placed(&self, realize: &Realize, indices: &[Expr]) -> Vec<Expr> {
        let block = &self.program.blocks[realize.block];
        let bound = |index: &Expr| {
            index.substitute(&|var| {
                let axis = block.iterators.iter().position(|iterator| iterator.var == var)?;
                Some(realize.bindings[axis].clone())
            })
        };
        indices.iter().map(|index| self.environment.simplify(&bound(index))).collect()
    }
}
