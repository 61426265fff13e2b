//! Long short-term memory.

use crate::BinaryFunction as B;
use crate::matmul::MatMul;
use crate::operator::Graph;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::recurrent::{Activation, Direction, Form, expect};
use crate::recurrent_nodes::{CellValues, Nodes, Unroll};
use crate::recurrent_reference::{Cell, Walk};
use crate::recurrent_rounding::rounded_row;
use crate::shape::check_same_type;
use hone_graph::InferError;
use hone_graph::ValueId;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// ONNX `LSTM`. Inputs: x `[steps, batch, input]`, w `[directions, 4 * hidden, input]` and r
/// `[directions, 4 * hidden, hidden]` (gates in the order input, output, forget, cell), and
/// optionally bias `[directions, 8 * hidden]`, lengths `[batch]`, initial h and c `[directions,
/// batch, hidden]`, peepholes `[directions, 3 * hidden]`. Outputs: all h `[steps, directions, batch,
/// hidden]`, and the last h and c `[directions, batch, hidden]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lstm {
    /// Number of hidden units.
    pub hidden: usize,
    /// Which way the sequence is read.
    pub direction: Direction,
    /// Functions of the gates, the cell and the output, for each direction.
    pub activations: Vec<Activation>,
    /// Magnitude the operands of activations are limited to.
    pub clip: Option<f64>,
    /// Whether the forget gate is one minus the input gate.
    pub input_forget: bool,
    /// Whether the batch comes first: x `[batch, steps, input]`, all h `[batch, steps, directions,
    /// hidden]`, states `[batch, directions, hidden]`.
    pub batch_first: bool,
    /// Whether what the weights multiply, x and each hidden state, is rounded to bytes: each row to multiples of its largest
    /// magnitude over 127. For quantized weights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rounds_operands: bool,
}

impl Lstm {
    /// Name in text forms.
    pub const NAME: &'static str = "lstm";

    fn step(&self, cell: &Cell<'_>, products: &[f64], states: &mut [Vec<f64>]) {
        let [shown, memory] = states else { return };
        let old = if self.rounds_operands { rounded_row(shown) } else { shown.clone() };
        let hidden = self.hidden;
        for (unit, (shown, memory)) in shown.iter_mut().zip(memory).enumerate() {
            let gate = |place: usize| {
                let row = place * hidden + unit;
                products[row] + cell.recurrent(row, &old)
            };
            let peephole = |place: usize| cell.peepholes[place * hidden + unit];
            let input = cell.activate(0, gate(0) + peephole(0) * *memory);
            let forget = match self.input_forget {
                true => 1.0 - input,
                false => cell.activate(0, gate(2) + peephole(2) * *memory),
            };
            *memory = forget * *memory + input * cell.activate(1, gate(3));
            let output = cell.activate(0, gate(1) + peephole(1) * *memory);
            *shown = output * cell.activate(2, *memory);
        }
    }

    fn step_nodes(
        &self,
        nodes: &mut Nodes<'_>,
        cell: &CellValues,
        products: ValueId,
        states: &[ValueId],
    ) -> Result<Vec<ValueId>, InferError> {
        let (hidden, memory) = (cell.hidden, states[1]);
        let shown = match self.rounds_operands {
            true => nodes.rounded_rows(states[0])?,
            false => states[0],
        };
        let recurrent = nodes.add(MatMul {}, &[shown, cell.recurrence])?;
        let gates = nodes.binary(B::Add, products, recurrent)?;
        let gate = |nodes: &mut Nodes<'_>, place: usize, memory: Option<ValueId>| {
            let gate = nodes.slice(gates, 1, place * hidden, hidden)?;
            let Some((peepholes, memory)) = cell.peepholes.zip(memory) else { return Ok(gate) };
            let peephole = nodes.slice(peepholes, 0, place * hidden, hidden)?;
            let seen = nodes.binary(B::Multiply, peephole, memory)?;
            nodes.binary(B::Add, gate, seen)
        };
        let activate = |nodes: &mut Nodes<'_>, place: usize, x: ValueId| {
            nodes.activate(cell.activations[place], cell.clip, x)
        };
        let input = gate(nodes, 0, Some(memory))?;
        let input = activate(nodes, 0, input)?;
        let forget = if self.input_forget {
            nodes.complement(input)?
        } else {
            let forget = gate(nodes, 2, Some(memory))?;
            activate(nodes, 0, forget)?
        };
        let candidate = gate(nodes, 3, None)?;
        let candidate = activate(nodes, 1, candidate)?;
        let kept = nodes.binary(B::Multiply, forget, memory)?;
        let added = nodes.binary(B::Multiply, input, candidate)?;
        let memory = nodes.binary(B::Add, kept, added)?;
        let output = gate(nodes, 1, Some(memory))?;
        let output = activate(nodes, 0, output)?;
        let shown = activate(nodes, 2, memory)?;
        Ok(vec![nodes.binary(B::Multiply, output, shown)?, memory])
    }

    fn form(&self) -> Form {
        Form {
            name: Self::NAME,
            gates: 4,
            hidden: self.hidden,
            direction: self.direction,
            activations: self.activations.len(),
            batch_first: self.batch_first,
        }
    }
}

impl Operator for Lstm {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let extents = self.form().check(inputs, 3)?;
        let x = required(Self::NAME, inputs, 0)?;
        let optional = |place: usize| inputs.get(place).copied().flatten();
        if let Some(cell) = optional(6) {
            check_same_type(x, &[cell])?;
            expect("initial cell", cell, &extents.state())?;
        }
        if let Some(peepholes) = optional(7) {
            check_same_type(x, &[peepholes])?;
            expect("peepholes", peepholes, &[extents.directions, 3 * self.hidden])?;
        }
        extents.outputs(x, 2)
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let walk = Walk {
            name: Self::NAME,
            extents: self.form().check(&types, 3)?,
            gates: 4,
            direction: self.direction,
            activations: &self.activations,
            clip: self.clip,
            states: 2,
            rounds_input: self.rounds_operands,
        };
        walk.run(inputs, &self.infer(&types)?, &|cell, products, states| {
            self.step(cell, products, states);
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
        let extents = self.form().check(&types, 3)?;
        if extents.steps == 0 {
            return Ok(None);
        }
        let unroll = Unroll {
            name: Self::NAME,
            extents,
            gates: 4,
            direction: self.direction,
            activations: &self.activations,
            clip: self.clip,
            states: 2,
            keeps_bias: false,
            rounds_input: self.rounds_operands,
        };
        let outputs = unroll.run(graph, inputs, &|nodes, cell, products, states| {
            self.step_nodes(nodes, cell, products, states)
        })?;
        Ok(Some(outputs))
    }
}
