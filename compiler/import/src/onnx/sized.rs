//! Operands of which a run decides how much is there.

use super::builder::{Builder, Operand};
use super::narrow::NarrowType;
use super::reshaped_parts::Product;
use super::shorthands::Step;
use crate::NodeError;
use hone_ops::{BinaryFunction, BinaryFunction as B, Gather};
use hone_types::{DataType, Tensor, TensorType};

/// Of which axis of an operand a part is there, and how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The axis.
    pub axis: usize,
    /// How much is there.
    pub count: Operand,
}

/// What is read behind the part of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// Zeros: nothing in a sum.
    Zeros,
    /// Ones: nothing in a product.
    Ones,
    /// The least number of the element type, negative infinity of floats: never a largest element before another.
    Least,
    /// The greatest one.
    Greatest,
}

impl Behind {
    /// The number of an element type.
    fn number(self, dtype: DataType) -> Result<Tensor, NodeError> {
        let of = TensorType::new(dtype, []);
        let value = match (self, dtype) {
            (Self::Zeros, _) => return Ok(Tensor::zeros(of)),
            (own, DataType::Bool) => return Ok(Tensor::scalar(own != Self::Least)),
            (Self::Ones, _) => 1.0,
            (Self::Least, _) if dtype.is_float() => f64::NEG_INFINITY,
            (Self::Greatest, _) if dtype.is_float() => f64::INFINITY,
            // By bits, since a float does not hold those of 64 bits.
            (own, _) => {
                let is_least = own == Self::Least;
                let mut bytes = vec![if is_least { 0 } else { 0xff }; of.bytes()];
                if let Some(last) = bytes.last_mut().filter(|_| dtype.is_signed_integer()) {
                    *last = if is_least { 0x80 } else { 0x7f };
                }
                return Ok(Tensor::from_bytes(of, bytes)?);
            }
        };
        Ok(Tensor::from_f64(dtype, [], &[value])?)
    }
}

impl Builder {
    /// Says that of an operand's axis only as many are there as `actual` says when the model runs.
    pub fn set_extent(&mut self, operand: Operand, axis: usize, actual: Operand) {
        self.extents.insert(operand, (axis, actual));
    }

    /// An operand of which only `count` are there along an axis, its elements the first ones: cut now where it is a
    /// constant, else when the model runs.
    ///
    /// # Errors
    /// A count that does not fit.
    pub fn cut(
        &mut self,
        operand: Operand,
        axis: usize,
        count: Operand,
    ) -> Result<Operand, NodeError> {
        let (Some(tensor), Some(known)) = (self.tensor(operand), self.tensor(count)) else {
            self.set_extent(operand, axis, count);
            return Ok(operand);
        };
        let mut shape = tensor.shape().to_vec();
        let known = known.to_i64().first().and_then(|known| usize::try_from(*known).ok());
        if let (Some(extent), Some(known)) = (shape.get_mut(axis), known) {
            *extent = known.min(*extent);
        }
        let actual = TensorType::new(tensor.dtype(), shape);
        let bytes = tensor.bytes()[..actual.bytes()].to_vec();
        let tensor = Tensor::from_bytes(actual, bytes)?;
        Ok(self.constant(tensor))
    }

    /// Notes what the model declares of the shape of an operand whose size is decided at run time.
    pub fn declare(&mut self, operand: Operand, shape: Vec<usize>) {
        if self.extents.contains_key(&operand) && !self.second_parts.contains_key(&operand) {
            self.declared.insert(operand, shape);
        }
    }

    /// Before an operand is read of which only a part may be there: where the model declares that all of it is, a run is
    /// held to that.
    ///
    /// # Errors
    /// What an operator refuses.
    pub fn settle(&mut self, operand: Operand) -> Result<(), NodeError> {
        let Some((axis, actual)) = self.extents.get(&operand).copied() else { return Ok(()) };
        let shape = self.shape(operand);
        // In a branch, the condition would be looked at in that branch alone.
        if self.declared.get(&operand) != Some(&shape) || self.own_value(operand).is_none() {
            return Ok(());
        }
        let all = self.with_scalar(BinaryFunction::Equal, actual, shape[axis] as f64)?;
        self.require(all, format!("a result has not the shape {shape:?}, as the model declares"))?;
        self.extents.remove(&operand);
        Ok(())
    }

    /// Refuses an operand of which only a part is there; `what` reads it.
    pub fn check_extent(&self, operand: Operand, what: &str) -> Result<(), NodeError> {
        match self.extents.contains_key(&operand) {
            true => Err(NodeError::UndecidedSize { what: what.to_string() }),
            false => Ok(()),
        }
    }
}

impl Builder {
    /// Which part of an operand is there, where not all of it is.
    pub(super) fn part(&self, operand: Operand) -> Option<Part> {
        self.extents.get(&operand).map(|(axis, count)| Part { axis: *axis, count: *count })
    }

    /// As [`Builder::set_extent`] of an operand whose part lies at its places among all the room, not at the front.
    pub(super) fn set_spread_extent(&mut self, operand: Operand, axis: usize, count: Operand) {
        self.set_extent(operand, axis, count);
        self.spread.insert(operand);
    }

    /// Every part of an operand: of a table of pairs there may be one along two axes.
    pub(super) fn parts(&self, operand: Operand) -> Vec<Part> {
        let second = self.second_parts.get(&operand).copied();
        self.part(operand).into_iter().chain(second).collect()
    }

    /// Says that of an operand only a part is there along a second axis, too.
    pub(super) fn set_second_part(&mut self, operand: Operand, part: Part) {
        self.second_parts.insert(operand, part);
    }

    /// Refuses an operand of which a part is there along two axes; `what` reads it.
    pub(super) fn check_single_part(&self, operand: Operand, what: &str) -> Result<(), NodeError> {
        match self.second_parts.contains_key(&operand) {
            true => Err(NodeError::UndecidedSize { what: format!("{what}, along two axes,") }),
            false => Ok(()),
        }
    }

    /// All of an operand's room, with `behind` behind each of its parts.
    ///
    /// # Errors
    /// Elements that are no plain numbers, and what an operator refuses.
    pub(super) fn filled_all(&mut self, operand: Operand, behind: Behind) -> Step {
        let mut own = operand;
        for (number, part) in self.parts(operand).into_iter().enumerate() {
            if number > 0 {
                // What the first part left where it was.
                self.spread.insert(own);
            }
            own = self.filled(own, part, behind)?;
        }
        Ok(own)
    }

    /// Whether an operand is one that [`Builder::filled`] made.
    pub(super) fn is_filled(&self, operand: Operand) -> bool {
        self.filled.contains_key(&operand)
    }

    /// Says that nothing of use lies behind a part of an operand.
    pub(super) fn note_filled(&mut self, operand: Operand, part: Part) {
        self.filled.entry(operand).or_default().push(part);
    }

    /// The part along an axis of what [`Builder::filled`] filled behind it.
    pub(super) fn filled_part(&self, operand: Operand, axis: usize) -> Option<Part> {
        self.filled.get(&operand)?.iter().find(|own| own.axis == axis).copied()
    }

    /// An operand with as much room as another shape along some axes, zeros behind what is there, and how many are there
    /// along each of them.
    ///
    /// # Errors
    /// A part along another axis, or less room than the operand has.
    pub(super) fn with_room(
        &mut self,
        operand: Operand,
        parts: &[Part],
        (axes, room): (&[usize], &[usize]),
    ) -> Result<(Operand, Vec<Operand>), NodeError> {
        let shape = self.shape(operand);
        let fits =
            shape.len() == room.len() && shape.iter().zip(room).all(|(own, room)| own <= room);
        if !fits || parts.iter().any(|part| !axes.contains(&part.axis)) {
            return Err(NodeError::invalid(format!(
                "{shape:?} has no room as {room:?} along {axes:?}"
            )));
        }
        let mut whole = self.filled_all(operand, Behind::Zeros)?;
        let mut counts = Vec::with_capacity(axes.len());
        for axis in axes {
            counts.push(match parts.iter().find(|part| part.axis == *axis) {
                Some(part) => self.single(part.count)?,
                None => self.scalar(DataType::I64, shape[*axis] as f64)?,
            });
            if shape[*axis] < room[*axis] {
                let mut rest = self.shape(whole);
                rest[*axis] = room[*axis] - shape[*axis];
                let zeros = Tensor::zeros(TensorType::new(self.dtype(operand), rest));
                let zeros = self.constant(zeros);
                whole = self.concat(&[whole, zeros], *axis)?;
            }
        }
        Ok((whole, counts))
    }

    /// As many times a count.
    pub(super) fn times(&mut self, count: Operand, times: usize) -> Step {
        let all = self.with_scalar(B::Multiply, count, times as f64)?;
        if let Some(own) = self.product_of(count) {
            let factor = own.factor.saturating_mul(times);
            self.products.insert(all, Product { factor, ..own });
        }
        Ok(all)
    }

    /// Says that what is there of an operand along an axis is `row`, as often as a run says: `row` has extent 1 there, or
    /// no such axis.
    ///
    /// # Errors
    /// What an operator refuses.
    pub(super) fn note_repeated(
        &mut self,
        operand: Operand,
        axis: usize,
        row: Operand,
    ) -> Result<(), NodeError> {
        let mut shape = self.shape(operand);
        let Some(extent) = shape.get_mut(axis) else { return Ok(()) };
        *extent = 1;
        let is_plain = self.narrow_type(row).is_none();
        if is_plain && shape.iter().product::<usize>() == self.tensor_type(row).elements() {
            let row = self.reshape(row, shape)?;
            self.repeated.insert(operand, (axis, row));
        }
        Ok(())
    }

    /// What is there of an operand along an axis, where all of it is the same: one of it.
    pub(super) fn repeated_along(&self, operand: Operand, axis: usize) -> Option<Operand> {
        self.repeated.get(&operand).filter(|own| own.0 == axis).map(|own| own.1)
    }

    /// A count as an `i64` scalar.
    pub(super) fn single(&mut self, count: Operand) -> Step {
        let count = self.cast(count, DataType::I64)?;
        self.reshape(count, Vec::new())
    }

    /// All of an operand's room, with `behind` behind its part.
    ///
    /// # Errors
    /// Elements that are no plain numbers, and what an operator refuses.
    pub(super) fn filled(&mut self, operand: Operand, part: Part, behind: Behind) -> Step {
        match self.narrow_type(operand) {
            None => self.filled_plain(operand, part, behind),
            // The handle 0 stands for the empty string.
            Some(NarrowType::Text) if behind == Behind::Zeros => {
                let plain = self.alias(operand);
                if self.spread.contains(&operand) {
                    self.spread.insert(plain);
                }
                let filled = self.filled_plain(plain, part, behind)?;
                self.inherit_tokens(operand, filled);
                Ok(self.as_text(filled))
            }
            Some(_) => Err(NodeError::UndecidedSize {
                what: "an input that is not of plain numbers".into(),
            }),
        }
    }

    /// Says that what `to` holds are the tokens that `from` holds.
    pub(super) fn inherit_tokens(&mut self, from: Operand, to: Operand) {
        if let Some(tokens) = self.tokens.get(&from).cloned() {
            self.tokens.insert(to, tokens);
        }
    }

    fn filled_plain(&mut self, operand: Operand, part: Part, behind: Behind) -> Step {
        let axis = part.axis;
        let count = self.single(part.count)?;
        let shape = self.shape(operand);
        let (outer, room): (usize, usize) = (shape[..axis].iter().product(), shape[axis]);
        let inner: usize = shape[axis + 1..].iter().product();
        let places = self.integers(&(0..room as i64).collect::<Vec<_>>())?;
        let places =
            self.reshape(places, [&[room][..], &vec![1; shape.len() - axis - 1]].concat())?;
        let there = self.binary(B::Less, places, count)?;
        let mut own = operand;
        if outer > 1 && !self.spread.contains(&operand) {
            // Without gaps: row `place` of block `o` is number `o * count + place`.
            let rows = outer * room;
            let each = |part: &dyn Fn(usize) -> usize| -> Vec<i64> {
                (0..rows).map(|row| part(row) as i64).collect()
            };
            let blocks = self.integers(&each(&|row| row / room))?;
            let rest = self.integers(&each(&|row| row % room))?;
            let moved = self.multiply(blocks, count)?;
            let from = self.add(moved, rest)?;
            own = self.rows_at(operand, (rows, inner), from)?;
        }
        let value = behind.number(self.dtype(operand))?;
        let value = self.constant(value);
        let filled = self.select(there, own, value)?;
        let mut parts = self.filled.get(&operand).cloned().unwrap_or_default();
        parts.push(part);
        self.filled.insert(filled, parts);
        if let Some(row) = self.repeated.get(&operand).copied() {
            self.repeated.insert(filled, row);
        }
        Ok(filled)
    }

    /// The rows of an operand, which is seen as `[rows, inner]`, at computed places; those beyond the last are the last.
    ///
    /// # Errors
    /// What an operator refuses.
    pub(super) fn rows_at(
        &mut self,
        operand: Operand,
        (rows, inner): (usize, usize),
        from: Operand,
    ) -> Step {
        let shape = self.shape(operand);
        let from = self.with_scalar(B::Minimum, from, rows.saturating_sub(1) as f64)?;
        let flat = self.reshape(operand, vec![rows, inner])?;
        let found = self.apply(Gather { axis: 0 }, &[flat, from])?;
        self.reshape(found, shape)
    }

    /// An operand as outputs of a model have it: what is there at the front, without gaps, and zeros behind. `NonZero` and its
    /// like give theirs so already.
    ///
    /// # Errors
    /// What an operator refuses.
    pub(super) fn compacted(&mut self, operand: Operand) -> Step {
        let parts = self.parts(operand);
        if parts.is_empty() || !self.spread.contains(&operand) {
            return Ok(operand);
        }
        // Zeros are the same bytes in every element type, of narrow ones too.
        let (narrow, plain) = (self.narrow_type(operand), self.alias(operand));
        let mut zeroed = plain;
        for part in &parts {
            self.spread.insert(zeroed);
            zeroed = self.filled(zeroed, *part, Behind::Zeros)?;
        }
        let own = self.gapless(zeroed, &parts)?;
        self.set_parts(own, &parts);
        if let Some(narrow) = narrow {
            self.set_narrow(own, narrow);
        }
        Ok(own)
    }

    /// Says which parts of an operand are there, along one axis or two.
    pub(super) fn set_parts(&mut self, operand: Operand, parts: &[Part]) {
        if let Some(first) = parts.first() {
            self.set_spread_extent(operand, first.axis, first.count);
        }
        if let Some(second) = parts.get(1) {
            self.set_second_part(operand, *second);
        }
    }

    /// What is there of an operand, whose parts lie at their places among all the room, moved to the front: row-major, by
    /// the extents that a run decides.
    ///
    /// # Errors
    /// What an operator refuses.
    pub(super) fn gapless(&mut self, operand: Operand, parts: &[Part]) -> Step {
        let shape = self.shape(operand);
        let (Some(first), Some(last)) =
            (parts.iter().map(|own| own.axis).min(), parts.iter().map(|own| own.axis).max())
        else {
            return Ok(operand);
        };
        let product = |own: &[usize]| own.iter().product::<usize>();
        let (rows, inner) = (product(&shape[..=last]), product(&shape[last + 1..]));
        let has_gaps = product(&shape[..first]) > 1 || first < last;
        if !has_gaps || rows * inner == 0 {
            return Ok(operand);
        }
        // From the innermost axis outwards, what is left of a row's number by the extents of the run.
        let mut rest = self.integers(&(0..rows as i64).collect::<Vec<_>>())?;
        let mut from = None;
        let mut stride = 1;
        for axis in (first..=last).rev() {
            let extent = match parts.iter().find(|own| own.axis == axis) {
                Some(part) => {
                    let count = self.single(part.count)?;
                    self.with_scalar(B::Maximum, count, 1.0)?
                }
                None => self.scalar(DataType::I64, shape[axis] as f64)?,
            };
            let outer = self.divide(rest, extent)?;
            let gone = self.multiply(outer, extent)?;
            let index = self.subtract(rest, gone)?;
            from = Some(self.added(from, index, stride)?);
            stride *= shape[axis];
            rest = outer;
        }
        let from = self.added(from, rest, stride)?;
        self.rows_at(operand, (rows, inner), from)
    }

    /// `sum + index * stride`.
    fn added(&mut self, sum: Option<Operand>, index: Operand, stride: usize) -> Step {
        let moved = self.with_scalar(B::Multiply, index, stride as f64)?;
        sum.map_or(Ok(moved), |sum| self.add(sum, moved))
    }
}
