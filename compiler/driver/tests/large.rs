//! Graphs of many nodes: every stage takes time in proportion to the nodes, or nearly, and none
//! recurses over them. `HONE_NODES=100000` sets another size and `--nocapture` prints the stages.
#![allow(clippy::unwrap_used)]

use hone_driver::{
    Compiled, DataType, Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate,
};
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Concat, MatMul, Op, Reduce, ReduceFunction, Unary, UnaryFunction,
};
use std::time::Instant;

/// A graph that grows node by node, with one input `x` of `[4, 16]`.
struct Growing {
    graph: Graph,
    x: ValueId,
}

impl Growing {
    fn new() -> Self {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, [4, 16]));
        Self { graph, x }
    }

    fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    fn binary(&mut self, function: BinaryFunction, left: ValueId, right: ValueId) -> ValueId {
        self.node(Binary::new(function), &[left, right])
    }

    fn relu(&mut self, value: ValueId) -> ValueId {
        self.node(Unary::new(UnaryFunction::Relu), &[value])
    }

    /// A constant that differs from those of other seeds and is about as large as one.
    fn constant(&mut self, shape: &[usize], seed: usize) -> ValueId {
        let count = shape.iter().product::<usize>();
        let number = |index: usize| ((index * 31 + seed * 7) % 1009) as f64 / 1009.0 - 0.5;
        let values: Vec<f64> = (0..count).map(number).collect();
        let tensor = Tensor::from_f64(DataType::F32, shape, &values).unwrap();
        self.graph.add_constant("constant", tensor)
    }

    fn is_smaller(&self, nodes: usize) -> bool {
        self.graph.nodes().len() < nodes
    }
}

fn nodes() -> usize {
    std::env::var("HONE_NODES").map_or(20_000, |text| text.parse().unwrap())
}

/// Compiles, runs once, and compares with the reference.
fn check(form: &str, growing: Growing) {
    let mut options = Options::new(Target::host().unwrap());
    options.keep_inspection = false;
    let since = Instant::now();
    let compiled = compile_graph(growing.graph, b"large", &options).unwrap();
    println!("{form}: {:?} {:?}", since.elapsed(), compiled.statistics);
    let since = Instant::now();
    compare(compiled);
    println!("{form}: compared in {:?}", since.elapsed());
}

fn compare(compiled: Compiled) {
    let number = |index: usize| (index * 7 % 11) as f64 / 11.0 - 0.4;
    let values: Vec<f64> = (0..64).map(number).collect();
    let x = Tensor::from_f64(DataType::F32, [4, 16], &values).unwrap();
    let expected = evaluate(&compiled.references[0], std::slice::from_ref(&x)).unwrap();
    let options = hone_runtime::Options { threads: 1, ..Default::default() };
    let mut model = hone_runtime::Model::load_memory(compiled.artifact, &options).unwrap();
    let mut outputs: Vec<Vec<u8>> =
        model.outputs().iter().map(|info| vec![0; info.bytes as usize]).collect();
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    model.run(&[x.bytes()], &mut slices).unwrap();
    for (expected, actual) in expected.iter().zip(outputs) {
        let actual = Tensor::from_bytes(expected.tensor_type().clone(), actual).unwrap();
        let expected = expected.to_f64();
        let largest = expected.iter().fold(1e-3, |most: f64, value| most.max(value.abs()));
        for (want, got) in expected.iter().zip(actual.to_f64()) {
            assert!((want - got).abs() <= 1e-3 * largest, "{got} instead of {want}");
        }
    }
}

#[test]
fn a_chain_of_element_wise_nodes() {
    let mut growing = Growing::new();
    let mut value = growing.x;
    while growing.is_smaller(nodes()) {
        let number = growing.constant(&[1], growing.graph.nodes().len());
        value = growing.binary(BinaryFunction::Add, value, number);
        value = growing.relu(value);
    }
    growing.graph.add_output("y", value);
    check("element-wise chain", growing);
}

#[test]
fn a_chain_of_products() {
    let mut growing = Growing::new();
    let weights: Vec<ValueId> = (0..8).map(|seed| growing.constant(&[16, 16], seed)).collect();
    let mut value = growing.x;
    while growing.is_smaller(nodes()) {
        let layer = growing.graph.nodes().len();
        let bias = growing.constant(&[16], layer);
        value = growing.node(MatMul {}, &[value, weights[layer % 8]]);
        value = growing.binary(BinaryFunction::Add, value, bias);
        value = growing.relu(value);
    }
    growing.graph.add_output("y", value);
    check("chain of products", growing);
}

#[test]
fn a_chain_in_which_every_value_is_read_twice() {
    let mut growing = Growing::new();
    let half = growing.constant(&[16], 3);
    let mut value = growing.x;
    while growing.is_smaller(nodes()) {
        let branch = growing.node(Unary::new(UnaryFunction::Tanh), &[value]);
        let sum = growing.binary(BinaryFunction::Add, value, branch);
        value = growing.binary(BinaryFunction::Multiply, sum, half);
    }
    growing.graph.add_output("y", value);
    check("residual chain", growing);
}

#[test]
fn a_fan_that_is_summed() {
    let mut growing = Growing::new();
    let mut sum = growing.x;
    while growing.is_smaller(nodes()) {
        let number = growing.constant(&[1], growing.graph.nodes().len());
        let branch = growing.binary(BinaryFunction::Multiply, growing.x, number);
        sum = growing.binary(BinaryFunction::Add, sum, branch);
    }
    growing.graph.add_output("y", sum);
    check("summed fan", growing);
}

#[test]
fn a_fan_of_products_that_is_summed_last() {
    let mut growing = Growing::new();
    let weights: Vec<ValueId> = (0..8).map(|seed| growing.constant(&[16, 16], seed)).collect();
    let mut branches = Vec::new();
    while growing.is_smaller(nodes()) {
        let bias = growing.constant(&[16], branches.len());
        let product = growing.node(MatMul {}, &[growing.x, weights[branches.len() % 8]]);
        branches.push(growing.binary(BinaryFunction::Add, product, bias));
    }
    let mut sum = growing.x;
    for branch in branches {
        sum = growing.binary(BinaryFunction::Add, sum, branch);
    }
    growing.graph.add_output("y", sum);
    check("fan of products", growing);
}

#[test]
fn a_fan_of_outputs() {
    let mut growing = Growing::new();
    while growing.is_smaller(nodes()) {
        let number = growing.constant(&[1], growing.graph.nodes().len());
        let branch = growing.binary(BinaryFunction::Add, growing.x, number);
        growing.graph.add_output(format!("y{}", growing.graph.outputs().len()), branch);
    }
    check("fan of outputs", growing);
}

#[test]
fn a_fan_that_is_concatenated() {
    let mut growing = Growing::new();
    let mut branches = Vec::new();
    while growing.is_smaller(nodes()) {
        let number = growing.constant(&[16], branches.len());
        let branch = growing.binary(BinaryFunction::Add, growing.x, number);
        let function = ReduceFunction::Sum;
        let sum = Reduce { function, axes: vec![1], keep_axes: true };
        branches.push(growing.node(sum, &[branch]));
    }
    let all = growing.node(Concat { axis: 1 }, &branches);
    growing.graph.add_output("y", all);
    check("concatenated fan", growing);
}

#[test]
fn large_products_of_constants() {
    let mut growing = Growing::new();
    let square = [1_000, 1_000];
    let [left, right] = [0, 1].map(|seed| growing.constant(&square, seed));
    let mut product = left;
    for _ in 0..200 {
        product = growing.node(MatMul {}, &[product, right]);
    }
    let function = ReduceFunction::Mean;
    let mean = growing.node(Reduce { function, axes: vec![0, 1], keep_axes: false }, &[product]);
    let sum = growing.binary(BinaryFunction::Add, growing.x, mean);
    growing.graph.add_output("y", sum);
    let options = Options::new(Target::host().unwrap());
    // It finishes, with the products left to the runs; one of them takes two billion operations.
    let compiled = compile_graph(growing.graph, b"large", &options).unwrap();
    assert!(compiled.statistics.steps > 200);
}
