//! The new graph while it is built: where its values have the dimension, what lies behind the size there, and numbers that are
//! computed from the size.

use super::constants::Affine;
use super::length::Length;
use super::twins::Axis;
use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction, Cast, Graph, Op};
use hone_types::{DataType, Id, Tensor, TensorType};
use std::collections::HashMap;

/// An axis of a value that is the dimension: its first positions, as many as its length says, are the model's. Where it is joined
/// with an axis before it, there are `outer` times as many, one part of all positions behind the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Along {
    pub axis: usize,
    /// The extent at every size.
    pub length: Length,
    /// Extent of what is before the dimension in the axis; 0 where that is not known yet.
    pub outer: usize,
    /// What the other positions hold.
    pub behind: Behind,
}

/// What the positions of an axis behind the size hold, at positions of the other axes that are the model's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Behind {
    /// Anything, also what is not a number.
    Anything,
    /// This number.
    Number(f64),
    /// Zeros, as a softmax leaves them: or NaN, where all positions before are NaN, too.
    Weights,
}

impl Along {
    /// An axis of which nothing but its extents is known.
    pub fn new(Axis { axis, length }: Axis) -> Self {
        let outer = usize::from(length.multiplier == 1);
        Self { axis, length, outer, behind: Behind::Anything }
    }

    /// An axis that is the dimension and nothing else.
    pub fn alone(axis: Axis) -> Self {
        Self { outer: 1, ..Self::new(axis) }
    }

    /// The positions of one part.
    pub fn part(&self) -> Result<Length, String> {
        let outer = i64::try_from(self.outer).unwrap_or(0);
        let part = self.length.over(outer).filter(|part| part.times(outer) == Some(self.length));
        part.ok_or_else(|| "joins the dimension with another axis, or repeats it".to_owned())
    }

    /// Which of its positions are the model's.
    pub fn before(&self, axes_behind: usize) -> Result<Before, String> {
        let length = self.part()?;
        Ok(Before { length, room: length, outer: self.outer, axes_behind })
    }

    /// Whether the axis is joined with one before the dimension.
    pub fn is_joined(&self) -> bool {
        self.outer != 1
    }
}

/// Which positions of an axis are asked for: truth values `[outer · room, 1, ...]` with so many axes behind, of whether a
/// position, in each of `outer` parts, is less than a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Before {
    pub length: Length,
    /// The length that the axis has.
    pub room: Length,
    pub outer: usize,
    pub axes_behind: usize,
}

/// A graph under construction.
pub(super) struct Bounded {
    pub(super) graph: Graph,
    size: ValueId,
    least: usize,
    bound: usize,
    /// Of each value, by its index, the axes that are the dimension, in order.
    along: Vec<Vec<Along>>,
    /// Constants that were found to be affine functions of the size.
    affine: HashMap<ValueId, Affine>,
    /// Lengths as scalars of a type.
    lengths: HashMap<(DataType, Length), ValueId>,
    /// What lengths of values count, each once, in the order in which they came.
    steps: Vec<Length>,
    /// Scalars that are counted by dividing the size, in the order in which they are computed.
    counted: Vec<ValueId>,
    /// Whether positions are before others, by what `super::masks` asks for.
    pub(super) conditions: HashMap<Before, ValueId>,
    /// Values with a number behind the size along an axis.
    pub(super) filled: HashMap<(ValueId, usize, u64), ValueId>,
}

impl Bounded {
    /// A graph with inputs, and the size as its last one.
    pub fn new(
        mut graph: Graph,
        size_input: &str,
        (least, bound): (usize, usize),
        whole: Length,
    ) -> Self {
        let size = graph.add_input(size_input, TensorType::new(DataType::I64, []));
        Self {
            graph,
            size,
            least,
            bound,
            along: Vec::new(),
            affine: HashMap::new(),
            lengths: HashMap::new(),
            steps: vec![whole],
            counted: Vec::new(),
            conditions: HashMap::new(),
            filled: HashMap::new(),
        }
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The whole graph.
    pub fn into_graph(self) -> Graph {
        self.graph
    }

    /// The smallest size.
    pub fn least(&self) -> usize {
        self.least
    }

    /// The largest size.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// The size as a length.
    pub fn whole(&self) -> Length {
        self.steps[0]
    }

    /// What lengths of values count, the size first.
    pub fn steps(&self) -> &[Length] {
        &self.steps
    }

    /// What lengths of some values count, each once.
    pub fn steps_among(&self, values: impl Iterator<Item = ValueId>) -> Vec<Length> {
        let mut steps: Vec<Length> = Vec::new();
        for along in values.flat_map(|value| self.along(value)) {
            if !steps.contains(&along.length.steps()) {
                steps.push(along.length.steps());
            }
        }
        steps
    }

    /// Raises the smallest size to one at which there is a position of a length.
    pub fn require(&mut self, length: Length) -> Result<(), String> {
        let least = length.first_with(0, self.least).filter(|least| *least <= self.bound);
        self.least =
            least.ok_or_else(|| format!("has no position at any size up to {}", self.bound))?;
        Ok(())
    }

    /// How many positions there are of a length at the bound.
    pub fn extent(&self, length: Length) -> Result<usize, String> {
        let extent = usize::try_from(length.at(self.bound));
        extent.map_err(|_| "has fewer positions than none".to_owned())
    }

    /// The axes of a value that are the dimension, in order.
    pub fn along(&self, value: ValueId) -> &[Along] {
        self.along.get(value.index()).map_or(&[], Vec::as_slice)
    }

    /// The dimension along an axis of a value.
    pub fn along_axis(&self, value: ValueId, axis: usize) -> Option<Along> {
        self.along(value).iter().find(|along| along.axis == axis).copied()
    }

    /// Says which axes of a value are the dimension, in order.
    pub fn set(&mut self, value: ValueId, along: Vec<Along>) {
        if self.along.len() <= value.index() {
            self.along.resize(value.index() + 1, Vec::new());
        }
        for entry in &along {
            let steps = entry.length.steps();
            if !self.steps.contains(&steps) {
                self.steps.push(steps);
            }
        }
        self.along[value.index()] = along;
    }

    /// What a constant that depends on the size is.
    pub fn affine_of(&self, value: ValueId) -> Option<&Affine> {
        self.affine.get(&value)
    }

    /// Names a value.
    pub fn name(&mut self, value: ValueId, name: &str) {
        self.graph.name_value(value, name);
    }

    /// Adds an output.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.graph.add_output(name, value);
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> ValueId {
        self.graph.add_constant(name, tensor)
    }

    /// Adds a node.
    pub fn nodes(
        &mut self,
        name: &str,
        operation: impl Into<Op>,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, String> {
        let added = self.graph.add_node(name, operation.into(), inputs);
        added.map_err(|error| format!("refuses its inputs after rewriting: {error}"))
    }

    /// Adds a node with one output that reads all its inputs.
    pub fn add(
        &mut self,
        name: &str,
        operation: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<ValueId, String> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let outputs = self.nodes(name, operation, &inputs)?;
        outputs.first().copied().ok_or_else(|| "has no result".to_owned())
    }

    /// Adds a constant of a type whose elements are `values`, rounded to the type.
    pub fn numbers(
        &mut self,
        dtype: DataType,
        shape: &[usize],
        values: &[f64],
    ) -> Result<ValueId, String> {
        let tensor = Tensor::from_f64(dtype, shape, values).map_err(|error| error.to_string())?;
        Ok(self.graph.add_constant("", tensor))
    }

    /// A length as a scalar of a type.
    pub fn length(&mut self, dtype: DataType, length: Length) -> Result<ValueId, String> {
        if let Some(known) = self.lengths.get(&(dtype, length)) {
            return Ok(*known);
        }
        let value = match dtype {
            DataType::I64 => self.counted(length)?,
            _ => {
                let count = self.length(DataType::I64, length)?;
                self.add("size", Cast { to: dtype }, &[count])?
            }
        };
        self.lengths.insert((dtype, length), value);
        Ok(value)
    }

    /// A length as an `i64`, in steps that are shared with other lengths.
    fn counted(&mut self, length: Length) -> Result<ValueId, String> {
        let Length { multiplier, divisor, extra, .. } = length;
        let (function, before, number) = if extra != 0 {
            (BinaryFunction::Add, length.without_extra(), extra)
        } else if multiplier != 1 {
            (BinaryFunction::Multiply, length.steps(), multiplier)
        } else if divisor != 1 {
            (BinaryFunction::Divide, length.before_division(), divisor)
        } else {
            return Ok(self.size);
        };
        let before = self.length(DataType::I64, before)?;
        let number = self.graph.add_constant("", Tensor::scalar(number));
        let value = self.add("size", Binary::new(function), &[before, number])?;
        if divisor != 1 {
            self.counted.extend([before, value]);
        }
        Ok(value)
    }

    /// Scalars that are counted by dividing the size. They are computed first, so that all kernels may stop at them.
    pub fn counts(&self) -> &[ValueId] {
        &self.counted
    }

    /// A tensor whose elements are affine functions of the steps of a length.
    pub fn affine(
        &mut self,
        name: &str,
        tensor_type: &TensorType,
        affine: Affine,
    ) -> Result<ValueId, String> {
        let TensorType { dtype, shape } = tensor_type;
        let mut value = self.length(*dtype, affine.of)?;
        if !shape.is_empty() || affine.slopes.iter().any(|slope| *slope != 1.0) {
            let slopes = self.numbers(*dtype, shape, &affine.slopes)?;
            value = self.add(name, Binary::new(BinaryFunction::Multiply), &[value, slopes])?;
        }
        if affine.offsets.iter().any(|offset| *offset != 0.0) {
            let offsets = self.numbers(*dtype, shape, &affine.offsets)?;
            value = self.add(name, Binary::new(BinaryFunction::Add), &[value, offsets])?;
        }
        self.affine.insert(value, affine);
        Ok(value)
    }

    /// Indices of the last positions of an axis that has a length: as many as there are at the size, and behind them the
    /// last one.
    pub fn positions_from_end(&mut self, length: Length) -> Result<ValueId, String> {
        let name = "positions";
        let (count, length) = (self.extent(length)?, length.without_extra());
        let bound = length.at(self.bound);
        let behind: Vec<f64> = (0..count).map(|position| position as f64 + bound as f64).collect();
        let behind = self.numbers(DataType::I64, &[count], &behind)?;
        let size = self.length(DataType::I64, length)?;
        let positions = self.add(name, Binary::new(BinaryFunction::Subtract), &[behind, size])?;
        let last = self.numbers(DataType::I64, &[], &[count as f64 - 1.0])?;
        self.add(name, Binary::new(BinaryFunction::Minimum), &[positions, last])
    }

    /// Indices `length + offset`, as `i64`.
    pub fn offset_from(
        &mut self,
        length: Length,
        shape: &[usize],
        offsets: Vec<f64>,
    ) -> Result<ValueId, String> {
        let slopes = vec![length.multiplier as f64; offsets.len()];
        let offsets = offsets.into_iter().map(|offset| offset + length.extra as f64).collect();
        let affine = Affine { of: length.steps(), slopes, offsets };
        self.affine("positions", &TensorType::new(DataType::I64, shape), affine)
    }
}
