//! Tensorized loops: one instruction for the lanes and the sum inside them. Where the target lacks
//! the instruction, or lanes are masked, the nest itself runs.

use super::emitter::Emitter;
use super::environment::{Binding, Lanes};
use super::ir::{T, V};
use crate::error::Result;
use crate::intrinsics::{Emit, Instruction, Words, instruction};
use hone_tensor::{
    BlockId, BufferId, Expr, Extent, Intrinsic, Loop, LoopKind, Match, Realize, Statement,
};

/// Minimum lanes that the instructions take.
const MIN_LANES: i64 = 4;
/// Bytes of what one lane, or one column of a group of terms, has of an operand.
pub(super) const WORD_BYTES: i64 = 4;

impl<'c> Emitter<'c, '_> {
    /// A tensorized loop of constant extent.
    pub(crate) fn tensorized(
        &mut self,
        loop_: &Loop,
        intrinsic: Intrinsic,
        extent: i64,
    ) -> Result<()> {
        if intrinsic.is_of_tiles() {
            return self.tiled(loop_, intrinsic);
        }
        let native = (self.target.vector_bytes / intrinsic.result().bytes()) as i64;
        let free = self.environment.lanes().is_none() && self.mask.is_none();
        let fits = free && extent % MIN_LANES == 0 && sums_words(intrinsic);
        // The program's nest is found by its variable; `loop_` may be a copy of it with variables replaced.
        let program = self.program;
        let (true, Some(instruction), Ok(found)) =
            (fits, instruction(self.target, intrinsic), intrinsic.find(program, loop_))
        else {
            return self.nest(loop_);
        };
        let depth = found.loops[1].var;
        let mut first = 0;
        while first < extent {
            let left = extent - first;
            let width = if left >= native { native } else { 1 << left.ilog2() };
            let lanes = Lanes { var: loop_.var, first, count: width as u32, width: width as u32 };
            self.environment.bind(loop_.var, Binding::Lanes(lanes));
            self.environment.bind(depth, Binding::Constant(0));
            let result = self.dot(&found, instruction, width as u32);
            self.environment.unbind(depth);
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
    fn dot(&mut self, found: &Match, instruction: &Instruction, width: u32) -> Result<()> {
        let (buffer, indices) = self.sums(found.realize.block);
        let indices = self.placed(found.realize, &indices);
        let sums = self.access(buffer, &indices)?;
        let mut words = Vec::new();
        for (load, steps) in found.operands.iter().zip(&found.steps) {
            words.push(self.words(found.realize, load, steps, width)?);
        }
        let before = self.load_access(&sums)?;
        let words = Words { sums: before, operands: &words, lanes: width };
        let Emit::Words(emit) = instruction.emit else {
            return Err(self.unsupported("an instruction on words is one on tiles"));
        };
        let after = emit(self.ir, words)?;
        self.store_access(&sums, after)
    }

    /// A word of an operand for each of `width` lanes: all read the same one, or each its neighbour's next.
    fn words(
        &mut self,
        realize: &Realize,
        load: &Expr,
        steps: &[i64],
        width: u32,
    ) -> Result<V<'c>> {
        let word = self.ir.context.i32_type().into();
        if steps[0] == 0 {
            let shared = self.packed_factor(realize, load, word)?;
            return self.ir.splat(shared, width);
        }
        let words = self.ir.with_lanes(word, Some(width));
        self.packed_factor(realize, load, words)
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
    pub(crate) fn placed(&self, realize: &Realize, indices: &[Expr]) -> Vec<Expr> {
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

/// Whether an intrinsic has lanes that each sum a word of every operand.
fn sums_words(intrinsic: Intrinsic) -> bool {
    let [Extent::Lanes, Extent::Exactly(depth)] = intrinsic.loops() else { return false };
    intrinsic.operands().iter().all(|dtype| dtype.bytes() as i64 * depth == WORD_BYTES)
}
