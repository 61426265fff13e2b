//! Shorthands for the nodes that rules add.

use crate::{GradientError, RuleError, pull_back};
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Cast, Expand, Gather, Graph, MatMul, Op, Pad, PadMode, Reduce,
    ReduceFunction, Reshape, Select, Slice, Transpose, Unary, UnaryFunction,
};
use hone_types::{DataType, Tensor, TensorType};
use std::collections::HashSet;

/// A value that was added.
pub(crate) type Step = Result<ValueId, RuleError>;

/// A graph that nodes of one name are added to.
pub(crate) struct Nodes<'a> {
    graph: &'a mut Graph,
    name: String,
}

impl<'a> Nodes<'a> {
    /// Nodes that are called `name`.
    pub fn new(graph: &'a mut Graph, name: &str) -> Self {
        Self { graph, name: name.to_string() }
    }

    /// Type of a value.
    pub fn tensor_type(&self, value: ValueId) -> &TensorType {
        self.graph.tensor_type(value)
    }

    /// Shape of a value.
    pub fn shape(&self, value: ValueId) -> Vec<usize> {
        self.graph.tensor_type(value).shape.clone()
    }

    /// Element type of a value.
    pub fn dtype(&self, value: ValueId) -> DataType {
        self.graph.tensor_type(value).dtype
    }

    /// The number that all elements of a constant are.
    pub fn only_number(&self, value: ValueId) -> Option<f64> {
        let tensor = self.graph.constant(value)?;
        match &tensor.to_f64()[..] {
            [number] => Some(*number),
            _ => None,
        }
    }

    /// The first output of an operator.
    pub fn apply(&mut self, operator: impl Into<Op>, inputs: &[ValueId]) -> Step {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let outputs = self.graph.add_node(self.name.clone(), operator.into(), &inputs)?;
        outputs.first().copied().ok_or_else(|| RuleError::Missing("a node without outputs".into()))
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> ValueId {
        self.graph.add_constant("", tensor)
    }

    /// A constant without axes.
    pub fn scalar(&mut self, dtype: DataType, value: f64) -> Step {
        Ok(self.constant(Tensor::from_f64(dtype, [], &[value])?))
    }

    /// One number everywhere.
    pub fn filled(&mut self, tensor_type: &TensorType, value: f64) -> Step {
        let scalar = self.scalar(tensor_type.dtype, value)?;
        self.expand(scalar, &tensor_type.shape)
    }

    /// A function of one value.
    pub fn unary(&mut self, function: UnaryFunction, x: ValueId) -> Step {
        self.apply(Unary { function }, &[x])
    }

    /// A function of two values.
    pub fn binary(&mut self, function: BinaryFunction, left: ValueId, right: ValueId) -> Step {
        self.apply(Binary { function }, &[left, right])
    }

    /// A function of a value and a number.
    pub fn with(&mut self, function: BinaryFunction, x: ValueId, number: f64) -> Step {
        let number = self.scalar(self.dtype(x), number)?;
        self.binary(function, x, number)
    }

    /// A function of a number and a value.
    pub fn number_with(&mut self, function: BinaryFunction, number: f64, x: ValueId) -> Step {
        let number = self.scalar(self.dtype(x), number)?;
        self.binary(function, number, x)
    }

    /// `left + right`
    pub fn add(&mut self, left: ValueId, right: ValueId) -> Step {
        self.binary(BinaryFunction::Add, left, right)
    }

    /// `left - right`
    pub fn subtract(&mut self, left: ValueId, right: ValueId) -> Step {
        self.binary(BinaryFunction::Subtract, left, right)
    }

    /// `left * right`
    pub fn multiply(&mut self, left: ValueId, right: ValueId) -> Step {
        self.binary(BinaryFunction::Multiply, left, right)
    }

    /// `left / right`
    pub fn divide(&mut self, left: ValueId, right: ValueId) -> Step {
        self.binary(BinaryFunction::Divide, left, right)
    }

    /// `-x`
    pub fn negate(&mut self, x: ValueId) -> Step {
        self.unary(UnaryFunction::Negate, x)
    }

    /// `number * x`
    pub fn scale(&mut self, x: ValueId, number: f64) -> Step {
        self.with(BinaryFunction::Multiply, x, number)
    }

    /// `left / right`, and zero where `right` is zero.
    pub fn divide_or_zero(&mut self, left: ValueId, right: ValueId) -> Step {
        let is_zero = self.with(BinaryFunction::Equal, right, 0.0)?;
        let one = self.scalar(self.dtype(right), 1.0)?;
        let divisor = self.select(is_zero, one, right)?;
        let quotient = self.divide(left, divisor)?;
        let zero = self.scalar(self.dtype(left), 0.0)?;
        self.select(is_zero, zero, quotient)
    }

    /// `then` where `condition` holds, else `otherwise`.
    pub fn select(&mut self, condition: ValueId, then: ValueId, otherwise: ValueId) -> Step {
        self.apply(Select {}, &[condition, then, otherwise])
    }

    /// `x` where `condition` holds, else zero.
    pub fn keep(&mut self, condition: ValueId, x: ValueId) -> Step {
        let zero = self.scalar(self.dtype(x), 0.0)?;
        self.select(condition, x, zero)
    }

    /// The same numbers in another element type.
    pub fn cast(&mut self, x: ValueId, to: DataType) -> Step {
        if self.dtype(x) == to {
            return Ok(x);
        }
        self.apply(Cast { to }, &[x])
    }

    /// The same elements under another shape.
    pub fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Step {
        if self.tensor_type(x).shape == shape {
            return Ok(x);
        }
        self.apply(Reshape { shape: shape.to_vec() }, &[x])
    }

    /// Axis `i` of the result is axis `permutation[i]`.
    pub fn transpose(&mut self, x: ValueId, permutation: &[usize]) -> Step {
        if permutation.iter().copied().eq(0..permutation.len()) {
            return Ok(x);
        }
        self.apply(Transpose { permutation: permutation.to_vec() }, &[x])
    }

    /// The last two axes exchanged.
    pub fn swap_last(&mut self, x: ValueId) -> Step {
        let rank = self.tensor_type(x).rank();
        let mut permutation: Vec<usize> = (0..rank).collect();
        permutation.swap(rank - 1, rank - 2);
        self.transpose(x, &permutation)
    }

    /// One axis moved to another place.
    pub fn move_axis(&mut self, x: ValueId, from: usize, to: usize) -> Step {
        let rank = self.tensor_type(x).rank();
        let mut permutation: Vec<usize> = (0..rank).filter(|axis| *axis != from).collect();
        permutation.insert(to, from);
        self.transpose(x, &permutation)
    }

    /// Repeated to a shape that it broadcasts to.
    pub fn expand(&mut self, x: ValueId, shape: &[usize]) -> Step {
        if self.tensor_type(x).shape == shape {
            return Ok(x);
        }
        self.apply(Expand { shape: shape.to_vec() }, &[x])
    }

    /// The reverse of broadcasting from `shape`: what was repeated is summed.
    pub fn sum_to(&mut self, x: ValueId, shape: &[usize]) -> Step {
        let own = self.shape(x);
        if own == shape {
            return Ok(x);
        }
        let ahead = own.len() - shape.len();
        let is_repeated =
            |axis: &usize| *axis < ahead || (shape[*axis - ahead] == 1 && own[*axis] != 1);
        let axes: Vec<usize> = (0..own.len()).filter(is_repeated).collect();
        let sums = self.sum(x, &axes, false)?;
        self.reshape(sums, shape)
    }

    /// The sum over axes.
    pub fn sum(&mut self, x: ValueId, axes: &[usize], keep_axes: bool) -> Step {
        self.reduce(ReduceFunction::Sum, x, axes, keep_axes)
    }

    /// A function of all elements along axes.
    pub fn reduce(
        &mut self,
        function: ReduceFunction,
        x: ValueId,
        axes: &[usize],
        keep_axes: bool,
    ) -> Step {
        if axes.is_empty() && function == ReduceFunction::Sum {
            return Ok(x);
        }
        self.apply(Reduce { function, axes: axes.to_vec(), keep_axes }, &[x])
    }

    /// The matrix product.
    pub fn matmul(&mut self, left: ValueId, right: ValueId) -> Step {
        self.apply(MatMul {}, &[left, right])
    }

    /// Zeros around a tensor; negative numbers cut off.
    pub fn pad(&mut self, x: ValueId, begin: Vec<i64>, end: Vec<i64>) -> Step {
        if begin.iter().chain(&end).all(|count| *count == 0) {
            return Ok(x);
        }
        self.apply(Pad { begin, end, mode: PadMode::Constant, value: 0.0 }, &[x])
    }

    /// The part of `extents` elements from `starts` on.
    pub fn part(&mut self, x: ValueId, starts: Vec<usize>, extents: Vec<usize>) -> Step {
        if self.tensor_type(x).shape == extents {
            return Ok(x);
        }
        let steps = vec![1; starts.len()];
        self.apply(Slice { starts, steps, extents }, &[x])
    }

    /// The elements of one axis in places that are known.
    pub fn take(&mut self, x: ValueId, axis: usize, places: &[i64]) -> Step {
        let places = self.constant(Tensor::from_elements([places.len()], places)?);
        self.apply(Gather { axis }, &[x, places])
    }

    /// The adjoints of `inputs`, where `outputs` were computed from them by nodes that have rules, and have `adjoints`. A
    /// value that is an input several times has its adjoint at the first of them.
    pub fn through(
        &mut self,
        output: ValueId,
        adjoint: ValueId,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>, RuleError> {
        let mut seen = HashSet::new();
        let own: Vec<Option<ValueId>> =
            inputs.iter().map(|input| input.filter(|input| seen.insert(*input))).collect();
        let by: Vec<ValueId> = own.iter().copied().flatten().collect();
        let found = pull_back(self.graph, &[(output, adjoint)], &by, &[]);
        let found = found.map_err(|error: GradientError| RuleError::Parts(Box::new(error)))?;
        let mut found = found.into_iter();
        Ok(own.iter().map(|input| input.and_then(|_| found.next().flatten())).collect())
    }
}
