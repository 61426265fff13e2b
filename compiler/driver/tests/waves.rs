//! Recurrences whose steps are divided among threads: what they give is the same for every number of threads, and what the
//! reference gives.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::run;
use hone_artifact::{Reader, Waves};
use hone_driver::{Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate};
use hone_graph::ValueId;
use hone_ops::{Activation, Direction, Gru, Lstm, Op, Rnn};
use hone_runtime::{Model, Options as RunOptions};
use hone_types::{DataType, Random};

/// A layer over `steps` elements of `rows` rows.
struct Layer {
    steps: usize,
    rows: usize,
    units: usize,
    gates: usize,
    operation: Op,
    /// Whether the rows' sequences end at different steps.
    ends: bool,
}

const INPUT: usize = 8;

impl Layer {
    fn lstm(units: usize, rows: usize, direction: Direction) -> Self {
        let operation = Op::new(Lstm {
            hidden: units,
            direction,
            activations: vec![Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
            clip: None,
            input_forget: false,
            batch_first: false,
            rounds_operands: false,
        });
        Self { steps: 7, rows, units, gates: 4, operation, ends: false }
    }

    fn gru(units: usize, rows: usize, linear_before_reset: bool) -> Self {
        let operation = Op::new(Gru {
            hidden: units,
            direction: Direction::Forward,
            activations: vec![Activation::Sigmoid, Activation::Tanh],
            clip: None,
            linear_before_reset,
            batch_first: false,
        });
        Self { steps: 7, rows, units, gates: 3, operation, ends: false }
    }

    fn rnn(units: usize) -> Self {
        let operation = Op::new(Rnn {
            hidden: units,
            direction: Direction::Forward,
            activations: vec![Activation::Tanh],
            clip: None,
            batch_first: false,
        });
        Self { steps: 7, rows: 1, units, gates: 1, operation, ends: false }
    }

    fn graph(&self) -> Graph {
        let Self { steps, rows, units, gates, .. } = *self;
        let mut graph = Graph::new();
        let mut random = Random::new(7);
        let x = graph.add_input("x", TensorType::new(DataType::F32, [steps, rows, INPUT]));
        let mut weights = |graph: &mut Graph, shape: &[usize], size: f32| -> ValueId {
            let values: Vec<f32> = random.normals(shape.iter().product(), 0.0, size);
            graph.add_constant("weights", Tensor::from_elements(shape, &values).unwrap())
        };
        let w = weights(&mut graph, &[1, gates * units, INPUT], 0.3);
        let r = weights(&mut graph, &[1, gates * units, units], 1.0 / (units as f32).sqrt());
        let bias = weights(&mut graph, &[1, 2 * gates * units], 0.2);
        let mut inputs = vec![Some(x), Some(w), Some(r), Some(bias)];
        if self.ends {
            let lengths: Vec<i32> = (0..rows).map(|row| (steps - row % steps) as i32).collect();
            let lengths = Tensor::from_elements([rows], &lengths).unwrap();
            inputs.push(Some(graph.add_constant("lengths", lengths)));
        }
        let outputs = graph.add_node("layer", self.operation.clone(), &inputs).unwrap();
        for (number, output) in outputs.into_iter().enumerate() {
            graph.add_output(format!("output{number}"), output);
        }
        graph
    }

    /// Checks what the artifact gives on several numbers of threads, and returns the waves of its recurrence.
    fn check(&self) -> Option<Waves> {
        let graph = self.graph();
        let shape = [self.steps, self.rows, INPUT];
        let values: Vec<f32> = Random::new(3).normals(shape.iter().product(), 0.0, 1.0);
        let inputs = [Tensor::from_elements(shape, &values).unwrap()];
        let expected = evaluate(&graph, &inputs).unwrap();
        let options = Options::new(Target::host().unwrap());
        let artifact = compile_graph(graph, b"waves", &options).unwrap().artifact;
        let mut first: Option<Vec<Vec<f32>>> = None;
        for threads in [1, 2, 3, 8] {
            let options = RunOptions { threads, ..RunOptions::default() };
            let mut model = Model::load_memory(artifact.clone(), &options).unwrap();
            for _ in 0..20 {
                let outputs = run(&mut model, &inputs);
                let bits = |outputs: &[Vec<f32>]| -> Vec<Vec<u32>> {
                    let output = |own: &Vec<f32>| own.iter().map(|own| own.to_bits()).collect();
                    outputs.iter().map(output).collect()
                };
                match &first {
                    Some(first) => assert_eq!(bits(&outputs), bits(first), "{threads} threads"),
                    None => first = Some(outputs),
                }
            }
        }
        for (expected, actual) in expected.iter().zip(first.unwrap()) {
            for (place, (expected, actual)) in expected.to_f64().iter().zip(actual).enumerate() {
                let difference = (expected - f64::from(actual)).abs();
                assert!(difference < 1e-4, "{place}: {actual} in place of {expected}");
            }
        }
        let reader = Reader::new(&artifact).unwrap();
        reader.manifest().variants[0].steps.iter().find_map(|step| step.waves)
    }
}

/// The new state follows from a product of all of the old one, and from nothing that another part computes in the same
/// step.
#[test]
fn lstm() {
    for (units, rows) in [(128, 1), (256, 1), (128, 5), (192, 16)] {
        let waves = Layer::lstm(units, rows, Direction::Forward).check().unwrap();
        assert_eq!(waves.waves, 7, "{units} units, {rows} rows: {waves:?}");
        assert!(waves.parts > 1 && waves.min_parts_per_thread < waves.parts, "{waves:?}");
    }
}

#[test]
fn lstm_that_reads_from_the_end() {
    assert!(Layer::lstm(256, 1, Direction::Reverse).check().is_some());
}

#[test]
fn lstm_of_sequences_that_end_early() {
    let layer = Layer { ends: true, ..Layer::lstm(128, 4, Direction::Forward) };
    assert!(layer.check().is_some());
}

#[test]
fn gru() {
    assert_eq!(Layer::gru(256, 1, true).check().unwrap().waves, 7);
    assert_eq!(Layer::gru(256, 4, true).check().unwrap().waves, 7);
    // The second product reads what all parts have made of the first one's results.
    assert_eq!(Layer::gru(256, 1, false).check().unwrap().waves, 3 * 7);
}

#[test]
fn rnn() {
    assert!(Layer::rnn(512).check().is_some());
}

/// Steps that take less time than threads wait for each other, and units without equal parts of whole vectors.
#[test]
fn what_is_not_divided() {
    assert_eq!(Layer::lstm(64, 1, Direction::Forward).check(), None);
    assert_eq!(Layer::gru(150, 1, true).check(), None);
}
