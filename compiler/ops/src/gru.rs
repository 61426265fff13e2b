//! Gated recurrent unit.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::recurrent::{Activation, Direction, Form};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
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

    pending!();
}
