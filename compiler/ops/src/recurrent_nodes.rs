//! Recurrent operators taken apart: the products with all inputs at once, and a recurrence over a step of
//! simpler operators.

use crate::operator::{Graph, Op, required_value};
use crate::recurrent::{Activation, Direction, Extents};
use crate::{
    Binary, BinaryFunction, Cast, Concat, MatMul, Recurrence, Reshape, Select, Slice, Transpose,
    Unary, UnaryFunction,
};
use hone_graph::{InferError, ValueId};
use hone_types::{DataType, Tensor, TensorType};

use BinaryFunction as B;
use UnaryFunction as U;

/// Adds nodes under one name.
pub(crate) struct Nodes<'a> {
    pub graph: &'a mut Graph,
    pub name: &'static str,
    pub dtype: DataType,
}

impl Nodes<'_> {
    /// A node with one output.
    pub fn add(
        &mut self,
        operator: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<ValueId, InferError> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        Ok(self.graph.add_node(self.name, operator.into(), &inputs)?.remove(0))
    }

    /// A number of the operator's type.
    pub fn number(&mut self, value: f64) -> Result<ValueId, InferError> {
        let tensor = Tensor::from_f64(self.dtype, [], &[value])
            .map_err(|error| InferError::new(error.to_string()))?;
        Ok(self.graph.add_constant(self.name, tensor))
    }

    /// The places of a sequence, `0..steps`.
    fn places(&mut self, steps: usize) -> Result<ValueId, InferError> {
        let places: Vec<i64> = (0..steps as i64).collect();
        let tensor = Tensor::from_elements([steps], &places)
            .map_err(|error| InferError::new(error.to_string()))?;
        Ok(self.graph.add_constant(self.name, tensor))
    }

    pub fn binary(&mut self, function: B, a: ValueId, b: ValueId) -> Result<ValueId, InferError> {
        self.add(Binary::new(function), &[a, b])
    }

    pub fn unary(&mut self, function: U, a: ValueId) -> Result<ValueId, InferError> {
        self.add(Unary::new(function), &[a])
    }

    pub fn reshape(&mut self, a: ValueId, shape: &[usize]) -> Result<ValueId, InferError> {
        self.add(Reshape { shape: shape.to_vec() }, &[a])
    }

    /// The places from `start` on of an axis, `extent` of them.
    pub fn slice(
        &mut self,
        a: ValueId,
        axis: usize,
        start: usize,
        extent: usize,
    ) -> Result<ValueId, InferError> {
        let mut extents = self.graph.tensor_type(a).shape.clone();
        let mut starts = vec![0; extents.len()];
        let steps = vec![1; extents.len()];
        (starts[axis], extents[axis]) = (start, extent);
        self.add(Slice { starts, steps, extents }, &[a])
    }

    /// One place of the first axis, which is dropped.
    pub fn part(&mut self, a: ValueId, place: usize) -> Result<ValueId, InferError> {
        let shape = self.graph.tensor_type(a).shape[1..].to_vec();
        let part = self.slice(a, 0, place, 1)?;
        self.reshape(part, &shape)
    }

    pub fn swap(&mut self, a: ValueId, first: usize, second: usize) -> Result<ValueId, InferError> {
        let mut permutation: Vec<usize> = (0..self.graph.tensor_type(a).rank()).collect();
        permutation.swap(first, second);
        self.add(Transpose { permutation }, &[a])
    }

    /// Values joined along a new first axis.
    fn stack(&mut self, values: &[ValueId]) -> Result<ValueId, InferError> {
        let mut parts = Vec::with_capacity(values.len());
        for value in values {
            let mut shape = self.graph.tensor_type(*value).shape.clone();
            shape.insert(0, 1);
            parts.push(self.reshape(*value, &shape)?);
        }
        if parts.len() == 1 { Ok(parts[0]) } else { self.add(Concat { axis: 0 }, &parts) }
    }

    /// An activation of an operand that is limited first.
    pub fn activate(
        &mut self,
        activation: Activation,
        clip: Option<f64>,
        x: ValueId,
    ) -> Result<ValueId, InferError> {
        let mut x = x;
        if let Some(limit) = clip {
            let (low, high) = (self.number(-limit.abs())?, self.number(limit.abs())?);
            x = self.binary(B::Maximum, x, low)?;
            x = self.binary(B::Minimum, x, high)?;
        }
        match activation {
            Activation::Relu => self.unary(U::Relu, x),
            Activation::Tanh => self.unary(U::Tanh, x),
            Activation::Sigmoid => self.unary(U::Sigmoid, x),
            Activation::Affine { alpha, beta } => self.affine(x, alpha, beta),
            Activation::LeakyRelu { alpha } => {
                let alpha = self.number(alpha)?;
                self.binary(B::LeakyMultiply, x, alpha)
            }
            Activation::ThresholdedRelu { alpha } => {
                let (alpha, zero) = (self.number(alpha)?, self.number(0.0)?);
                let passes = self.binary(B::GreaterEqual, x, alpha)?;
                self.add(Select {}, &[passes, x, zero])
            }
            Activation::ScaledTanh { alpha, beta } => {
                let x = self.affine(x, beta, 0.0)?;
                let x = self.unary(U::Tanh, x)?;
                self.affine(x, alpha, 0.0)
            }
            Activation::HardSigmoid { alpha, beta } => {
                let x = self.affine(x, alpha, beta)?;
                let (zero, one) = (self.number(0.0)?, self.number(1.0)?);
                let x = self.binary(B::Maximum, x, zero)?;
                self.binary(B::Minimum, x, one)
            }
            Activation::Elu { alpha } => {
                let power = self.unary(U::Exp, x)?;
                let below = self.affine(power, alpha, -alpha)?;
                let zero = self.number(0.0)?;
                let positive = self.binary(B::GreaterEqual, x, zero)?;
                self.add(Select {}, &[positive, x, below])
            }
            Activation::Softsign => {
                let magnitude = self.unary(U::Abs, x)?;
                let divisor = self.affine(magnitude, 1.0, 1.0)?;
                self.binary(B::Divide, x, divisor)
            }
            Activation::Softplus => self.softplus(x),
        }
    }

    /// `max(x, 0) + log(1 + exp(-|x|))`, which does not overflow.
    fn softplus(&mut self, x: ValueId) -> Result<ValueId, InferError> {
        let magnitude = self.unary(U::Abs, x)?;
        let negative = self.unary(U::Negate, magnitude)?;
        let power = self.unary(U::Exp, negative)?;
        let sum = self.affine(power, 1.0, 1.0)?;
        let (log, positive) = (self.unary(U::Log, sum)?, self.unary(U::Relu, x)?);
        self.binary(B::Add, positive, log)
    }

    /// `alpha * x + beta`
    fn affine(&mut self, x: ValueId, alpha: f64, beta: f64) -> Result<ValueId, InferError> {
        let mut x = x;
        if alpha != 1.0 {
            let alpha = self.number(alpha)?;
            x = self.binary(B::Multiply, x, alpha)?;
        }
        if beta != 0.0 {
            let beta = self.number(beta)?;
            x = self.binary(B::Add, x, beta)?;
        }
        Ok(x)
    }

    /// `1 - x`
    pub fn complement(&mut self, x: ValueId) -> Result<ValueId, InferError> {
        let one = self.number(1.0)?;
        self.binary(B::Subtract, one, x)
    }
}

/// One direction's operands as values.
pub(crate) struct CellValues {
    /// Number of hidden units.
    pub hidden: usize,
    /// Recurrence weights, transposed: `[hidden, gates * hidden]`.
    pub recurrence: ValueId,
    /// Bias of the recurrence product `[gates * hidden]`, where it is not part of the input product.
    pub recurrence_bias: Option<ValueId>,
    /// Peepholes `[3 * hidden]`.
    pub peepholes: Option<ValueId>,
    /// The direction's functions.
    pub activations: Vec<Activation>,
    /// Limit of their operands.
    pub clip: Option<f64>,
}

/// Adds one step's nodes: from the gates' input products `[batch, gates * hidden]` and the states
/// `[batch, hidden]`, the new states.
pub(crate) type StepNodes<'a> = &'a dyn Fn(
    &mut Nodes<'_>,
    &CellValues,
    ValueId,
    &[ValueId],
) -> Result<Vec<ValueId>, InferError>;

/// What taking apart needs to know of an operator.
pub(crate) struct Unroll<'a> {
    pub name: &'static str,
    pub extents: Extents,
    pub gates: usize,
    pub direction: Direction,
    pub activations: &'a [Activation],
    pub clip: Option<f64>,
    /// Number of states: hidden, and cell.
    pub states: usize,
    /// Whether the recurrence product's bias must stay apart from the input product's.
    pub keeps_bias: bool,
    /// Whether each row of x is rounded to bytes.
    pub rounds_input: bool,
}

impl Unroll<'_> {
    /// The output sequence and the last states. There must be a step at least.
    pub fn run(
        &self,
        graph: &mut Graph,
        inputs: &[Option<ValueId>],
        step: StepNodes<'_>,
    ) -> Result<Vec<ValueId>, InferError> {
        let x = required_value(self.name, inputs, 0)?;
        let dtype = graph.tensor_type(x).dtype;
        let mut nodes = Nodes { graph, name: self.name, dtype };
        let x = if self.extents.batch_first { nodes.swap(x, 0, 1)? } else { x };
        let x = if self.rounds_input { nodes.rounded_rows(x)? } else { x };
        let mut sequences = Vec::new();
        let mut lasts = vec![Vec::new(); self.states];
        for direction in 0..self.extents.directions {
            let (sequence, states) = self.one(&mut nodes, x, inputs, direction, step)?;
            sequences.push(sequence);
            lasts.iter_mut().zip(states).for_each(|(last, state)| last.push(state));
        }
        // [directions, steps, batch, hidden] to the operator's order.
        let sequence = nodes.stack(&sequences)?;
        let permutation =
            if self.extents.batch_first { vec![2, 1, 0, 3] } else { vec![1, 0, 2, 3] };
        let mut outputs = vec![nodes.add(Transpose { permutation }, &[sequence])?];
        for last in lasts {
            let last = nodes.stack(&last)?;
            outputs.push(if self.extents.batch_first { nodes.swap(last, 0, 1)? } else { last });
        }
        Ok(outputs)
    }

    /// One direction: all hidden states `[steps, batch, hidden]`, and the last states.
    fn one(
        &self,
        nodes: &mut Nodes<'_>,
        x: ValueId,
        inputs: &[Option<ValueId>],
        direction: usize,
        step: StepNodes<'_>,
    ) -> Result<(ValueId, Vec<ValueId>), InferError> {
        let Extents { steps, batch, hidden, .. } = self.extents;
        let optional = |place: usize| inputs.get(place).copied().flatten();
        let (cell, products) = self.cell(nodes, x, inputs, direction)?;
        let mut states = Vec::with_capacity(self.states);
        for state in 0..self.states {
            states.push(match optional(5 + state) {
                Some(initial) if self.extents.batch_first => {
                    let initial = nodes.swap(initial, 0, 1)?;
                    nodes.part(initial, direction)?
                }
                Some(initial) => nodes.part(initial, direction)?,
                None => {
                    let zeros = TensorType::new(nodes.dtype, [batch, hidden]);
                    nodes.graph.add_constant(self.name, Tensor::zeros(zeros))
                }
            });
        }
        let backwards = self.direction == Direction::Reverse || direction == 1;
        let mut step_graph = StepGraph::new(self.name, nodes.dtype);
        for state in &states {
            step_graph.input(nodes.graph, *state);
        }
        let gates = step_graph.element(nodes.graph, products);
        let at = match optional(4) {
            Some(_) => Some(step_graph.element_of(nodes.places(steps)?, DataType::I64)),
            None => None,
        };
        let lengths = optional(4).map(|lengths| step_graph.input(nodes.graph, lengths));
        let recurrence = step_graph.input(nodes.graph, cell.recurrence);
        let mut own = |value: Option<ValueId>| value.map(|own| step_graph.input(nodes.graph, own));
        let recurrence_bias = own(cell.recurrence_bias);
        let peepholes = own(cell.peepholes);
        let cell = CellValues { recurrence, recurrence_bias, peepholes, ..cell };
        let inner: Vec<ValueId> =
            step_graph.graph.inputs()[..self.states].iter().map(|port| port.value).collect();
        let mut inside = step_graph.nodes();
        let mut new = step(&mut inside, &cell, gates, &inner)?;
        let mut output = new[0];
        if let Some((at, lengths)) = at.zip(lengths) {
            let running = running(&mut inside, lengths, at)?;
            let zero = inside.number(0.0)?;
            output = inside.add(Select {}, &[running, output, zero])?;
            for (new, old) in new.iter_mut().zip(&inner) {
                *new = inside.add(Select {}, &[running, *new, *old])?;
            }
        }
        let sequences = 1 + usize::from(at.is_some());
        // The states are given, too: each step can be checked by itself (`Recurrence::follow`).
        let mut given = vec![output];
        given.extend(new.iter().copied().filter(|own| *own != output));
        let counts = Counts { states: self.states, sequences, backwards };
        let results = step_graph.finish(nodes, &[&new[..], &given].concat(), counts)?;
        Ok((results[0], results[given.len()..].to_vec()))
    }

    /// A direction's operands, and its input products of all steps `[steps, batch, gates * hidden]`.
    fn cell(
        &self,
        nodes: &mut Nodes<'_>,
        x: ValueId,
        inputs: &[Option<ValueId>],
        direction: usize,
    ) -> Result<(CellValues, ValueId), InferError> {
        let w = required_value(self.name, inputs, 1)?;
        let r = required_value(self.name, inputs, 2)?;
        let optional = |place: usize| inputs.get(place).copied().flatten();
        let weights = nodes.part(w, direction)?;
        let weights = nodes.swap(weights, 0, 1)?;
        let recurrence = nodes.part(r, direction)?;
        let recurrence = nodes.swap(recurrence, 0, 1)?;
        let mut products = nodes.add(MatMul {}, &[x, weights])?;
        let mut recurrence_bias = None;
        if let Some(bias) = optional(3) {
            let wide = self.gates * self.extents.hidden;
            let bias = nodes.part(bias, direction)?;
            let mut own = nodes.slice(bias, 0, 0, wide)?;
            let other = nodes.slice(bias, 0, wide, wide)?;
            if self.keeps_bias {
                recurrence_bias = Some(other);
            } else {
                own = nodes.binary(B::Add, own, other)?;
            }
            products = nodes.binary(B::Add, products, own)?;
        }
        let peepholes = match optional(7).filter(|_| self.states == 2) {
            Some(peepholes) => Some(nodes.part(peepholes, direction)?),
            None => None,
        };
        let each = self.activations.len() / self.extents.directions;
        let activations = self.activations[direction * each..][..each].to_vec();
        let (hidden, clip) = (self.extents.hidden, self.clip);
        let cell = CellValues { hidden, recurrence, recurrence_bias, peepholes, activations, clip };
        Ok((cell, products))
    }
}

/// Truth values `[batch, 1]`: whether each sample's sequence reaches step `at`.
fn running(nodes: &mut Nodes<'_>, lengths: ValueId, at: ValueId) -> Result<ValueId, InferError> {
    let samples = nodes.graph.tensor_type(lengths).elements();
    let lengths = nodes.add(Cast { to: DataType::I64 }, &[lengths])?;
    let running = nodes.binary(B::Less, at, lengths)?;
    nodes.reshape(running, &[samples, 1])
}

/// A step while its nodes are added, and the outer values that its inputs stand for.
struct StepGraph {
    name: &'static str,
    dtype: DataType,
    graph: Graph,
    outer: Vec<ValueId>,
}

/// How a recurrence reads its inputs.
struct Counts {
    states: usize,
    sequences: usize,
    backwards: bool,
}

impl StepGraph {
    fn new(name: &'static str, dtype: DataType) -> Self {
        Self { name, dtype, graph: Graph::new(), outer: vec![] }
    }

    fn nodes(&mut self) -> Nodes<'_> {
        Nodes { graph: &mut self.graph, name: self.name, dtype: self.dtype }
    }

    /// An input that stands for a value in every step.
    fn input(&mut self, outer: &Graph, value: ValueId) -> ValueId {
        self.outer.push(value);
        self.graph.add_input(self.name, outer.tensor_type(value).clone())
    }

    /// An input that stands for an element of a sequence.
    fn element(&mut self, outer: &Graph, sequence: ValueId) -> ValueId {
        let own = outer.tensor_type(sequence);
        self.outer.push(sequence);
        self.graph.add_input(self.name, TensorType::new(own.dtype, &own.shape[1..]))
    }

    /// An input that stands for a number of a sequence of numbers.
    fn element_of(&mut self, sequence: ValueId, dtype: DataType) -> ValueId {
        self.outer.push(sequence);
        self.graph.add_input(self.name, TensorType::new(dtype, []))
    }

    /// Adds the recurrence to the outer graph; its results are the new states and what each step gives.
    fn finish(
        mut self,
        nodes: &mut Nodes<'_>,
        results: &[ValueId],
        counts: Counts,
    ) -> Result<Vec<ValueId>, InferError> {
        results.iter().for_each(|value| self.graph.add_output(self.name, *value));
        let Counts { states, sequences, backwards } = counts;
        let (operator, constants) = Recurrence::of_step(&self.graph, states, sequences, backwards);
        for constant in constants {
            self.outer.push(nodes.graph.add_constant(self.name, constant));
        }
        let inputs: Vec<Option<ValueId>> = self.outer.into_iter().map(Some).collect();
        nodes.graph.add_node(self.name, operator.into(), &inputs)
    }
}
