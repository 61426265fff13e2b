//! Reference results of the recurrent operators: the walk over directions and steps.

use crate::number::Number;
use crate::operator::{OpError, required};
use crate::recurrent::{Activation, Direction, Extents};
use crate::recurrent_rounding::rounded_row;
use hone_types::{Tensor, TensorType};

/// One direction's operands.
pub(crate) struct Cell<'a> {
    /// Number of hidden units.
    pub hidden: usize,
    /// Recurrence weights `[gates * hidden, hidden]`.
    pub recurrence: &'a [f64],
    /// Bias of the recurrence product `[gates * hidden]`.
    pub recurrence_bias: Vec<f64>,
    /// Peepholes `[3 * hidden]`, for operators that have them.
    pub peepholes: Vec<f64>,
    /// The direction's functions.
    pub activations: &'a [Activation],
    /// Limit of the functions' operands.
    pub clip: Option<f64>,
}

impl Cell<'_> {
    /// Row `row` of the recurrence product of `state`, with its bias.
    pub fn recurrent(&self, row: usize, state: &[f64]) -> f64 {
        let weights = &self.recurrence[row * self.hidden..][..self.hidden];
        dot(weights, state) + self.recurrence_bias[row]
    }

    /// Function `place` of an operand, which is limited first.
    pub fn activate(&self, place: usize, x: f64) -> f64 {
        let x = self.clip.map_or(x, |limit| x.clamp(-limit.abs(), limit.abs()));
        self.activations[place].evaluate(x)
    }
}

/// Runs one step: from a cell, the gates' input products, and the states, new states.
pub(crate) type Step<'a> = &'a dyn Fn(&Cell<'_>, &[f64], &mut [Vec<f64>]);

/// What the walk needs to know of an operator.
pub(crate) struct Walk<'a> {
    /// Its name.
    pub name: &'static str,
    /// Its extents.
    pub extents: Extents,
    /// Number of gates.
    pub gates: usize,
    /// Which way the sequence is read.
    pub direction: Direction,
    /// Functions of all directions.
    pub activations: &'a [Activation],
    /// Limit of their operands.
    pub clip: Option<f64>,
    /// Number of states: hidden, and cell.
    pub states: usize,
    /// Whether each row of x is rounded to bytes.
    pub rounds_input: bool,
}

impl Walk<'_> {
    /// The output sequence and the last states.
    pub fn run(
        &self,
        inputs: &[Option<&Tensor>],
        types: &[TensorType],
        step: Step<'_>,
    ) -> Result<Vec<Tensor>, OpError> {
        let Extents { steps, batch, hidden, directions, .. } = self.extents;
        let operand = |place: usize| Ok::<_, OpError>(required(self.name, inputs, place)?.to_f64());
        let optional = |place: usize| inputs.get(place).copied().flatten();
        let (x, w, r) = (operand(0)?, operand(1)?, operand(2)?);
        let lengths = optional(4).map_or_else(|| vec![steps as i64; batch], Tensor::to_i64);
        let wide = self.gates * hidden;
        let bias = optional(3).map_or_else(|| vec![0.0; directions * 2 * wide], Tensor::to_f64);
        let peepholes = optional(7)
            .filter(|_| self.states == 2)
            .map_or_else(|| vec![0.0; directions * 3 * hidden], Tensor::to_f64);
        let mut sequence = vec![0.0; types[0].elements()];
        let mut last = vec![vec![0.0; directions * batch * hidden]; self.states];
        for direction in 0..directions {
            let (own_bias, recurrence_bias) =
                bias[direction * 2 * wide..][..2 * wide].split_at(wide);
            let each = self.activations.len() / directions;
            let cell = Cell {
                hidden,
                recurrence: &r[direction * wide * hidden..][..wide * hidden],
                recurrence_bias: recurrence_bias.to_vec(),
                peepholes: peepholes[direction * 3 * hidden..][..3 * hidden].to_vec(),
                activations: &self.activations[direction * each..][..each],
                clip: self.clip,
            };
            let size = wide * self.extents.input;
            let weights = &w[direction * size..][..size];
            for sample in 0..batch {
                let place = self.state_place(direction, sample);
                let mut states: Vec<Vec<f64>> = (0..self.states)
                    .map(|state| match optional(5 + state) {
                        Some(initial) => initial.to_f64()[place..][..hidden].to_vec(),
                        None => vec![0.0; hidden],
                    })
                    .collect();
                let length = usize::try_from(lengths[sample]).unwrap_or(0).min(steps);
                for turn in 0..length {
                    let at = if self.is_backwards(direction) { length - 1 - turn } else { turn };
                    let x = &x[self.input_place(at, sample)..][..self.extents.input];
                    let products = match self.rounds_input {
                        true => products(weights, &rounded_row(x), own_bias),
                        false => products(weights, x, own_bias),
                    };
                    step(&cell, &products, &mut states);
                    let place = self.sequence_place(at, direction, sample);
                    sequence[place..][..hidden].copy_from_slice(&states[0]);
                }
                for (last, state) in last.iter_mut().zip(&states) {
                    last[place..][..hidden].copy_from_slice(state);
                }
            }
        }
        let mut outputs = vec![f64::write(&types[0], &sequence)?];
        for (last, own) in last.iter().zip(&types[1..]) {
            outputs.push(f64::write(own, last)?);
        }
        Ok(outputs)
    }

    fn is_backwards(&self, direction: usize) -> bool {
        self.direction == Direction::Reverse || direction == 1
    }

    fn input_place(&self, step: usize, sample: usize) -> usize {
        let Extents { steps, batch, input, .. } = self.extents;
        match self.extents.batch_first {
            true => (sample * steps + step) * input,
            false => (step * batch + sample) * input,
        }
    }

    fn sequence_place(&self, step: usize, direction: usize, sample: usize) -> usize {
        let Extents { steps, batch, hidden, directions, .. } = self.extents;
        match self.extents.batch_first {
            true => ((sample * steps + step) * directions + direction) * hidden,
            false => ((step * directions + direction) * batch + sample) * hidden,
        }
    }

    fn state_place(&self, direction: usize, sample: usize) -> usize {
        let Extents { batch, hidden, directions, .. } = self.extents;
        match self.extents.batch_first {
            true => (sample * directions + direction) * hidden,
            false => (direction * batch + sample) * hidden,
        }
    }
}

/// The gates' products with an input, with their bias.
fn products(weights: &[f64], x: &[f64], bias: &[f64]) -> Vec<f64> {
    let row = |place: usize| &weights[place * x.len()..][..x.len()];
    bias.iter().enumerate().map(|(place, bias)| dot(row(place), x) + bias).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
