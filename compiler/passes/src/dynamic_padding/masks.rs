//! Numbers put behind the size, by choices between them and what is there.

use super::bounded::{Along, Before, Behind, Bounded};
use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction, Expand, Op, Reshape, Select, Transpose};
use hone_types::{DataType, Tensor};

/// Most operations that a choice is moved up through.
const MOST_MOVES: usize = 8;

/// The number of a type that a sum, a product or a search takes for nothing: for truth values as for others.
fn of_type(number: f64, dtype: DataType) -> f64 {
    match dtype {
        DataType::Bool => f64::from(u8::from(number > 0.0)),
        _ => number,
    }
}

impl Bounded {
    /// Whether positions are before the size, or so many more or less: truth values.
    pub fn is_before(&mut self, before: Before) -> Result<ValueId, String> {
        if let Some(known) = self.conditions.get(&before) {
            return Ok(*known);
        }
        let (blocks, inner) = before.length.in_blocks();
        let (room, inner) = (self.extent(before.room)?, usize::try_from(inner).unwrap_or(1));
        // The runtime's size is compared as it comes, and what is counted from it as it is.
        let dtype = match blocks.is_size_and() {
            Some(_) => DataType::I32,
            None => DataType::I64,
        };
        let line = (0..room).map(|position| (position / inner) as f64);
        let positions: Vec<f64> = (0..before.outer).flat_map(|_| line.clone()).collect();
        let mut shape = vec![1; before.axes_behind + 1];
        shape[0] = positions.len();
        let positions =
            Tensor::from_f64(dtype, shape, &positions).map_err(|error| error.to_string())?;
        let positions = self.constant("positions", positions);
        let size = self.length(dtype, blocks)?;
        let less = Binary::new(BinaryFunction::Less);
        let condition = self.add("before_size", less, &[positions, size])?;
        self.conditions.insert(before, condition);
        Ok(condition)
    }

    /// A value with `number` behind the size along an axis; the value itself where the axis is not the dimension
    /// or holds the number there.
    pub fn filled(&mut self, value: ValueId, axis: usize, number: f64) -> Result<ValueId, String> {
        let dtype = self.graph().tensor_type(value).dtype;
        let number = of_type(number, dtype);
        let Some(along) = self.along_axis(value, axis) else { return Ok(value) };
        if along.behind == Behind::Number(number) {
            return Ok(value);
        }
        let key = (value, axis, number.to_bits());
        if let Some(known) = self.filled.get(&key) {
            return Ok(*known);
        }
        let rank = self.graph().tensor_type(value).rank();
        let condition = self.is_before(along.before(rank - 1 - axis)?)?;
        let number_value = self.numbers(dtype, &[], &[number])?;
        let name = self.graph().values()[value].name.clone();
        let filled = self.add(&name, Select {}, &[condition, value, number_value])?;
        let entries = self.along(value).to_vec();
        self.set(filled, with_behind(entries, axis, Behind::Number(number)));
        self.filled.insert(key, filled);
        Ok(filled)
    }

    /// The same, with the choice as far up as it goes through transpositions, reshapes and repetitions along other
    /// axes: there it can be computed with what makes the value, and what reads the value finds these operations as
    /// they were.
    pub fn filled_above(
        &mut self,
        value: ValueId,
        axis: usize,
        number: f64,
    ) -> Result<ValueId, String> {
        let dtype = self.graph().tensor_type(value).dtype;
        let known = Behind::Number(of_type(number, dtype));
        match self.along_axis(value, axis) {
            Some(along) if along.behind != known => {}
            _ => return Ok(value),
        }
        let mut moved: Vec<(Op, ValueId, usize)> = Vec::new();
        let (mut top, mut top_axis) = (value, axis);
        while let Some((operation, above, above_axis)) = self.above(top, top_axis) {
            if moved.len() == MOST_MOVES {
                break;
            }
            moved.push((operation, top, top_axis));
            (top, top_axis) = (above, above_axis);
        }
        let mut filled = self.filled(top, top_axis, number)?;
        while let Some((operation, old, axis)) = moved.pop() {
            let key = (old, axis, of_type(number, dtype).to_bits());
            filled = match self.filled.get(&key) {
                Some(known) => *known,
                None => {
                    let name = self.graph().values()[old].name.clone();
                    let new = self.add(&name, operation, &[filled])?;
                    let entries = self.along(old).to_vec();
                    self.set(new, with_behind(entries, axis, known));
                    self.filled.insert(key, new);
                    new
                }
            };
        }
        Ok(filled)
    }

    /// The operation that a value comes from by moving elements alone, its operand, and which axis of that an axis
    /// which is the dimension is.
    fn above(&self, value: ValueId, axis: usize) -> Option<(Op, ValueId, usize)> {
        let node = &self.graph().nodes()[self.graph().producer(value)?];
        let input = node.inputs.first().copied().flatten()?;
        let above = if let Some(transpose) = node.operation.downcast::<Transpose>() {
            *transpose.permutation.get(axis)?
        } else if node.operation.downcast::<Reshape>().is_some() {
            let position = self.along(value).iter().position(|along| along.axis == axis)?;
            self.along(input).get(position)?.axis
        } else if node.operation.downcast::<Expand>().is_some() {
            let added =
                self.graph().tensor_type(value).rank() - self.graph().tensor_type(input).rank();
            axis.checked_sub(added)?
        } else {
            return None;
        };
        self.along_axis(input, above)?;
        Some((node.operation.clone(), input, above))
    }
}

/// Entries with something else behind the size along an axis.
fn with_behind(mut entries: Vec<Along>, axis: usize, behind: Behind) -> Vec<Along> {
    for entry in &mut entries {
        if entry.axis == axis {
            entry.behind = behind;
        }
    }
    entries
}
