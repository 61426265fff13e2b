//! Gated recurrent unit.

use crate::BinaryFunction as B;
use crate::matmul::MatMul;
use crate::operator::Graph;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::recurrent::{Activation, Direction, Form};
use crate::recurrent_nodes::{CellValues, Nodes, Unroll};
use crate::recurrent_reference::{Cell, Walk};
use hone_graph::InferError;
use hone_graph::ValueId;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// ONNX `GRU`. Inputs: x `[steps, batch, input]`, w `[directions, 3 * hidden, input]` and r
/// `[directions, 3 * hidden, hidden]` (gates in the order update, reset, hidden), and optionally
/// bias `[directions, 6 * hidden]`, lengths `[batch]`, initial h `[directions, batch, hidden]`.
/// Outputs: all h `[steps, directions, batch, hidden]`, and the last h `[directions, batch, hidden]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gru {
    /// Number of hidden units.
    pub hidden: usize,
    /// Which way the sequence is read.
    pub direction: Direction,
    /// Functions of the gates and of the hidden gate, for each direction.
    pub activations: Vec<Activation>,
    /// Magnitude the operands of activations are limited to.
    pub clip: Option<f64>,
    /// Whether the reset gate applies after the recurrence product, else before.
    pub linear_before_reset: bool,
    /// Whether the batch comes first: x `[batch, steps, input]`, all h `[batch, steps, directions,
    /// hidden]`, states `[batch, directions, hidden]`.
    pub batch_first: bool,
}

impl Gru {
    /// Name in text forms.
    pub const NAME: &'static str = "gru";

    fn step(&self, cell: &Cell<'_>, products: &[f64], state: &mut Vec<f64>) {
        let hidden = self.hidden;
        let gate = |place: usize| {
            let rows = place * hidden..(place + 1) * hidden;
            rows.map(|row| cell.activate(0, products[row] + cell.recurrent(row, state)))
        };
        let (update, reset): (Vec<f64>, Vec<f64>) = (gate(0).collect(), gate(1).collect());
        let kept: Vec<f64> = state.iter().zip(&reset).map(|(state, reset)| state * reset).collect();
        let new = (0..hidden).map(|unit| {
            let row = 2 * hidden + unit;
            let recurrent = match self.linear_before_reset {
                true => reset[unit] * cell.recurrent(row, state),
                false => cell.recurrent(row, &kept),
            };
            let candidate = cell.activate(1, products[row] + recurrent);
            (1.0 - update[unit]) * candidate + update[unit] * state[unit]
        });
        *state = new.collect();
    }

    fn step_nodes(
        &self,
        nodes: &mut Nodes<'_>,
        cell: &CellValues,
        products: ValueId,
        state: ValueId,
    ) -> Result<Vec<ValueId>, InferError> {
        let hidden = cell.hidden;
        // The product of the gates from `first` on with a state, with its bias.
        let recurrent = |nodes: &mut Nodes<'_>, state: ValueId, first: usize, gates: usize| {
            let (start, extent) = (first * hidden, gates * hidden);
            let weights = nodes.slice(cell.recurrence, 1, start, extent)?;
            let product = nodes.add(MatMul {}, &[state, weights])?;
            let Some(bias) = cell.recurrence_bias else { return Ok(product) };
            let bias = nodes.slice(bias, 0, start, extent)?;
            nodes.binary(B::Add, product, bias)
        };
        let activate = |nodes: &mut Nodes<'_>, place: usize, x: ValueId| {
            nodes.activate(cell.activations[place], cell.clip, x)
        };
        let gates = if self.linear_before_reset { 3 } else { 2 };
        let all = recurrent(nodes, state, 0, gates)?;
        let gate = |nodes: &mut Nodes<'_>, place: usize| {
            let own = nodes.slice(products, 1, place * hidden, hidden)?;
            let recurrent = nodes.slice(all, 1, place * hidden, hidden)?;
            let sum = nodes.binary(B::Add, own, recurrent)?;
            activate(nodes, 0, sum)
        };
        let (update, reset) = (gate(nodes, 0)?, gate(nodes, 1)?);
        let candidate = if self.linear_before_reset {
            let recurrent = nodes.slice(all, 1, 2 * hidden, hidden)?;
            nodes.binary(B::Multiply, reset, recurrent)?
        } else {
            let kept = nodes.binary(B::Multiply, reset, state)?;
            recurrent(nodes, kept, 2, 1)?
        };
        let own = nodes.slice(products, 1, 2 * hidden, hidden)?;
        let candidate = nodes.binary(B::Add, own, candidate)?;
        let candidate = activate(nodes, 1, candidate)?;
        let share = nodes.complement(update)?;
        let added = nodes.binary(B::Multiply, share, candidate)?;
        let kept = nodes.binary(B::Multiply, update, state)?;
        Ok(vec![nodes.binary(B::Add, added, kept)?])
    }

    fn form(&self) -> Form {
        Form {
            name: Self::NAME,
            gates: 3,
            hidden: self.hidden,
            direction: self.direction,
            activations: self.activations.len(),
            batch_first: self.batch_first,
        }
    }
}

impl Operator for Gru {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let extents = self.form().check(inputs, 2)?;
        extents.outputs(required(Self::NAME, inputs, 0)?, 1)
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let walk = Walk {
            name: Self::NAME,
            extents: self.form().check(&types, 2)?,
            gates: 3,
            direction: self.direction,
            activations: &self.activations,
            clip: self.clip,
            states: 1,
            rounds_input: false,
        };
        walk.run(inputs, &self.infer(&types)?, &|cell, products, states| {
            self.step(cell, products, &mut states[0]);
        })
    }

    /// Taken apart into nodes of simpler operators.
    fn decompose(
        &self,
        graph: &mut Graph,
        inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, InferError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(|value| graph.tensor_type(value))).collect();
        let extents = self.form().check(&types, 2)?;
        if extents.steps == 0 {
            return Ok(None);
        }
        let unroll = Unroll {
            name: Self::NAME,
            extents,
            gates: 3,
            direction: self.direction,
            activations: &self.activations,
            clip: self.clip,
            states: 1,
            keeps_bias: true,
            rounds_input: false,
        };
        let outputs = unroll.run(graph, inputs, &|nodes, cell, products, states| {
            self.step_nodes(nodes, cell, products, states[0])
        })?;
        Ok(Some(outputs))
    }
}
