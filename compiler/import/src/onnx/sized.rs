//! Operands of which a run decides how much is there.

use super::builder::{Builder, Operand};
use super::narrow::NarrowType;
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

    /// Says that nothing of use lies behind the `count` first of an operand.
    pub(super) fn note_filled(&mut self, operand: Operand, count: Operand) {
        self.filled.insert(operand, count);
    }

    /// How many are there of what [`Builder::filled`] filled.
    pub(super) fn filled_count(&self, operand: Operand) -> Option<Operand> {
        self.filled.get(&operand).copied()
    }

    /// An operand with room for so many along an axis, zeros behind what is there, and how many are there.
    ///
    /// # Errors
    /// A part along another axis.
    pub(super) fn widened(
        &mut self,
        operand: Operand,
        part: Option<Part>,
        axis: usize,
        room: usize,
    ) -> Result<(Operand, Operand), NodeError> {
        let shape = self.shape(operand);
        let Some(own) = shape.get(axis).copied().filter(|own| *own <= room) else {
            return Err(NodeError::invalid(format!(
                "{shape:?} has no axis {axis} of at most {room}"
            )));
        };
        let (mut wide, count) = match part {
            None => (operand, self.scalar(DataType::I64, own as f64)?),
            Some(part) if part.axis == axis => {
                (self.filled(operand, part, Behind::Zeros)?, self.single(part.count)?)
            }
            Some(_) => {
                let what = "a result of a branch, along two axes,".into();
                return Err(NodeError::UndecidedSize { what });
            }
        };
        if own < room {
            let mut rest = shape;
            rest[axis] = room - own;
            let zeros = Tensor::zeros(TensorType::new(self.dtype(operand), rest));
            let zeros = self.constant(zeros);
            wide = self.concat(&[wide, zeros], axis)?;
        }
        Ok((wide, count))
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
        let Part { axis, count } = part;
        let count_of_part = count;
        let count = self.single(count)?;
        let shape = self.shape(operand);
        let (outer, room): (usize, usize) = (shape[..axis].iter().product(), shape[axis]);
        let inner: usize = shape[axis + 1..].iter().product();
        let places = self.integers(&(0..room as i64).collect::<Vec<_>>())?;
        let places =
            self.reshape(places, [&[room][..], &vec![1; shape.len() - axis - 1]].concat())?;
        let there = self.binary(B::Less, places, count)?;
        let mut own = operand;
        if outer > 1 && !self.spread.contains(&operand) {
            // Without gaps: the element at (o, place, i) is number (o * count + place) * inner + i.
            let each = |part: &dyn Fn(usize, usize, usize) -> usize| -> Vec<i64> {
                let rows = (0..outer).flat_map(|o| (0..room).map(move |p| (o, p)));
                rows.flat_map(|(o, p)| (0..inner).map(move |i| (o, p, i)))
                    .map(|(o, p, i)| part(o, p, i) as i64)
                    .collect()
            };
            let rows = self.integers(&each(&|o, _, _| o * inner))?;
            let rest = self.integers(&each(&|_, p, i| p * inner + i))?;
            let moved = self.multiply(rows, count)?;
            let from = self.add(moved, rest)?;
            let last = (outer * room * inner).saturating_sub(1) as f64;
            let from = self.with_scalar(B::Minimum, from, last)?;
            let flat = self.reshape(operand, vec![outer * room * inner])?;
            let found = self.apply(Gather { axis: 0 }, &[flat, from])?;
            own = self.reshape(found, shape.clone())?;
        }
        let value = behind.number(self.dtype(operand))?;
        let value = self.constant(value);
        let filled = self.select(there, own, value)?;
        self.filled.insert(filled, count_of_part);
        Ok(filled)
    }

    /// An operand as outputs of a model have it: its part at the front, without gaps, and zeros behind. `NonZero` and its
    /// like give theirs so already.
    ///
    /// # Errors
    /// What an operator refuses.
    pub(super) fn compacted(&mut self, operand: Operand) -> Step {
        self.check_single_part(operand, "an output of the model")?;
        let Some(part) = self.part(operand).filter(|_| self.spread.contains(&operand)) else {
            return Ok(operand);
        };
        // Zeros are the same bytes in every element type, of narrow ones too.
        let (narrow, plain) = (self.narrow_type(operand), self.alias(operand));
        self.spread.insert(plain);
        let zeroed = self.filled(plain, part, Behind::Zeros)?;
        let own = self.gapless(zeroed, part)?;
        self.set_extent(own, part.axis, part.count);
        if let Some(narrow) = narrow {
            self.set_narrow(own, narrow);
        }
        Ok(own)
    }

    /// A part that lies at its places among all the room, zeros behind, moved to the front.
    pub(super) fn gapless(&mut self, operand: Operand, Part { axis, count }: Part) -> Step {
        let shape = self.shape(operand);
        let (outer, room): (usize, usize) = (shape[..axis].iter().product(), shape[axis]);
        let inner: usize = shape[axis + 1..].iter().product();
        if outer <= 1 || room * inner == 0 {
            return Ok(operand);
        }
        let number = self.single(count)?;
        let row = self.with_scalar(B::Multiply, number, inner as f64)?;
        let row = self.with_scalar(B::Maximum, row, 1.0)?;
        let all = outer * room * inner;
        let places = self.integers(&(0..all as i64).collect::<Vec<_>>())?;
        let rows = self.divide(places, row)?;
        let gone = self.multiply(rows, row)?;
        let rest = self.subtract(places, gone)?;
        let start = self.with_scalar(B::Multiply, rows, (room * inner) as f64)?;
        let from = self.add(start, rest)?;
        let from = self.with_scalar(B::Minimum, from, (all - 1) as f64)?;
        let flat = self.reshape(operand, vec![all])?;
        let found = self.apply(Gather { axis: 0 }, &[flat, from])?;
        self.reshape(found, shape)
    }
}
