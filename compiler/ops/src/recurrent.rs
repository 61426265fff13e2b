//! What the recurrent operators share: directions, activations, shapes.

use crate::operator::required;
use crate::shape::{bounded, check_float, check_same_type};
use hone_graph::InferError;
use hone_types::TensorType;
use serde::{Deserialize, Serialize};

/// Which way a sequence is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// First to last.
    Forward,
    /// Last to first.
    Reverse,
    /// Both, each with weights of its own: forward first.
    Bidirectional,
}

impl Direction {
    /// Number of directions.
    pub fn count(self) -> usize {
        if self == Direction::Bidirectional { 2 } else { 1 }
    }
}

/// A function inside a recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `alpha * x + beta`
    Affine {
        /// Factor.
        alpha: f64,
        /// Term.
        beta: f64,
    },
    /// `x` where `x >= 0`, else `alpha * x`
    LeakyRelu {
        /// Slope below zero.
        alpha: f64,
    },
    /// `x` where `x >= alpha`, else 0
    ThresholdedRelu {
        /// Threshold.
        alpha: f64,
    },
    /// `alpha * tanh(beta * x)`
    ScaledTanh {
        /// Factor of the result.
        alpha: f64,
        /// Factor of the operand.
        beta: f64,
    },
    /// `min(max(alpha * x + beta, 0), 1)`
    HardSigmoid {
        /// Factor.
        alpha: f64,
        /// Term.
        beta: f64,
    },
    /// `x` where `x >= 0`, else `alpha * (exp(x) - 1)`
    Elu {
        /// Factor below zero.
        alpha: f64,
    },
    /// `x / (1 + |x|)`
    Softsign,
    /// `log(1 + exp(x))`
    Softplus,
}

impl Activation {
    /// The function's value.
    pub(crate) fn evaluate(self, x: f64) -> f64 {
        match self {
            Activation::Relu => x.max(0.0),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Activation::Affine { alpha, beta } => alpha * x + beta,
            Activation::LeakyRelu { alpha } => {
                if x >= 0.0 {
                    x
                } else {
                    alpha * x
                }
            }
            Activation::ThresholdedRelu { alpha } => {
                if x >= alpha {
                    x
                } else {
                    0.0
                }
            }
            Activation::ScaledTanh { alpha, beta } => alpha * (beta * x).tanh(),
            Activation::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
            Activation::Elu { alpha } => {
                if x >= 0.0 {
                    x
                } else {
                    alpha * x.exp_m1()
                }
            }
            Activation::Softsign => x / (1.0 + x.abs()),
            Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        }
    }
}

/// Extents of a recurrent operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    pub steps: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
    pub directions: usize,
    pub batch_first: bool,
}

/// A recurrent operator's attributes, as far as its shapes need them.
pub(crate) struct Form {
    pub name: &'static str,
    pub gates: usize,
    pub hidden: usize,
    pub direction: Direction,
    pub activations: usize,
    pub batch_first: bool,
}

impl Form {
    /// Checks the inputs that all three share (x, w, r, bias, lengths, initial h) and gives the
    /// extents. `activations_each` is the number of activations a direction needs.
    pub fn check(
        &self,
        inputs: &[Option<&TensorType>],
        activations_each: usize,
    ) -> Result<Extents, InferError> {
        let (x, w) = (required(self.name, inputs, 0)?, required(self.name, inputs, 1)?);
        let r = required(self.name, inputs, 2)?;
        check_float(x)?;
        check_same_type(x, &[w, r])?;
        if x.rank() != 3 || self.hidden == 0 || self.hidden > u32::MAX as usize {
            let hidden = self.hidden;
            return Err(InferError::new(format!("{x} is no sequence for {hidden} hidden units")));
        }
        let directions = self.direction.count();
        if self.activations != directions * activations_each {
            let needed = directions * activations_each;
            let given = self.activations;
            return Err(InferError::new(format!("{needed} activations are needed, got {given}")));
        }
        let (steps, batch) =
            if self.batch_first { (x.shape[1], x.shape[0]) } else { (x.shape[0], x.shape[1]) };
        let extents = Extents {
            steps,
            batch,
            input: x.shape[2],
            hidden: self.hidden,
            directions,
            batch_first: self.batch_first,
        };
        let wide = self.gates * self.hidden;
        expect("weights", w, &[directions, wide, extents.input])?;
        expect("recurrence weights", r, &[directions, wide, self.hidden])?;
        let optional = |place: usize| inputs.get(place).copied().flatten();
        if let Some(bias) = optional(3) {
            check_same_type(x, &[bias])?;
            expect("bias", bias, &[directions, 2 * wide])?;
        }
        if let Some(lengths) = optional(4) {
            crate::shape::check_indices(lengths)?;
            expect("lengths", lengths, &[batch])?;
        }
        if let Some(initial) = optional(5) {
            check_same_type(x, &[initial])?;
            expect("initial state", initial, &extents.state())?;
        }
        Ok(extents)
    }
}

impl Extents {
    /// Shape of a state.
    pub fn state(&self) -> [usize; 3] {
        if self.batch_first {
            [self.batch, self.directions, self.hidden]
        } else {
            [self.directions, self.batch, self.hidden]
        }
    }

    /// Types of the output sequence and of `states` final states.
    pub fn outputs(&self, x: &TensorType, states: usize) -> Result<Vec<TensorType>, InferError> {
        let sequence = if self.batch_first {
            [self.batch, self.steps, self.directions, self.hidden]
        } else {
            [self.steps, self.directions, self.batch, self.hidden]
        };
        let mut types = vec![bounded(x.dtype, sequence)?];
        for _ in 0..states {
            types.push(bounded(x.dtype, self.state())?);
        }
        Ok(types)
    }
}

/// Refuses an input of another shape than `shape`.
pub(crate) fn expect(what: &str, input: &TensorType, shape: &[usize]) -> Result<(), InferError> {
    if input.shape == shape {
        return Ok(());
    }
    Err(InferError::new(format!("{what} {input} should have shape {shape:?}")))
}
