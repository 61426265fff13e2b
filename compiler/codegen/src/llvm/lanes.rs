//! Blocks and lanes of a device: what statements of a bound program become.

use super::emitter::Emitter;
use super::environment::Binding;
use super::ir::V;
use crate::error::Result;
use hone_tensor::{Axis, Launch, Level, Loop, Range, Statement};
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode as Op, IntValue};

/// Why a program for a device of many lanes has no code here.
const BOUND: &str = "it is bound to a device's blocks and lanes: schedule it for a processor";

/// Names of the dimensions in intrinsics.
const DIMENSIONS: [&str; 3] = ["x", "y", "z"];

/// The lanes of a block where code is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    /// Lanes along each dimension.
    pub(crate) items: [usize; 3],
    /// Dimensions along which the first lane has to run what stands here alone.
    alone: [bool; 3],
}

impl Lanes {
    /// Outside of all loops over lanes.
    pub(crate) fn outside(items: [usize; 3]) -> Self {
        Self { items, alone: items.map(|extent| extent > 1) }
    }
}

impl<'c> Emitter<'c, '_> {
    /// The number of this lane in its block, or of the block in its launch, along a dimension; below `extent`.
    pub(crate) fn number(
        &self,
        level: Level,
        dimension: usize,
        extent: usize,
    ) -> Result<IntValue<'c>> {
        if extent <= 1 {
            return Ok(self.ir.i64(0));
        }
        let register = if level == Level::Block { "ctaid" } else { "tid" };
        let name = format!("llvm.nvvm.read.ptx.sreg.{register}.{}", DIMENSIONS[dimension]);
        let number = self.ir.intrinsic(&name, &[], &[])?;
        let extended = self.ir.convert(Op::ZExt, number, self.ir.context.i64_type().into())?;
        Ok(extended.into_int_value())
    }

    /// Binds the variables of a launch's loops over blocks, and emits what each block does.
    pub(crate) fn blocks(&mut self, loops: &[&Loop], body: &[Statement]) -> Result<()> {
        let Some((outer, rest)) = loops.split_first() else { return self.statements(body) };
        let extent = outer.extent.as_integer().unwrap_or(1);
        let dimension = outer.axis().map_or(0, |axis| axis.dimension as usize);
        let number =
            self.number(Level::Block, dimension, usize::try_from(extent).unwrap_or(usize::MAX))?;
        self.environment.bind(outer.var, Binding::Running(number, Range::extent(extent)));
        let result = match rest {
            [] => self.bound(outer.var, true, body),
            _ => self.blocks(rest, body),
        };
        self.environment.unbind(outer.var);
        result
    }

    /// A loop that is bound to lanes: each lane runs one iteration, and those beyond its extent none.
    pub(super) fn over_lanes(&mut self, inner: &Loop, axis: Axis) -> Result<()> {
        let (Some(before), Level::Lane) = (self.device, axis.level) else {
            return Err(self.unsupported(BOUND));
        };
        let dimension = axis.dimension as usize;
        let extent = inner.extent.as_integer().unwrap_or(0);
        let number = self.number(Level::Lane, dimension, before.items[dimension])?;
        let mut inside = before;
        inside.alone[dimension] = false;
        let run = |emitter: &mut Self| {
            emitter.device = Some(inside);
            emitter.environment.bind(inner.var, Binding::Running(number, Range::extent(extent)));
            let result = emitter.bound(inner.var, true, &inner.body);
            emitter.environment.unbind(inner.var);
            emitter.device = Some(before);
            result
        };
        if usize::try_from(extent) == Ok(before.items[dimension]) {
            return run(self);
        }
        let bound = self.ir.i64(extent).into();
        let within = self.ir.compare_int(IntPredicate::ULT, number.into(), bound)?;
        self.guarded(within, run)
    }

    /// Whether only the first lane runs a statement, along some dimension.
    pub(super) fn is_for_first_lane(&self, statement: &Statement) -> bool {
        let alone = self.device.is_some_and(|lanes| lanes.alone != [false; 3]);
        alone && !Launch::has_lanes(statement)
    }

    /// What the first lane runs alone.
    pub(super) fn by_first_lane(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let Some(before) = self.device else { return body(self) };
        let mut first: Option<V<'c>> = None;
        for dimension in (0..3).filter(|dimension| before.alone[*dimension]) {
            let number = self.number(Level::Lane, dimension, before.items[dimension])?;
            let zero = self.ir.i64(0).into();
            let is_first = self.ir.compare_int(IntPredicate::EQ, number.into(), zero)?;
            first = Some(match first {
                Some(other) => self.ir.binary(Op::And, other, is_first)?,
                None => is_first,
            });
        }
        let Some(first) = first else { return body(self) };
        self.guarded(first, |emitter| {
            emitter.device = Some(Lanes { alone: [false; 3], ..before });
            let result = body(emitter);
            emitter.device = Some(before);
            result
        })
    }

    /// Every lane of the block waits for the others.
    pub(super) fn sync(&self) -> Result<()> {
        if self.device.is_none() {
            return Err(self.unsupported(BOUND));
        }
        self.ir.intrinsic_call("llvm.nvvm.barrier0", &[], &[]).map(drop)
    }
}
