//! A size between two bounds: kernels leave out what lies behind it, and answers are those of the model at that size, whatever
//! an earlier run left in memory.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use hone_artifact::{Reader, Slot, Step};
use hone_driver::{
    DynamicDimensions, Graph, Options, SizedGraph, Target, Tensor, TensorType, compile_dynamic,
    evaluate, pad_dimension, padded_dimension,
};
use hone_graph::ValueId;
use hone_ops::{
    Activation, Binary, BinaryFunction, Cast, Direction, Gather, LayerNormalization, Lstm, MatMul,
    Op, Reduce, ReduceFunction, Reshape, Softmax, Transpose, Unary, UnaryFunction,
};
use hone_runtime::{Model, Options as RunOptions};
use hone_types::{DataType, Random};

const HEADS: usize = 2;
const SIZE: usize = 16;
const WIDTH: usize = HEADS * SIZE;
const WORDS: usize = 11;

/// A model under construction, for `n` tokens.
struct Builder {
    graph: Graph,
    n: usize,
    random: Random,
}

impl Builder {
    fn add(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let operation = operation.into();
        let name = format!("{}_{}", operation.name(), self.graph.nodes().len());
        self.graph.add_node(name, operation, &inputs).unwrap()[0]
    }

    fn binary(&mut self, function: BinaryFunction, a: ValueId, b: ValueId) -> ValueId {
        self.add(Binary::new(function), &[a, b])
    }

    fn weights(&mut self, shape: &[usize]) -> ValueId {
        let count = shape.iter().product();
        let values = self.random.normals(count, 0.0, 0.3);
        self.graph.add_constant("weights", Tensor::from_elements(shape, &values).unwrap())
    }

    fn number(&mut self, value: f32) -> ValueId {
        self.graph.add_constant("number", Tensor::scalar(value))
    }

    fn linear(&mut self, x: ValueId, from: usize, to: usize) -> ValueId {
        let (weights, bias) = (self.weights(&[from, to]), self.weights(&[to]));
        let product = self.add(MatMul {}, &[x, weights]);
        self.binary(BinaryFunction::Add, product, bias)
    }

    fn heads(&mut self, x: ValueId) -> ValueId {
        let x = self.linear(x, WIDTH, WIDTH);
        let x = self.add(Reshape { shape: vec![1, self.n, HEADS, SIZE] }, &[x]);
        self.add(Transpose { permutation: vec![0, 2, 1, 3] }, &[x])
    }

    fn normalized(&mut self, x: ValueId) -> ValueId {
        let (scale, bias) = (self.weights(&[WIDTH]), self.weights(&[WIDTH]));
        self.add(LayerNormalization { axis: 2, epsilon: 1e-5 }, &[x, scale, bias])
    }

    fn layer(&mut self, x: ValueId, bias: ValueId) -> ValueId {
        let (query, key, value) = (self.heads(x), self.heads(x), self.heads(x));
        let key = self.add(Transpose { permutation: vec![0, 1, 3, 2] }, &[key]);
        let scores = self.add(MatMul {}, &[query, key]);
        let scale = self.number((SIZE as f32).sqrt().recip());
        let scores = self.binary(BinaryFunction::Multiply, scores, scale);
        let scores = self.binary(BinaryFunction::Add, scores, bias);
        let weights = self.add(Softmax { axis: 3, log: false }, &[scores]);
        let seen = self.add(MatMul {}, &[weights, value]);
        let seen = self.add(Transpose { permutation: vec![0, 2, 1, 3] }, &[seen]);
        let seen = self.add(Reshape { shape: vec![1, self.n, WIDTH] }, &[seen]);
        let seen = self.linear(seen, WIDTH, WIDTH);
        let x = self.binary(BinaryFunction::Add, x, seen);
        let x = self.normalized(x);
        let inner = self.linear(x, WIDTH, 3 * WIDTH);
        let inner = self.add(Unary::new(UnaryFunction::Tanh), &[inner]);
        let inner = self.linear(inner, 3 * WIDTH, WIDTH);
        let x = self.binary(BinaryFunction::Add, x, inner);
        self.normalized(x)
    }
}

/// An encoder of words and features of `n` tokens, which gives all tokens, the first one and their mean.
fn encoder(n: usize) -> Graph {
    let mut b = Builder { graph: Graph::new(), n, random: Random::new(5) };
    let ids = b.graph.add_input("ids", TensorType::new(DataType::I64, [1, n]));
    let features = b.graph.add_input("features", TensorType::new(DataType::F32, [1, n, WIDTH]));
    let mask = b.graph.add_input("mask", TensorType::new(DataType::I64, [1, n]));
    let table = b.weights(&[WORDS, WIDTH]);
    let words = b.add(Gather { axis: 0 }, &[table, ids]);
    let x = b.binary(BinaryFunction::Add, words, features);
    let visible = b.add(Cast { to: DataType::F32 }, &[mask]);
    let visible = b.add(Reshape { shape: vec![1, 1, 1, n] }, &[visible]);
    let (one, hidden) = (b.number(1.0), b.number(-1e9));
    let bias = b.binary(BinaryFunction::Subtract, one, visible);
    let bias = b.binary(BinaryFunction::Multiply, bias, hidden);
    let x = b.layer(x, bias);
    let x = b.layer(x, bias);
    let first = b.graph.add_constant("first", Tensor::scalar(0i64));
    let class = b.add(Gather { axis: 1 }, &[x, first]);
    let mean = Reduce { function: ReduceFunction::Mean, axes: vec![1], keep_axes: false };
    let mean = b.add(mean, &[x]);
    for (name, value) in [("tokens", x), ("class", class), ("mean", mean)] {
        b.graph.add_output(name, value);
    }
    b.graph.verify().unwrap();
    b.graph
}

const BOUNDS: [usize; 2] = [96, 48];

/// A model for every size up to the bounds, whose inputs all have the dimension along their second axis.
fn artifact(build: fn(usize) -> Graph) -> Vec<u8> {
    let axes = vec![Some(1); build(1).inputs().len()];
    let mut dimension = None;
    let graphs = BOUNDS.map(|bound| {
        let witnesses = [bound - 7, bound / 2].map(|size| (build(size), size));
        let witnesses: Vec<(&Graph, usize)> =
            witnesses.iter().map(|(graph, size)| (graph, *size)).collect();
        let padded =
            pad_dimension(&build(bound), &axes, 1..=bound, "size of n", &witnesses).unwrap();
        dimension = Some(padded_dimension("n", &axes, &padded, 1));
        SizedGraph { dimensions: vec![("n".to_owned(), bound)], graph: padded.graph }
    });
    let dimensions = DynamicDimensions { padded: dimension, ..DynamicDimensions::default() };
    let options = Options::new(Target::host().unwrap());
    compile_dynamic(graphs.into(), dimensions, b"model", &options).unwrap().artifact
}

fn inputs(n: usize, seed: u64, with_nan: bool) -> [Tensor; 3] {
    let mut random = Random::new(seed);
    let ids: Vec<i64> = (0..n).map(|_| random.below(WORDS) as i64).collect();
    let features = match with_nan {
        true => vec![f32::NAN; n * WIDTH],
        false => random.normals(n * WIDTH, 0.0, 1.0),
    };
    let mask: Vec<i64> = (0..n).map(|token| i64::from(token % 5 != 4)).collect();
    [
        Tensor::from_elements([1, n], &ids).unwrap(),
        Tensor::from_elements([1, n, WIDTH], &features).unwrap(),
        Tensor::from_elements([1, n], &mask).unwrap(),
    ]
}

fn run(model: &mut Model, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    let shapes: Vec<Vec<u64>> = inputs
        .iter()
        .map(|input| input.shape().iter().map(|extent| *extent as u64).collect())
        .collect();
    model.set_input_shapes(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    common::run(model, inputs)
}

/// Compares runs at many sizes with the reference, each after a run that left what is no number in memory.
fn check(
    name: &str,
    build: fn(usize) -> Graph,
    artifact: &[u8],
    inputs: fn(usize, u64, bool) -> Vec<Tensor>,
) {
    let folder = std::env::temp_dir().join(format!("hone-prefix-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("model.hone");
    std::fs::write(&path, artifact).unwrap();
    for threads in [1, 3] {
        let options = RunOptions { threads, ..RunOptions::default() };
        let mut model = Model::load(&path, &options).unwrap();
        for (place, n) in [96, 1, 95, 49, 50, 48, 2, 47, 64, 17, 96, 7].into_iter().enumerate() {
            run(&mut model, &inputs(BOUNDS[place % 2], 1, true));
            let given = inputs(n, place as u64, false);
            let want = evaluate(&build(n), &given).unwrap();
            let got = run(&mut model, &given);
            for (got, want) in got.iter().zip(&want) {
                let want = want.elements::<f32>().unwrap();
                let most = want.iter().fold(0f32, |most, value| most.max(value.abs()));
                assert_eq!(got.len(), want.len());
                for (got, want) in got.iter().zip(&want) {
                    // What is no number is no difference below.
                    let near = (got - want).abs() <= 1e-4 * most;
                    assert!(near, "{n} on {threads} threads: {got} in place of {want}");
                }
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn answers_are_those_of_the_model_at_the_size_whatever_lies_behind() {
    let artifact = artifact(encoder);
    check("encoder", encoder, &artifact, |n, seed, with_nan| inputs(n, seed, with_nan).into());
    // The first token is chosen, and the sum divided by the size, without positions.
    assert_eq!(whole(&artifact), vec![vec!["gather_68"]; BOUNDS.len()]);
}

/// Two LSTMs and a layer over `n` frames.
fn recurrent(n: usize) -> Graph {
    let mut b = Builder { graph: Graph::new(), n, random: Random::new(6) };
    let mut x = b.graph.add_input("x", TensorType::new(DataType::F32, [1, n, WIDTH]));
    for _ in 0..2 {
        let (w, r) = (b.weights(&[1, 4 * WIDTH, WIDTH]), b.weights(&[1, 4 * WIDTH, WIDTH]));
        let lstm = Lstm {
            hidden: WIDTH,
            direction: Direction::Forward,
            activations: vec![Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
            clip: None,
            input_forget: false,
            batch_first: true,
            rounds_operands: false,
        };
        x = b.add(lstm, &[x, w, r]);
        x = b.add(Reshape { shape: vec![1, n, WIDTH] }, &[x]);
    }
    let y = b.linear(x, WIDTH, WIDTH);
    b.graph.add_output("y", y);
    b.graph.verify().unwrap();
    b.graph
}

#[test]
fn a_recurrence_stops_at_the_size_and_starts_anew_at_the_next_one() {
    let artifact = artifact(recurrent);
    let frames = |n, seed, with_nan| inputs(n, seed, with_nan)[1..2].to_vec();
    check("recurrent", recurrent, &artifact, frames);
    assert_eq!(whole(&artifact), vec![Vec::<String>::new(); BOUNDS.len()]);
}

/// An LSTM of so many units over `n` frames that threads divide its steps.
fn divided_recurrent(n: usize) -> Graph {
    const UNITS: usize = 128;
    let mut b = Builder { graph: Graph::new(), n, random: Random::new(6) };
    let x = b.graph.add_input("x", TensorType::new(DataType::F32, [1, n, WIDTH]));
    let w = b.weights(&[1, 4 * UNITS, WIDTH]);
    // Differences of rounding do not grow from step to step.
    let values = b.random.normals(4 * UNITS * UNITS, 0.0, 0.05);
    let r = Tensor::from_elements([1, 4 * UNITS, UNITS], &values).unwrap();
    let r = b.graph.add_constant("weights", r);
    let lstm = Lstm {
        hidden: UNITS,
        direction: Direction::Forward,
        activations: vec![Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        clip: None,
        input_forget: false,
        batch_first: true,
        rounds_operands: false,
    };
    let y = b.add(lstm, &[x, w, r]);
    let y = b.add(Reshape { shape: vec![1, n, UNITS] }, &[y]);
    b.graph.add_output("y", y);
    b.graph.verify().unwrap();
    b.graph
}

#[test]
fn a_recurrence_in_waves_stops_at_the_size() {
    let artifact = artifact(divided_recurrent);
    let frames = |n, seed, with_nan| inputs(n, seed, with_nan)[1..2].to_vec();
    check("divided", divided_recurrent, &artifact, frames);
    assert_eq!(whole(&artifact), vec![Vec::<String>::new(); BOUNDS.len()]);
    let reader = Reader::new(&artifact).unwrap();
    let variants = reader.manifest().variants.iter();
    assert!(variants.zip(BOUNDS).all(|(variant, bound)| {
        let mut waves = variant.steps.iter().filter_map(|step| step.waves);
        waves.any(|waves| waves.waves == bound as u64)
    }));
}

/// The steps of each variant that leave nothing out.
fn whole(artifact: &[u8]) -> Vec<Vec<String>> {
    let reader = Reader::new(artifact).unwrap();
    let manifest = reader.manifest();
    let variants = manifest.variants.iter().map(|variant| {
        let size = Slot::Input { index: manifest.inputs.len() as u32 - 1, offset: 0 };
        let is_whole = |step: &&Step| step.arguments.iter().all(|own| own.slot != size);
        variant.steps.iter().filter(is_whole).map(|step| step.nodes.join("+")).collect()
    });
    variants.collect()
}
