//! The loop over tiles of the depth: copies ahead, matrices, products.

use super::copies::{Next, Stream};
use super::emit::{Product, missing};
use super::form::Factors;
use super::tiles::Multiplier;
use super::warpgroups::Warpgroup;
use crate::error::Result;
use crate::llvm::ir::V;
use crate::nvptx::instructions::{BFLOAT, HALF};
use hone_tensor::BufferId;
use inkwell::IntPredicate;
use inkwell::values::{BasicValue, InstructionOpcode as Op, IntValue, PointerValue};
use std::collections::HashMap;

/// How operands are read.
enum Reads<'c> {
    /// By each lane of a warp, from these bytes of a stage on ([`Product::reads`]).
    Warp([Vec<IntValue<'c>>; 2]),
    /// By the instruction that multiplies.
    Warpgroup(Warpgroup<'c>),
}

impl<'c> Product<'_, 'c> {
    /// All sums of a lane: by rows of 16, columns of 8, and register.
    pub(super) fn sums(&self, buffers: &HashMap<BufferId, PointerValue<'c>>) -> Result<Vec<V<'c>>> {
        let start = |side: usize| {
            let buffer = self.form.operands[side].buffer;
            buffers.get(&buffer).copied().ok_or_else(|| missing(self.kernel, "operand"))
        };
        let streams = [self.stream(0, start(0)?)?, self.stream(1, start(1)?)?];
        let reads = match self.tiles.multiplier {
            Multiplier::Warp => Reads::Warp([self.reads(0)?, self.reads(1)?]),
            Multiplier::Warpgroup => Reads::Warpgroup(self.warpgroup()?),
        };
        let (ahead, rounds) = (self.tiles.ahead(), self.depth_order.rounds());
        let mut next = Next::first(self, &streams);
        for stage in 0..ahead {
            if stage < rounds {
                let at = self.ir.i64((stage * self.stage_bytes()) as i64);
                self.copy(&streams, &next, at)?;
            }
            next = next.after(self)?;
            self.instructions().commit()?;
        }
        let sums = self.rounds(&streams, &reads, &next, rounds)?;
        self.instructions().wait(0)?;
        match reads {
            Reads::Warp(_) => Ok(sums),
            Reads::Warpgroup(warpgroup) => warpgroup.sums(self),
        }
    }

    /// What a sum begins with.
    fn zero(&self) -> V<'c> {
        match self.form.factors {
            Factors::Bytes(_) => self.ir.context.i32_type().const_zero().into(),
            _ => self.ir.context.f32_type().const_zero().into(),
        }
    }

    /// The loop over tiles of the depth.
    fn rounds(
        &self,
        streams: &[Stream<'c>; 2],
        reads: &Reads<'c>,
        first: &Next<'c>,
        rounds: usize,
    ) -> Result<Vec<V<'c>>> {
        let (ir, tiles) = (self.ir, self.tiles);
        let (ahead, stage) = (tiles.ahead(), self.stage_bytes() as i64);
        // Warpgroups keep their sums in registers of their own.
        let count = match reads {
            Reads::Warp(_) => tiles.warp[0] / 16 * (tiles.warp[1] / 8) * 4,
            Reads::Warpgroup(_) => 0,
        };
        let mut carried: Vec<V<'c>> =
            vec![ir.i64(0).into(), ir.i64(0).into(), ir.i64(ahead as i64 * stage).into()];
        let numbers = carried.len();
        carried.extend(first.values());
        let fixed = carried.len();
        carried.extend(vec![self.zero(); count]);
        let (before, head) = (ir.here()?, ir.block(self.function, "round"));
        ir.builder.build_unconditional_branch(head)?;
        ir.builder.position_at_end(head);
        let phis: Vec<_> = carried
            .iter()
            .map(|start| {
                let phi = ir.builder.build_phi(start.get_type(), "")?;
                phi.add_incoming(&[(start as &dyn BasicValue<'c>, before)]);
                Ok(phi)
            })
            .collect::<Result<_>>()?;
        let values: Vec<V<'c>> = phis.iter().map(|phi| phi.as_basic_value()).collect();
        let round = values[0].into_int_value();
        let (read, write) = (values[1].into_int_value(), values[2].into_int_value());
        let next = first.with(&values[numbers..fixed]);
        self.await_tile(reads)?;
        if rounds > ahead {
            self.copy_while(round, rounds - ahead, (streams, &next, write))?;
        }
        self.instructions().commit()?;
        let sums = match reads {
            Reads::Warp(reads) => self.multiply(reads, read, &values[fixed..])?,
            Reads::Warpgroup(warpgroup) => {
                warpgroup.multiply(self, round, read).map(|()| vec![])?
            }
        };
        let mut changed: Vec<V<'c>> = vec![self.op(Op::Add, round, 1)?.into()];
        for offset in [read, write] {
            changed.push(self.next_stage(offset)?);
        }
        changed.extend(next.after(self)?.values());
        changed.extend(&sums);
        let continues =
            ir.compare_int(IntPredicate::ULT, changed[0], ir.i64(rounds as i64).into())?;
        let (last, done) = (ir.here()?, ir.block(self.function, "done"));
        ir.builder.build_conditional_branch(continues.into_int_value(), head, done)?;
        for (phi, value) in phis.iter().zip(&changed) {
            phi.add_incoming(&[(value as &dyn BasicValue<'c>, last)]);
        }
        ir.builder.position_at_end(done);
        Ok(sums)
    }

    /// Where the stage behind the one at `offset` begins; the first behind the last.
    fn next_stage(&self, offset: IntValue<'c>) -> Result<V<'c>> {
        let (ir, stage) = (self.ir, self.stage_bytes() as i64);
        let moved = self.op(Op::Add, offset, stage)?;
        let end = ir.i64(self.tiles.stages as i64 * stage);
        let over = ir.compare_int(IntPredicate::EQ, moved.into(), end.into())?;
        ir.select(over, ir.i64(0).into(), moved.into())
    }

    /// At the start of a round: waits for all but the tiles behind the next one. Then what every lane has copied is there for
    /// all, and the stage is free whose products all lanes have waited for.
    fn await_tile(&self, reads: &Reads<'c>) -> Result<()> {
        let instructions = self.instructions();
        if let Reads::Warpgroup(_) = reads {
            // The assembler writes loops of few instructions out for every round.
            instructions.assembly(".pragma \"nounroll\";", &[])?;
        }
        instructions.wait(self.tiles.ahead() - 1)?;
        if let Reads::Warpgroup(_) = reads {
            instructions.fence_copies()?;
        }
        instructions.barrier()
    }

    /// Copies a tile to a stage in the first `count` rounds.
    fn copy_while(
        &self,
        round: IntValue<'c>,
        count: usize,
        (streams, next, stage): (&[Stream<'c>; 2], &Next<'c>, IntValue<'c>),
    ) -> Result<()> {
        let ir = self.ir;
        let more = ir.compare_int(IntPredicate::ULT, round.into(), ir.i64(count as i64).into())?;
        let (copy, after) = (ir.block(self.function, "copy"), ir.block(self.function, "copied"));
        ir.builder.build_conditional_branch(more.into_int_value(), copy, after)?;
        ir.builder.position_at_end(copy);
        self.copy(streams, next, stage)?;
        ir.builder.build_unconditional_branch(after)?;
        ir.builder.position_at_end(after);
        Ok(())
    }

    /// Adds the products of one stage to the sums.
    fn multiply(
        &self,
        reads: &[Vec<IntValue<'c>>; 2],
        stage: IntValue<'c>,
        sums: &[V<'c>],
    ) -> Result<Vec<V<'c>>> {
        let [rows, columns] = self.tiles.warp;
        let mut sums = sums.to_vec();
        for step in 0..self.steps() {
            let parts = |side: usize, count: usize| -> Result<Vec<Vec<V<'c>>>> {
                (0..count)
                    .map(|part| self.matrices(&reads[side], side, stage, part, step))
                    .collect()
            };
            let (left, right) = (parts(0, rows / 16)?, parts(1, columns / 16)?);
            for (row, a) in left.iter().enumerate() {
                for column in 0..columns / 8 {
                    let b = &right[column / 2][2 * (column % 2)..][..2];
                    let first = 4 * (row * (columns / 8) + column);
                    let products = self.multiply_add(a, b, &sums[first..first + 4])?;
                    sums[first..first + 4].copy_from_slice(&products);
                }
            }
        }
        Ok(sums)
    }

    /// Four matrices of an operand: 16 rows or columns by 16 of the depth.
    fn matrices(
        &self,
        reads: &[IntValue<'c>],
        side: usize,
        stage: IntValue<'c>,
        part: usize,
        step: usize,
    ) -> Result<Vec<V<'c>>> {
        let layout = &self.layouts[side];
        let (by_lane, lines) = if layout.by_depth { (step, part) } else { (part, step) };
        let start = self.ir.offset(self.shared, self.add(stage, reads[by_lane])?)?;
        let offset = self.start_in_stage(side) + 16 * lines * layout.line_bytes();
        let address = self.ir.offset(start, self.ir.i64(offset as i64))?;
        self.instructions().matrices(address, !layout.by_depth)
    }

    fn multiply_add(&self, a: &[V<'c>], b: &[V<'c>], sums: &[V<'c>]) -> Result<Vec<V<'c>>> {
        let kind = match self.form.factors {
            Factors::Half => HALF.to_string(),
            Factors::BFloat => BFLOAT.to_string(),
            Factors::TensorFloat => "m16n8k8.row.col.tf32".to_string(),
            Factors::Bytes([left, right]) if left == right => {
                format!("m16n8k32.row.col.{}", byte_type(left))
            }
            Factors::Bytes([left, right]) => {
                format!("m16n8k32.row.col.{}.{}", byte_type(left), byte_type(right))
            }
        };
        self.instructions().multiply_add(&kind, [a, b], sums)
    }
}

/// PTX's name of a type of bytes.
pub(super) fn byte_type(signed: bool) -> &'static str {
    if signed { "s8" } else { "u8" }
}
