//! Several registers at a time, for values that cost long chains of instructions.
//!
//! One vector's exponential is a chain of dependent instructions longer than a processor looks ahead.
//! Such a map is computed on vectors of several registers, which LLVM splits instruction by
//! instruction, so that the chains of neighbouring registers interleave. Reads and writes go
//! register by register, as they would alone.

use super::emitter::Emitter;
use super::environment::{Binding, Lanes};
use super::ir::V;
use super::loops::substitute;
use crate::error::Result;
use hone_tensor::{BinaryOp, BlockBody, BufferId, Expr, Loop, LoopKind, Statement, UnaryOp, VarId};
use hone_types::DataType;
use inkwell::values::VectorValue;

/// Registers whose chains interleave where vectors are 64 bytes wide; half as many elsewhere, where
/// there are half as many registers.
const GROUP: i64 = 4;

impl<'c> Emitter<'c, '_> {
    /// Lanes of the vectors that `body` is computed on, registers having `native` of them.
    pub(crate) fn group_lanes(&self, body: &[Statement], native: i64) -> i64 {
        if !self.is_chain(body) {
            return native;
        }
        if self.target.vector_bytes >= 64 { GROUP * native } else { GROUP / 2 * native }
    }

    /// Whether a body is one map of `f32` values with a function that is a long chain, and nothing
    /// that lanes may take part in or not.
    fn is_chain(&self, body: &[Statement]) -> bool {
        let [Statement::Realize(realize)] = body else { return false };
        let block = &self.program.blocks[realize.block];
        let computed = |dtype: DataType| matches!(dtype, DataType::F32 | DataType::BF16);
        let single = |buffer: BufferId| computed(self.program.buffers[buffer].dtype);
        let BlockBody::Map(value) = &block.body else { return false };
        let (mut plain, mut chain) = (single(block.buffer) && realize.predicate.is_none(), false);
        value.visit(&mut |part| match part {
            Expr::Load(buffer, _) => plain &= single(*buffer),
            Expr::Cast(to, _) => plain &= computed(*to),
            Expr::Select(..) => plain = false,
            Expr::Unary(op, _) => {
                chain |= matches!(
                    op,
                    UnaryOp::Exp | UnaryOp::Log | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sigmoid
                );
            }
            _ => {}
        });
        plain && chain && self.mask.is_none()
    }

    /// A written-out loop around a vectorized one, both over a chain, as one vectorized loop.
    pub(crate) fn merged(&mut self, outer: &Loop, extent: i64) -> Option<Loop> {
        let [Statement::Loop(inner)] = &outer.body[..] else { return None };
        let lanes = self.environment.simplify(&inner.extent).as_integer()?;
        let native = (self.target.vector_bytes / 4) as i64;
        let fits = inner.kind == LoopKind::Vectorized && lanes % native == 0 && extent > 1;
        if !fits || self.environment.lanes().is_some() || !self.is_chain(&inner.body) {
            return None;
        }
        let var = self.environment.fresh();
        let part = |op| Expr::Binary(op, Box::new(Expr::Var(var)), Box::new(Expr::Integer(lanes)));
        let replace = |replaced: VarId| {
            if replaced == outer.var {
                Some(part(BinaryOp::FloorDivide))
            } else {
                (replaced == inner.var).then(|| part(BinaryOp::Modulo))
            }
        };
        let body = inner.body.iter().map(|statement| substitute(statement, &replace)).collect();
        let extent = Expr::Integer(extent * lanes);
        Some(Loop { var, extent, kind: LoopKind::Vectorized, body })
    }

    /// The lanes, where they are more than a register of `f32` has.
    pub(crate) fn grouped(&self) -> Option<Lanes> {
        self.environment.lanes().filter(|_| self.group)
    }

    /// Runs `each` for each register of the lanes.
    pub(crate) fn by_register<R>(
        &mut self,
        lanes: Lanes,
        mut each: impl FnMut(&mut Self, u32) -> Result<R>,
    ) -> Result<Vec<R>> {
        let native = self.register_lanes();
        self.group = false;
        let run = |register: u32| {
            let first = lanes.first + i64::from(register * native);
            let part = Lanes { var: lanes.var, first, count: native, width: native };
            self.environment.bind(lanes.var, Binding::Lanes(part));
            each(self, register)
        };
        let results = (0..lanes.width / native).map(run).collect();
        self.group = true;
        self.environment.bind(lanes.var, Binding::Lanes(lanes));
        results
    }

    /// `f32` elements of a register.
    pub(crate) fn register_lanes(&self) -> u32 {
        (self.target.vector_bytes / 4) as u32
    }

    /// Whether an element at `indices` is another one in other registers of a group.
    pub(crate) fn parts_differ(&self, indices: &[Expr]) -> bool {
        self.grouped().is_some_and(|lanes| indices.iter().any(|index| index.mentions(lanes.var)))
    }

    /// The element, or one per lane, that a load reads.
    pub(crate) fn element(&mut self, load: &Expr) -> Result<V<'c>> {
        match self.environment.simplify(load) {
            Expr::Load(buffer, indices) => {
                let access = self.access(buffer, &indices)?;
                self.load_access(&access)
            }
            other => self.value(&other),
        }
    }

    /// The registers of a group side by side.
    pub(crate) fn joined(&self, parts: Vec<V<'c>>) -> Result<V<'c>> {
        let native = self.register_lanes();
        let mut parts: Vec<VectorValue<'c>> = parts
            .into_iter()
            .map(|part| Ok(self.ir.to_lanes(part, Some(native))?.into_vector_value()))
            .collect::<Result<_>>()?;
        while parts.len() > 1 {
            let pairs: Vec<&[VectorValue<'c>]> = parts.chunks(2).collect();
            parts = pairs
                .into_iter()
                .map(|pair| match pair {
                    [low, high] => self.ir.join(*low, *high),
                    _ => Ok(pair[0]),
                })
                .collect::<Result<_>>()?;
        }
        Ok(parts[0].into())
    }
}
