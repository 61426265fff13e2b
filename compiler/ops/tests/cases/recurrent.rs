//! Recurrent operators: every direction, with and without the optional inputs.

use super::{Case, f32s, i64s, tensor};
use hone_ops::*;
use hone_types::{DataType, Tensor};

const STEPS: usize = 4;
const BATCH: usize = 3;
const INPUT: usize = 2;
const HIDDEN: usize = 5;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
        for batch_first in [false, true] {
            for is_full in [false, true] {
                let form = Form { direction, batch_first, is_full };
                cases.push(form.lstm(false));
                cases.push(form.lstm(true));
                cases.push(form.gru(false));
                cases.push(form.gru(true));
                cases.push(form.rnn(Activation::Tanh));
            }
        }
    }
    let form = Form { direction: Direction::Forward, batch_first: false, is_full: true };
    for activation in [
        Activation::Relu,
        Activation::Sigmoid,
        Activation::Affine { alpha: 0.5, beta: 0.1 },
        Activation::LeakyRelu { alpha: 0.1 },
        Activation::ThresholdedRelu { alpha: 0.2 },
        Activation::ScaledTanh { alpha: 1.5, beta: 0.5 },
        Activation::HardSigmoid { alpha: 0.2, beta: 0.5 },
        Activation::Elu { alpha: 0.7 },
        Activation::Softsign,
        Activation::Softplus,
    ] {
        cases.push(form.rnn(activation));
    }
    cases.extend([false, true].map(recurrence));
    cases
}

/// Two states and two sequences: `a' = a + x * w`, `b' = max(b, a')`; both steps' values are given.
fn recurrence(backwards: bool) -> Case {
    let node = |function: BinaryFunction, inputs: [usize; 2]| {
        let operator = Op::new(Binary::new(function));
        StepNode {
            operator: operator.name().to_string(),
            attributes: operator.attributes(),
            inputs: inputs.map(Some).to_vec(),
        }
    };
    // 0: a, 1: b, 2: x, 3: y, 4: w.
    let nodes = vec![
        node(BinaryFunction::Multiply, [2, 4]),
        node(BinaryFunction::Add, [0, 5]),
        node(BinaryFunction::Maximum, [1, 6]),
        node(BinaryFunction::Subtract, [7, 3]),
    ];
    let operator = Recurrence {
        states: 2,
        sequences: 2,
        backwards,
        nodes,
        new_states: vec![6, 7],
        given: vec![8, 6],
    };
    let inputs = [f32s([3]), f32s([3]), f32s([STEPS, 3]), f32s([STEPS, 3]), f32s([3])];
    super::case(operator, &inputs)
}

/// What the cases differ in.
struct Form {
    direction: Direction,
    batch_first: bool,
    is_full: bool,
}

impl Form {
    fn directions(&self) -> usize {
        self.direction.count()
    }

    /// The inputs: all of them, or only those that must be.
    fn inputs(&self, gates: usize, states: usize) -> Vec<Option<Tensor>> {
        let (directions, wide) = (self.directions(), gates * HIDDEN);
        let x = if self.batch_first { [BATCH, STEPS, INPUT] } else { [STEPS, BATCH, INPUT] };
        let state = if self.batch_first {
            [BATCH, directions, HIDDEN]
        } else {
            [directions, BATCH, HIDDEN]
        };
        let mut inputs =
            vec![f32s(x), f32s([directions, wide, INPUT]), f32s([directions, wide, HIDDEN])];
        if self.is_full {
            inputs.push(f32s([directions, 2 * wide]));
            let lengths = Tensor::from_elements([BATCH], &[4_i32, 2, 0]).unwrap();
            inputs.push(if gates == 1 { i64s([BATCH], &[1, 3, 4]) } else { lengths });
            inputs.extend((0..states).map(|_| tensor(DataType::F32, state)));
        }
        let mut inputs: Vec<Option<Tensor>> = inputs.into_iter().map(Some).collect();
        if self.is_full && states == 2 {
            inputs.push(Some(f32s([directions, 3 * HIDDEN])));
        }
        if self.is_full && self.batch_first {
            inputs[4] = None;
        }
        inputs
    }

    fn repeated(&self, activations: &[Activation]) -> Vec<Activation> {
        activations.repeat(self.directions())
    }

    fn case(&self, operator: impl Operator, gates: usize, states: usize) -> Case {
        let inputs = self.inputs(gates, states);
        Case { operator: Op::new(operator), inputs, is_folded: true }
    }

    fn lstm(&self, rounds_operands: bool) -> Case {
        let lstm = Lstm {
            hidden: HIDDEN,
            direction: self.direction,
            activations: self.repeated(&[Activation::Sigmoid, Activation::Tanh, Activation::Tanh]),
            clip: self.is_full.then_some(1.5),
            input_forget: self.is_full && self.batch_first,
            batch_first: self.batch_first,
            rounds_operands,
        };
        self.case(lstm, 4, 2)
    }

    fn gru(&self, linear_before_reset: bool) -> Case {
        let gru = Gru {
            hidden: HIDDEN,
            direction: self.direction,
            activations: self.repeated(&[Activation::Sigmoid, Activation::Tanh]),
            clip: None,
            linear_before_reset,
            batch_first: self.batch_first,
        };
        self.case(gru, 3, 1)
    }

    fn rnn(&self, activation: Activation) -> Case {
        let rnn = Rnn {
            hidden: HIDDEN,
            direction: self.direction,
            activations: self.repeated(&[activation]),
            clip: Some(0.9),
            batch_first: self.batch_first,
        };
        self.case(rnn, 1, 1)
    }
}
