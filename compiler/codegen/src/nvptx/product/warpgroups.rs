//! Products of warpgroups: `wgmma.mma_async`, which reads both operands out of shared memory while lanes go on.
//!
//! The sums are registers that the text names itself: while products are under way nobody may touch them, not even to move
//! them from one register to another, as LLVM does with values that a loop carries.
//!
//! Descriptors of operands and their layouts are those of the manual of PTX ("Asynchronous Warpgroup Level Matrix Shared Memory
//! Layout").

use super::emit::Product;
use super::form::Factors;
use super::rounds::byte_type;
use super::tiles::{STEP, WARPGROUP_ROWS};
use crate::error::Result;
use crate::llvm::ir::V;
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode as Op, IntValue};
use std::fmt::Write;

/// What a warpgroup multiplies.
pub(super) struct Warpgroup<'c> {
    /// Descriptors of the first operands of the first stage.
    descriptors: [IntValue<'c>; 2],
    /// Registers of the sums.
    count: usize,
}

/// Bits by which a descriptor's addresses and distances are shifted: they are in units of 16 bytes.
const UNIT: i64 = 4;
/// Where in a descriptor the distance of panels is: the leading dimension's byte offset.
const LEADING: u32 = 16;
/// Where the distance of eight lines is: the stride dimension's byte offset.
const STRIDE: u32 = 32;
/// Where the order of chunks is said, and the orders by bytes of a line.
const ORDER: u32 = 62;
const ORDERS: [(usize, u64); 2] = [(128, 1), (64, 2)];

impl<'c> Product<'_, 'c> {
    /// What this lane's warpgroup multiplies; declares its sums.
    pub(super) fn warpgroup(&self) -> Result<Warpgroup<'c>> {
        let count = self.tiles.warp[1] / 2;
        let declared = format!(".reg .{} sum<{count}>;", self.sum_type());
        self.instructions().assembly(&declared, &[])?;
        let descriptors = [self.descriptor(0)?, self.descriptor(1)?];
        Ok(Warpgroup { descriptors, count })
    }

    /// The descriptor of the first step of an operand in the first stage: of the left one this warpgroup's rows.
    fn descriptor(&self, side: usize) -> Result<IntValue<'c>> {
        let layout = &self.layouts[side];
        let long = self.ir.context.i64_type().into();
        let start = self.ir.convert(Op::PtrToInt, self.shared.into(), long)?.into_int_value();
        let mut start = self.op(Op::Add, start, self.start_in_stage(side) as i64)?;
        if side == 0 {
            let bytes = match layout.by_depth {
                true => WARPGROUP_ROWS * layout.line_bytes(),
                false => WARPGROUP_ROWS * self.bytes() / layout.line_bytes() * layout.panel_bytes(),
            };
            let warpgroup = self.op(Op::UDiv, self.warp()?[0], WARPGROUP_ROWS as i64)?;
            start = self.add(start, self.times(warpgroup, bytes)?)?;
        }
        let units = |bytes: usize| (bytes >> UNIT) as u64;
        let order = ORDERS.iter().find(|(bytes, _)| *bytes == layout.line_bytes());
        let fixed = order.map_or(0, |(_, order)| order << ORDER)
            | units(8 * layout.line_bytes()) << STRIDE
            | units(layout.panel_bytes()) << LEADING;
        let start = self.op(Op::LShr, start, UNIT)?;
        self.op(Op::Or, start, fixed as i64)
    }

    /// What a step along the depth adds to an operand's descriptor.
    fn step_units(&self, side: usize) -> i64 {
        let layout = &self.layouts[side];
        let bytes = match layout.by_depth {
            true => STEP,
            false => STEP / self.bytes() * layout.line_bytes(),
        };
        (bytes >> UNIT) as i64
    }

    /// PTX's name of the type of sums.
    fn sum_type(&self) -> &'static str {
        match self.form.factors {
            Factors::Bytes(_) => "b32",
            _ => "f32",
        }
    }

    /// `wgmma.mma_async` up to its operands, and what follows the predicate that says whether sums are added to.
    fn multiplication(&self) -> (String, String) {
        let columns = self.tiles.warp[1];
        let transposed = |side: usize| i32::from(!self.layouts[side].by_depth);
        let floats = |depth: usize, ty: &str| format!("m64n{columns}k{depth}.f32.{ty}.{ty}");
        let halves = format!(", 1, 1, {}, {}", transposed(0), transposed(1));
        let (form, rest) = match self.form.factors {
            Factors::Half => (floats(16, "f16"), halves),
            Factors::BFloat => (floats(16, "bf16"), halves),
            Factors::TensorFloat => (floats(8, "tf32"), ", 1, 1".to_string()),
            Factors::Bytes([left, right]) => {
                let types = [left, right].map(byte_type);
                (format!("m64n{columns}k32.s32.{}.{}", types[0], types[1]), String::new())
            }
        };
        (format!("wgmma.mma_async.sync.aligned.{form}"), rest)
    }
}

impl<'c> Warpgroup<'c> {
    /// Starts the products of one stage, and waits for those of the one before.
    pub(super) fn multiply(
        &self,
        product: &Product<'_, 'c>,
        round: IntValue<'c>,
        stage: IntValue<'c>,
    ) -> Result<()> {
        let ir = product.ir;
        let stage = product.op(Op::LShr, stage, UNIT)?;
        let mut operands = Vec::with_capacity(2 * product.steps() + 1);
        for step in 0..product.steps() as i64 {
            for side in [0, 1] {
                let first = product.add(self.descriptors[side], stage)?;
                operands.push(product.op(Op::Add, first, step * product.step_units(side))?);
            }
        }
        let later = ir.compare_int(IntPredicate::NE, round.into(), ir.i64(0).into())?;
        let long = ir.context.i64_type().into();
        operands.push(ir.convert(Op::ZExt, later, long)?.into_int_value());
        let text = self.text(product);
        product.instructions().assembly(&text, &operands)
    }

    /// The instructions of a round: the first products of all begin the sums, the others are added.
    fn text(&self, product: &Product<'_, 'c>) -> String {
        let steps = product.steps();
        let (name, rest) = product.multiplication();
        let sums: Vec<String> = (0..self.count).map(|number| format!("sum{number}")).collect();
        let sums = sums.join(", ");
        let mut text = format!(
            "{{\n\t.reg .pred later, always;\n\tsetp.ne.b64 later, ${}, 0;\n\tsetp.eq.b64 always, $0, $0;\n\t\
             wgmma.fence.sync.aligned;\n",
            2 * steps
        );
        for step in 0..steps {
            let added = if step == 0 { "later" } else { "always" };
            let (a, b) = (2 * step, 2 * step + 1);
            // Nothing fails where a string is written to.
            let _ = writeln!(text, "\t{name} {{{sums}}}, ${a}, ${b}, {added}{rest};");
        }
        text + "\twgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 1;\n\t}"
    }

    /// Waits for all products; the sums, by columns of 8 and register.
    pub(super) fn sums(&self, product: &Product<'_, 'c>) -> Result<Vec<V<'c>>> {
        let instructions = product.instructions();
        instructions.assembly("wgmma.wait_group.sync.aligned 0;", &[])?;
        let ty = product.sum_type();
        let each = (0..self.count).map(|number| {
            instructions.assembly_value(&format!("mov.{ty} $0, sum{number};"), ty == "f32")
        });
        each.collect()
    }
}
