//! Shorthands of the builder: one line per operator that importing composes others from.

use super::builder::{Builder, Operand};
use super::node::Node;
use crate::NodeError;
use hone_ops::{
    Binary, BinaryFunction, Cast, Concat, Expand, MatMul, Pad, PadMode, Reduce, ReduceFunction,
    Reshape, Select, Slice, Transpose, Unary, UnaryFunction,
};
use hone_types::DataType;

/// The result of a step.
pub(super) type Step = Result<Operand, NodeError>;

impl Builder {
    pub fn unary(&mut self, function: UnaryFunction, input: Operand) -> Step {
        self.apply(Unary::new(function), &[input])
    }

    pub fn binary(&mut self, function: BinaryFunction, left: Operand, right: Operand) -> Step {
        self.apply(Binary::new(function), &[left, right])
    }

    /// `function(input, value)`, with a scalar of the input's type.
    pub fn with_scalar(&mut self, function: BinaryFunction, input: Operand, value: f64) -> Step {
        let dtype = self.dtype(input);
        let scalar = self.scalar(dtype, value)?;
        self.binary(function, input, scalar)
    }

    /// `function(value, input)`, with a scalar of the input's type.
    pub fn scalar_with(&mut self, function: BinaryFunction, value: f64, input: Operand) -> Step {
        let dtype = self.dtype(input);
        let scalar = self.scalar(dtype, value)?;
        self.binary(function, scalar, input)
    }

    pub fn add(&mut self, left: Operand, right: Operand) -> Step {
        self.binary(BinaryFunction::Add, left, right)
    }

    pub fn subtract(&mut self, left: Operand, right: Operand) -> Step {
        self.binary(BinaryFunction::Subtract, left, right)
    }

    pub fn multiply(&mut self, left: Operand, right: Operand) -> Step {
        self.binary(BinaryFunction::Multiply, left, right)
    }

    pub fn divide(&mut self, left: Operand, right: Operand) -> Step {
        self.binary(BinaryFunction::Divide, left, right)
    }

    pub fn matmul(&mut self, left: Operand, right: Operand) -> Step {
        self.apply(MatMul {}, &[left, right])
    }

    pub fn select(&mut self, condition: Operand, then: Operand, otherwise: Operand) -> Step {
        self.apply(Select {}, &[condition, then, otherwise])
    }

    pub fn cast(&mut self, input: Operand, to: DataType) -> Step {
        if self.dtype(input) == to { Ok(input) } else { self.apply(Cast { to }, &[input]) }
    }

    pub fn reshape(&mut self, input: Operand, shape: Vec<usize>) -> Step {
        if self.shape(input) == shape { Ok(input) } else { self.apply(Reshape { shape }, &[input]) }
    }

    pub fn transpose(&mut self, input: Operand, permutation: Vec<usize>) -> Step {
        if permutation.iter().copied().eq(0..self.rank(input)) {
            return Ok(input);
        }
        self.apply(Transpose { permutation }, &[input])
    }

    pub fn expand(&mut self, input: Operand, shape: Vec<usize>) -> Step {
        if self.shape(input) == shape { Ok(input) } else { self.apply(Expand { shape }, &[input]) }
    }

    pub fn concat(&mut self, inputs: &[Operand], axis: usize) -> Step {
        match inputs {
            [only] => Ok(*only),
            _ => self.apply(Concat { axis }, inputs),
        }
    }

    /// Elements `start..start + extent` of one axis.
    pub fn narrow(&mut self, input: Operand, axis: usize, start: usize, extent: usize) -> Step {
        let mut extents = self.shape(input);
        let mut starts = vec![0; extents.len()];
        if extents.get(axis) == Some(&extent) && start == 0 {
            return Ok(input);
        }
        if let (Some(first), Some(count)) = (starts.get_mut(axis), extents.get_mut(axis)) {
            (*first, *count) = (start, extent);
        }
        let steps = vec![1; extents.len()];
        self.apply(Slice { starts, steps, extents }, &[input])
    }

    pub fn pad(
        &mut self,
        input: Operand,
        begin: Vec<i64>,
        end: Vec<i64>,
        mode: PadMode,
        value: f64,
    ) -> Step {
        if begin.iter().chain(&end).all(|pad| *pad == 0) {
            return Ok(input);
        }
        self.apply(Pad { begin, end, mode, value }, &[input])
    }

    pub fn reduce(
        &mut self,
        function: ReduceFunction,
        input: Operand,
        axes: Vec<usize>,
        keep_axes: bool,
    ) -> Step {
        self.apply(Reduce { function, axes, keep_axes }, &[input])
    }

    /// The values of an input that must be a constant, as integers. One without elements is known.
    pub fn integers_of(&self, node: &Node, place: usize) -> Result<Vec<i64>, NodeError> {
        let operand = node.input(place)?;
        if self.tensor_type(operand).elements() == 0 {
            return Ok(Vec::new());
        }
        let tensor = self.tensor(operand).ok_or_else(|| self.not_constant(node, place))?;
        if tensor.shape().len() > 1 {
            return Err(NodeError::invalid(format!(
                "input number {place} is {}, not a list",
                tensor.tensor_type()
            )));
        }
        Ok(tensor.to_i64())
    }

    /// As [`Builder::integers_of`], of an input that may be left out.
    pub fn optional_integers(
        &self,
        node: &Node,
        place: usize,
    ) -> Result<Option<Vec<i64>>, NodeError> {
        node.optional(place).map(|_| self.integers_of(node, place)).transpose()
    }

    /// The values of an input that must be a constant, as floats.
    pub fn floats_of(&self, node: &Node, place: usize) -> Result<Vec<f64>, NodeError> {
        let operand = node.input(place)?;
        if self.tensor_type(operand).elements() == 0 {
            return Ok(Vec::new());
        }
        let tensor = self.tensor(operand).ok_or_else(|| self.not_constant(node, place))?;
        Ok(tensor.to_f64())
    }

    /// The refusal of an input that must be a constant.
    pub fn not_constant(&self, node: &Node, place: usize) -> NodeError {
        let input = node.input_names.get(place).cloned().unwrap_or_default();
        let decided_by = node.optional(place).map(|operand| self.decided_by(operand));
        NodeError::NotConstant { input, place, decided_by: decided_by.unwrap_or_default() }
    }

    /// The one value of an input that must be a constant.
    pub fn integer_of(&self, node: &Node, place: usize) -> Result<i64, NodeError> {
        match self.integers_of(node, place)?.as_slice() {
            [value] => Ok(*value),
            values => Err(NodeError::invalid(format!(
                "input number {place} has {} elements, not one",
                values.len()
            ))),
        }
    }
}

/// An axis counted from the front; negative ones count from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, NodeError> {
    let signed = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    signed
        .and_then(|axis| usize::try_from(axis).ok())
        .filter(|axis| *axis < rank)
        .ok_or_else(|| NodeError::invalid(format!("axis {axis} does not exist: there are {rank}")))
}

/// Axes counted from the front, sorted, each once.
pub(super) fn axes(axes: &[i64], rank: usize) -> Result<Vec<usize>, NodeError> {
    let found: Result<Vec<usize>, NodeError> =
        axes.iter().map(|number| axis(*number, rank)).collect();
    let mut found = found?;
    found.sort_unstable();
    if found.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(NodeError::invalid(format!("axes {axes:?} name one twice")));
    }
    Ok(found)
}

/// Extents that are not negative.
pub(super) fn extents(values: &[i64], what: &str) -> Result<Vec<usize>, NodeError> {
    let extents: Result<Vec<usize>, _> =
        values.iter().map(|value| usize::try_from(*value)).collect();
    extents.map_err(|_| NodeError::invalid(format!("{what} {values:?} has a negative number")))
}
