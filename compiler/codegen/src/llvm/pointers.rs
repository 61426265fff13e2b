//! Pointers that move with loops.
//!
//! An address inside of a running loop is a sum of terms, of which the last often is the loop's variable times a
//! constant. Such a sum becomes a pointer that is set in front of the loop and moved by the constant in each iteration;
//! what differs by a constant alone shares it, and has its difference in the displacement. This is strength reduction
//! (Allen, Cocke and Kennedy, 1981) where it is known what is unrolled. LLVM's pass for it is not run for x86
//! (`Target::moves_pointers`): it gave each of a tile's broadcasts a register, kept most of them on the stack, and moved
//! them there in short loops.
//! Measured on Zen 3, of the time with that pass: windows of 3 x 3 with stride 2 take 0.71, of 5 x 5 0.73, a transposed
//! convolution of 4 x 4 with stride 2 0.64. On Sapphire Rapids, with AVX-512: 0.86 to 1.00, 0.86 and 0.80, and nine whole
//! networks 0.97 to 1.00.

use super::emitter::Emitter;
use crate::error::Result;
use hone_tensor::{BufferId, Expr, VarId};
use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValue, IntValue, PhiValue, PointerValue};

/// Pointers of one loop. Further addresses are computed in every iteration: each pointer takes a register.
const MAX_POINTERS: usize = 8;

/// A running loop that counts from zero, while its body is emitted.
#[derive(Debug)]
pub(crate) struct MovingLoop<'c> {
    var: VarId,
    /// Ends in the branch to `head`.
    before: BasicBlock<'c>,
    head: BasicBlock<'c>,
    pointers: Vec<MovingPointer<'c>>,
}

/// `buffer + sum of terms`, of which the last is the loop's variable.
#[derive(Debug)]
struct MovingPointer<'c> {
    buffer: BufferId,
    /// Expressions, and bytes that one of them adds.
    terms: Vec<(Expr, i64)>,
    phi: PhiValue<'c>,
}

impl<'c> Emitter<'c, '_> {
    /// Whether pointers move with a loop that begins at `begin`.
    pub(super) fn may_move(&self, begin: IntValue<'c>) -> bool {
        self.moves_pointers && begin.get_sign_extended_constant() == Some(0)
    }

    /// Begins the loop `var`, which is entered from the end of `before`; the builder is in its `head`.
    pub(super) fn enter_loop(&mut self, var: VarId, before: BasicBlock<'c>, head: BasicBlock<'c>) {
        self.loops.push(MovingLoop { var, before, head, pointers: Vec::new() });
    }

    /// Ends the innermost loop: moves its pointers, where its variable is counted up.
    pub(super) fn leave_loop(&mut self) -> Result<()> {
        let Some(inner) = self.loops.pop() else { return Ok(()) };
        for pointer in inner.pointers {
            let step = pointer.terms.last().map_or(0, |(_, step)| *step);
            let value = pointer.phi.as_basic_value().into_pointer_value();
            let moved = self.ir.offset(value, self.ir.i64(step))?;
            pointer.phi.add_incoming(&[(&moved as &dyn BasicValue<'c>, self.ir.here()?)]);
        }
        Ok(())
    }

    /// The address of a sum of terms behind the start of a buffer. Terms are expressions and the bytes that one of them
    /// adds, those of outer loops first. Of the running loops, the outermost `around` may move a pointer for it.
    pub(super) fn moved(
        &mut self,
        (buffer, start): (BufferId, PointerValue<'c>),
        terms: &[(Expr, i64)],
        around: usize,
    ) -> Result<PointerValue<'c>> {
        let Some(((term, step), outer)) = terms.split_last() else { return Ok(start) };
        if let Some(number) = self.loop_that_moves(term, outer, around) {
            let known =
                |pointer: &&MovingPointer<'c>| pointer.buffer == buffer && pointer.terms == terms;
            let pointers = &self.loops[number].pointers;
            if let Some(pointer) = pointers.iter().find(known) {
                return Ok(pointer.phi.as_basic_value().into_pointer_value());
            }
            if pointers.len() < MAX_POINTERS {
                return self.add_pointer(number, (buffer, start), terms);
            }
        }
        let address = self.moved((buffer, start), outer, around)?;
        let value = self.index(term)?;
        let bytes = match *step {
            1 => value,
            step => self.ir.builder.build_int_nsw_mul(value, self.ir.i64(step), "")?,
        };
        self.ir.offset(address, bytes)
    }

    /// The loop, among the outermost `around`, whose variable `term` is, where all other terms are known in front of it.
    /// An element that is read for an index is not read earlier: a condition may guard it.
    fn loop_that_moves(&self, term: &Expr, others: &[(Expr, i64)], around: usize) -> Option<usize> {
        let Expr::Var(var) = term else { return None };
        let number = self.loops[..around].iter().position(|inner| inner.var == *var)?;
        let depth = self.environment.depth(term);
        let is_known = |other: &Expr| {
            let mut reads = false;
            other.visit(&mut |part| reads |= matches!(part, Expr::Load(..)));
            !reads && self.environment.depth(other) < depth
        };
        others.iter().all(|(other, _)| is_known(other)).then_some(number)
    }

    /// A new pointer of a loop, set to the sum without its last term in front of it.
    fn add_pointer(
        &mut self,
        number: usize,
        (buffer, start): (BufferId, PointerValue<'c>),
        terms: &[(Expr, i64)],
    ) -> Result<PointerValue<'c>> {
        let here = self.ir.here()?;
        let (before, head) = (self.loops[number].before, self.loops[number].head);
        self.to_end_of(before);
        let first = self.moved((buffer, start), &terms[..terms.len() - 1], number)?;
        match head.get_first_instruction() {
            Some(instruction) => self.ir.builder.position_before(&instruction),
            None => self.ir.builder.position_at_end(head),
        }
        let phi = self.ir.builder.build_phi(start.get_type(), "")?;
        phi.add_incoming(&[(&first as &dyn BasicValue<'c>, before)]);
        // Where a pointer of an outer loop is made for one of an inner loop, that is in front of the branch to the inner one.
        self.to_end_of(here);
        let pointer = MovingPointer { buffer, terms: terms.to_vec(), phi };
        self.loops[number].pointers.push(pointer);
        Ok(phi.as_basic_value().into_pointer_value())
    }

    /// Places the builder at the end of a block, in front of the branch that ends it where there is one already.
    fn to_end_of(&self, block: BasicBlock<'c>) {
        match block.get_terminator() {
            Some(branch) => self.ir.builder.position_before(&branch),
            None => self.ir.builder.position_at_end(block),
        }
    }
}
