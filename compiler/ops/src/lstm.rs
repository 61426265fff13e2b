//! Long short-term memory.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::recurrent::{Activation, Direction, Form, expect};
use crate::shape::check_same_type;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
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
}

impl Lstm {
    /// Name in text forms.
    pub const NAME: &'static str = "lstm";

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

    pending!();
}
