//! Copies of an operand's tiles to shared memory, with zeros where it has no elements.

use super::depth_order::Bits;
use super::emit::{Product, missing};
use super::form::{Axis, Operand};
use super::tiles::Layout;
use crate::error::Result;
use crate::llvm::ir::V;
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode as Op, IntValue, PointerValue};

/// One operand's copies by a lane. A lane copies the same chunk of several lines of a tile: a round each.
pub(super) struct Stream<'c> {
    /// The first chunks of the first tile: of each round, or of the first one.
    first: Vec<PointerValue<'c>>,
    /// Bytes between the chunks of two rounds, where there is but one address.
    pitch: i64,
    /// Where in a stage the first chunk goes.
    target: IntValue<'c>,
    /// Whether a round's chunk is of a row or column that there is; for all where it is one, always where it is none.
    inside: Vec<IntValue<'c>>,
    /// For each round, the steps of windows that leave the operand ([`Bits`]); none where it has no windows.
    outside: Vec<IntValue<'c>>,
    /// The depth of a chunk's first element in a tile, by round or for all of them.
    depths: Vec<IntValue<'c>>,
}

/// The tile that is copied next.
pub(super) struct Next<'c> {
    /// Chunks of both operands, as [`Stream::first`].
    sources: [Vec<PointerValue<'c>>; 2],
    /// Numbers of the tile along the axes of the depth.
    numbers: Vec<IntValue<'c>>,
}

impl<'c> Next<'c> {
    /// The first tile.
    pub(super) fn first(product: &Product<'_, 'c>, streams: &[Stream<'c>; 2]) -> Self {
        let numbers = product.depth_order.axes.iter().map(|_| product.ir.i32(0)).collect();
        Self { sources: [streams[0].first.clone(), streams[1].first.clone()], numbers }
    }

    /// All that changes from tile to tile.
    pub(super) fn values(&self) -> Vec<V<'c>> {
        let sources = self.sources.iter().flatten().map(|source| (*source).into());
        sources.chain(self.numbers.iter().map(|number| (*number).into())).collect()
    }

    /// The same of other values.
    pub(super) fn with(&self, values: &[V<'c>]) -> Self {
        let (left, rest) = values.split_at(self.sources[0].len());
        let (right, numbers) = rest.split_at(self.sources[1].len());
        let pointers = |values: &[V<'c>]| values.iter().map(|v| v.into_pointer_value()).collect();
        Self {
            sources: [pointers(left), pointers(right)],
            numbers: numbers.iter().map(|number| number.into_int_value()).collect(),
        }
    }

    /// The tile after this one.
    pub(super) fn after(&self, product: &Product<'_, 'c>) -> Result<Self> {
        let (ir, depth_order) = (product.ir, &product.depth_order);
        let bytes = product.bytes() as i64;
        let mut numbers = self.numbers.clone();
        let last = depth_order
            .axes
            .len()
            .checked_sub(1)
            .ok_or_else(|| missing(product.kernel, "depth"))?;
        let mut moves = [0, 1].map(|side| ir.i64(bytes * depth_order.jump(last, side)));
        // Whether the numbers behind an axis begin again.
        let mut again: Option<IntValue<'c>> = None;
        for axis in (0..=last).rev() {
            let more = product.op(Op::Add, numbers[axis], 1)?;
            if let Some(again) = again {
                for (side, by) in moves.iter_mut().enumerate() {
                    let jump = ir.i64(bytes * depth_order.jump(axis, side));
                    *by = ir.select(again.into(), jump.into(), (*by).into())?.into_int_value();
                }
            }
            let end = ir.i32(depth_order.axes[axis].extent as i32);
            let ends = ir.compare_int(IntPredicate::EQ, more.into(), end.into())?;
            let next = ir.select(ends, ir.i32(0).into(), more.into())?.into_int_value();
            (numbers[axis], again) = match again {
                None => (next, Some(ends.into_int_value())),
                Some(all) => {
                    let number = ir.select(all.into(), next.into(), numbers[axis].into())?;
                    let both = ir.binary(Op::And, all.into(), ends)?;
                    (number.into_int_value(), Some(both.into_int_value()))
                }
            };
        }
        let mut sources = [Vec::new(), Vec::new()];
        for (side, moved) in sources.iter_mut().enumerate() {
            for source in &self.sources[side] {
                moved.push(ir.offset(*source, moves[side])?);
            }
        }
        Ok(Self { sources, numbers })
    }
}

impl<'c> Product<'_, 'c> {
    /// Rounds of copies of a side's tile, and the lines from one to the next.
    fn rounds_of(&self, side: usize) -> (usize, usize) {
        let layout = &self.layouts[side];
        let lanes = self.tiles.lanes();
        (layout.lines * layout.all_chunks() / lanes, lanes / layout.all_chunks())
    }

    /// The line and chunk of a tile that a lane copies in the first round. Eight lanes copy chunks of one panel, of as many lines
    /// as have eight, so that they do not meet in a bank.
    fn first_chunk(&self, layout: &Layout) -> Result<(IntValue<'c>, IntValue<'c>)> {
        let all = layout.all_chunks() as i64;
        let (chunks, lines) = (layout.chunks as i64, layout.turn as i64);
        if layout.panels == 1 || lines == 1 {
            return Ok((self.op(Op::UDiv, self.lane, all)?, self.op(Op::URem, self.lane, all)?));
        }
        let before = self.op(Op::UDiv, self.lane, all * lines)?;
        let within = self.op(Op::URem, self.lane, all * lines)?;
        let line = self.op(Op::URem, self.op(Op::UDiv, within, chunks)?, lines)?;
        let panel = self.op(Op::UDiv, within, chunks * lines)?;
        let chunk = self.op(Op::URem, within, chunks)?;
        let line = self.add(self.op(Op::Mul, before, lines)?, line)?;
        Ok((line, self.add(self.op(Op::Mul, panel, chunks)?, chunk)?))
    }

    /// The copies of a side of what begins at `start`.
    pub(super) fn stream(&self, side: usize, start: PointerValue<'c>) -> Result<Stream<'c>> {
        let (layout, operand) = (&self.layouts[side], &self.form.operands[side]);
        let axes = &self.form.across[side];
        let (line, chunk) = self.first_chunk(layout)?;
        let in_line = self.times(chunk, layout.in_chunk)?;
        let target = self.byte(layout, line, chunk)?;
        // Rows are along the blocks' `y`, columns along their `x`.
        let tile = self.times(self.block[1 - side], self.tiles.block[side])?;
        let (rounds, lines) = self.rounds_of(side);
        let inner = operand.depth.last().copied().unwrap_or(1);
        let in_order = operand.distance(axes);
        let (across, along, pitch) = match layout.by_depth {
            true => (line, in_line, in_order.map(|distance| distance * lines as i64)),
            false => (in_line, line, Some(inner * lines as i64)),
        };
        let element = self.add(self.first_of_batch(operand)?, self.op(Op::Mul, along, inner)?)?;
        let index = self.add(tile, across)?;
        let every = |by_round: bool| if by_round { rounds } else { 1 };
        let line_of = |number: usize| (number * lines) as i64;
        let (mut first, mut inside, mut outside) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..every(layout.by_depth) {
            let index = self.op(Op::Add, index, line_of(round))?;
            let values = self.along(axes, index)?;
            if pitch.is_none() || round == 0 {
                let at = match in_order {
                    Some(distance) => self.op(Op::Mul, index, distance)?,
                    None => self.weighted(&values, &operand.across)?,
                };
                let bytes = self.times(self.add(element, at)?, self.bytes())?;
                first.push(self.ir.offset(start, bytes)?);
            }
            if !self.tiles.whole(self.form, side) {
                let extent = self.ir.i64(self.form.extent(side) as i64).into();
                let within = self.ir.compare_int(IntPredicate::ULT, index.into(), extent)?;
                inside.push(within.into_int_value());
            }
            if side == 0 && !self.depth_order.windows.is_empty() {
                outside.push(self.outside(&values, inside.last().copied())?);
            }
        }
        if !outside.is_empty() {
            inside.clear();
        }
        let along = self.word(along)?;
        let depths =
            (0..every(!layout.by_depth)).map(|round| self.op(Op::Add, along, line_of(round)));
        let depths = depths.collect::<Result<_>>()?;
        let pitch = pitch.unwrap_or_default() * self.bytes() as i64;
        Ok(Stream { first, pitch, target, inside, outside, depths })
    }

    /// The first element of an operand that this block's product of matrices has.
    fn first_of_batch(&self, operand: &Operand) -> Result<IntValue<'c>> {
        let mut element = self.ir.i64(operand.start);
        for (axis, step) in operand.batch.iter().enumerate() {
            element = self.add(element, self.op(Op::Mul, self.along_batch(axis)?, *step)?)?;
        }
        Ok(element)
    }

    /// The numbers along axes of an element of all of them as one.
    pub(super) fn along(&self, axes: &[Axis], index: IntValue<'c>) -> Result<Vec<IntValue<'c>>> {
        if axes.len() == 1 {
            return Ok(vec![index]);
        }
        // Rows and columns are counted in 32 bits.
        let index = self.word(index)?;
        let long = self.ir.context.i64_type().into();
        let each = axes.iter().enumerate().map(|(number, axis)| {
            let inner: usize = axes[number + 1..].iter().map(|axis| axis.extent).product();
            let mut value = self.op(Op::UDiv, index, inner as i64)?;
            if number > 0 {
                value = self.op(Op::URem, value, axis.extent as i64)?;
            }
            Ok(self.ir.convert(Op::ZExt, value.into(), long)?.into_int_value())
        });
        each.collect()
    }

    fn word(&self, value: IntValue<'c>) -> Result<IntValue<'c>> {
        let word = self.ir.context.i32_type().into();
        Ok(self.ir.convert(Op::Trunc, value.into(), word)?.into_int_value())
    }

    fn weighted(&self, values: &[IntValue<'c>], factors: &[i64]) -> Result<IntValue<'c>> {
        let mut sum = self.ir.i64(0);
        for (value, factor) in values.iter().zip(factors) {
            sum = self.add(sum, self.op(Op::Mul, *value, *factor)?)?;
        }
        Ok(sum)
    }

    /// The steps of windows with which a row leaves the operand, as bits; all where there is no such row.
    fn outside(&self, row: &[IntValue<'c>], inside: Option<IntValue<'c>>) -> Result<IntValue<'c>> {
        let ir = self.ir;
        let mut bits = ir.i32(0);
        for (window, Bits { first, count, step, .. }) in
            self.form.bounds.iter().zip(&self.depth_order.windows)
        {
            let start = self.op(Op::Sub, self.weighted(row, &window.rows)?, window.low)?;
            let length: V<'c> = ir.i64((window.high - window.low).max(0)).into();
            for number in 0..*count {
                let at = self.op(Op::Add, start, number as i64 * step)?;
                // What is below 0 is large without a sign.
                let leaves = ir.compare_int(IntPredicate::UGE, at.into(), length)?;
                let bit = ir.i32(1 << (first + number));
                let bit = ir.select(leaves, bit.into(), ir.i32(0).into())?;
                bits = ir.binary(Op::Or, bits.into(), bit)?.into_int_value();
            }
        }
        match inside {
            None => Ok(bits),
            Some(inside) => {
                Ok(ir.select(inside.into(), bits.into(), ir.i32(-1).into())?.into_int_value())
            }
        }
    }

    /// The bits of the steps of windows that a tile is at.
    fn steps_of(&self, next: &Next<'c>) -> Result<IntValue<'c>> {
        let mut bits = self.ir.i32(0);
        for Bits { first, axis, .. } in &self.depth_order.windows {
            let mut bit = self.ir.i32(1 << first);
            if let Some(axis) = axis {
                bit = self
                    .ir
                    .binary(Op::Shl, bit.into(), next.numbers[*axis].into())?
                    .into_int_value();
            }
            bits = self.ir.binary(Op::Or, bits.into(), bit.into())?.into_int_value();
        }
        Ok(bits)
    }

    /// Starts the copies of a tile to a stage.
    pub(super) fn copy(
        &self,
        streams: &[Stream<'c>; 2],
        next: &Next<'c>,
        stage: IntValue<'c>,
    ) -> Result<()> {
        let steps = self.steps_of(next)?;
        for (side, stream) in streams.iter().enumerate() {
            let (rounds, lines) = self.rounds_of(side);
            let target = self.ir.offset(self.shared, self.add(stage, stream.target)?)?;
            for round in 0..rounds {
                let to =
                    self.start_in_stage(side) + round * lines * self.layouts[side].line_bytes();
                let to = self.ir.offset(target, self.ir.i64(to as i64))?;
                let from = match next.sources[side][..] {
                    [only] => self.ir.offset(only, self.ir.i64(round as i64 * stream.pitch))?,
                    _ => next.sources[side][round],
                };
                let has = self.has_elements(stream, round, next, steps)?;
                self.instructions().copy_chunk(to, from, has)?;
            }
        }
        Ok(())
    }

    /// Whether an operand has the elements of a round's chunk; `None` where it has those of all.
    fn has_elements(
        &self,
        stream: &Stream<'c>,
        round: usize,
        next: &Next<'c>,
        steps: IntValue<'c>,
    ) -> Result<Option<V<'c>>> {
        let ir = self.ir;
        let of = |values: &[IntValue<'c>]| values.get(round).or(values.first()).copied();
        let mut all: Vec<V<'c>> = of(&stream.inside).map(Into::into).into_iter().collect();
        if let Some(outside) = of(&stream.outside) {
            let left = ir.binary(Op::And, outside.into(), steps.into())?;
            all.push(ir.compare_int(IntPredicate::EQ, left, ir.i32(0).into())?);
        }
        if let (Some(axis), Some(depth)) = (self.depth_order.partial, of(&stream.depths)) {
            let at = self.add(self.times(next.numbers[axis], self.depth())?, depth)?;
            let end = ir.i32(self.form.inner() as i32);
            all.push(ir.compare_int(IntPredicate::ULT, at.into(), end.into())?);
        }
        let mut all = all.into_iter();
        let Some(first) = all.next() else { return Ok(None) };
        all.try_fold(first, |both, other| ir.binary(Op::And, both, other)).map(Some)
    }
}
