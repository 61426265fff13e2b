//! The plain recurrent unit.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::recurrent::{Activation, Direction, Form};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
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

    pending!();
}
