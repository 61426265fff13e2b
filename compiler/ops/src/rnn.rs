//! The plain recurrent unit.

use crate::BinaryFunction as B;
use crate::matmul::MatMul;
use crate::operator::Graph;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::recurrent::{Activation, Direction, Form};
use crate::recurrent_nodes::Unroll;
use crate::recurrent_reference::Walk;
use hone_graph::InferError;
use hone_graph::ValueId;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// ONNX `RNN`. Inputs: x `[steps, batch, input]`, w `[directions, hidden, input]`, r `[directions,
/// hidden, hidden]`, and optionally bias `[directions, 2 * hidden]`, lengths `[batch]`, initial h
/// `[directions, batch, hidden]`. Outputs: all h `[steps, directions, batch, hidden]`, and the last
/// h `[directions, batch, hidden]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rnn {
    /// Number of hidden units.
    pub hidden: usize,
    /// Which way the sequence is read.
    pub direction: Direction,
    /// The function of each direction.
    pub activations: Vec<Activation>,
    /// Magnitude the operands of activations are limited to.
    pub clip: Option<f64>,
    /// Whether the batch comes first: x `[batch, steps, input]`, all h `[batch, steps, directions,
    /// hidden]`, states `[batch, directions, hidden]`.
    pub batch_first: bool,
}

impl Rnn {
    /// Name in text forms.
    pub const NAME: &'static str = "rnn";

    fn form(&self) -> Form {
        Form {
            name: Self::NAME,
            gates: 1,
            hidden: self.hidden,
            direction: self.direction,
            activations: self.activations.len(),
            batch_first: self.batch_first,
        }
    }
}

impl Operator for Rnn {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let extents = self.form().check(inputs, 1)?;
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
            extents: self.form().check(&types, 1)?,
            gates: 1,
            direction: self.direction,
            activations: &self.activations,
            clip: self.clip,
            states: 1,
            rounds_input: false,
        };
        walk.run(inputs, &self.infer(&types)?, &|cell, products, states| {
            let old = &states[0];
            let row = |row: usize| cell.activate(0, products[row] + cell.recurrent(row, old));
            states[0] = (0..self.hidden).map(row).collect();
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
        let extents = self.form().check(&types, 1)?;
        if extents.steps == 0 {
            return Ok(None);
        }
        let unroll = Unroll {
            name: Self::NAME,
            extents,
            gates: 1,
            direction: self.direction,
            activations: &self.activations,
            clip: self.clip,
            states: 1,
            keeps_bias: false,
            rounds_input: false,
        };
        let outputs = unroll.run(graph, inputs, &|nodes, cell, products, states| {
            let recurrent = nodes.add(MatMul {}, &[states[0], cell.recurrence])?;
            let sum = nodes.binary(B::Add, products, recurrent)?;
            Ok(vec![nodes.activate(cell.activations[0], cell.clip, sum)?])
        })?;
        Ok(Some(outputs))
    }
}
