//! Every pass keeps a model's answers: the graph is evaluated after each, and the first that changes them is
//! named. A model that rounds to integers is computed in `f64` (see `hone_driver::lift`).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_driver::{
    DataType, Graph, Options, Target, Tensor, TensorType, ValueId, evaluate, evaluate_lifted, lift,
    lift_tensor, prepare_exactly, rounds_to_integers, same_structure,
};
use hone_ops::{
    Attention, BatchNormalization, Binary, BinaryFunction, Cast, Concat, Convolution, MatMul, Op,
    Pool, PoolKind, Softmax, Transpose, Unary, UnaryFunction, Window,
};

struct Net {
    graph: Graph,
    state: u64,
    /// Numbers that are one constant wherever they are used, as quantizers share scales; `None` where each use has its own.
    shared: Option<Vec<(f64, ValueId)>>,
}

impl Net {
    fn new(shape: &[usize]) -> (Self, ValueId) {
        let mut net = Self { graph: Graph::new(), state: 3, shared: None };
        let x = net.graph.add_input("x", TensorType::new(DataType::F32, shape));
        (net, x)
    }

    fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    fn random(&mut self, dtype: DataType, shape: &[usize], least: f64, most: f64) -> Tensor {
        let mut next = || {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            least + (self.state >> 33) as f64 / f64::from(1u32 << 31) * (most - least)
        };
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| next()).collect();
        Tensor::from_f64(dtype, shape, &values).unwrap()
    }

    fn constant(&mut self, dtype: DataType, shape: &[usize], least: f64, most: f64) -> ValueId {
        let tensor = self.random(dtype, shape, least, most);
        self.graph.add_constant("constant", tensor)
    }

    fn by(&mut self, function: BinaryFunction, left: ValueId, dtype: DataType, by: f64) -> ValueId {
        let number = self.number(dtype, by);
        self.node(Binary::new(function), &[left, number])
    }

    fn number(&mut self, dtype: DataType, number: f64) -> ValueId {
        let known = self.shared.iter().flatten().find(|(known, value)| {
            *known == number && self.graph.tensor_type(*value).dtype == dtype
        });
        if let Some((_, value)) = known {
            return *value;
        }
        let tensor = Tensor::from_f64(dtype, [1], &[number]).unwrap();
        let value = self.graph.add_constant("number", tensor);
        self.shared.iter_mut().for_each(|shared| shared.push((number, value)));
        value
    }

    /// Rounds to bytes and back.
    fn through_bytes(&mut self, x: ValueId, scale: f64) -> ValueId {
        let x = self.by(BinaryFunction::Divide, x, DataType::F32, scale);
        let x = self.node(Unary::new(UnaryFunction::Round), &[x]);
        let x = self.by(BinaryFunction::Add, x, DataType::F32, 120.0);
        let x = self.by(BinaryFunction::Maximum, x, DataType::F32, 0.0);
        let x = self.by(BinaryFunction::Minimum, x, DataType::F32, 255.0);
        let bytes = self.node(Cast { to: DataType::U8 }, &[x]);
        self.dequantized(bytes, 120.0, scale)
    }

    fn dequantized(&mut self, bytes: ValueId, zero: f64, scale: f64) -> ValueId {
        let x = self.node(Cast { to: DataType::I32 }, &[bytes]);
        let x = self.by(BinaryFunction::Subtract, x, DataType::I32, zero);
        let x = self.node(Cast { to: DataType::F32 }, &[x]);
        self.by(BinaryFunction::Multiply, x, DataType::F32, scale)
    }

    fn convolution(&mut self, x: ValueId, weights: ValueId) -> ValueId {
        let window = Window { pads_begin: vec![1, 1], pads_end: vec![1, 1], ..Window::plain(2) };
        self.node(Convolution { window, groups: 1 }, &[x, weights])
    }

    fn output(mut self, value: ValueId) -> Graph {
        self.graph.add_output("y", value);
        self.graph
    }
}

fn convolutions() -> Graph {
    let (mut net, x) = Net::new(&[1, 32, 12, 12]);
    let weights = net.constant(DataType::F32, &[64, 32, 3, 3], -0.1, 0.1);
    let mut y = net.convolution(x, weights);
    let mut of = |least| net.constant(DataType::F32, &[64], least, 1.0);
    let [scale, shift, mean, variance] = [of(0.5), of(-1.0), of(-1.0), of(0.5)];
    let normalize = BatchNormalization { epsilon: 1e-5 };
    y = net.node(normalize, &[y, scale, shift, mean, variance]);
    y = net.node(Unary::new(UnaryFunction::Relu), &[y]);
    let weights = net.constant(DataType::F32, &[24, 64, 3, 3], -0.1, 0.1);
    y = net.convolution(y, weights);
    y = net.by(BinaryFunction::Divide, y, DataType::F32, 3.0);
    let right = net.constant(DataType::F32, &[12, 40], -1.0, 1.0);
    y = net.node(MatMul {}, &[y, right]);
    net.output(y)
}

/// Quantized convolutions, with a pool between them whose sums lie exactly between two steps one time in
/// four.
fn quantized() -> Graph {
    let (mut net, x) = Net::new(&[1, 16, 12, 12]);
    let mut y = net.through_bytes(x, 0.011);
    for _ in 0..3 {
        let weights = net.constant(DataType::I8, &[16, 16, 3, 3], -127.0, 127.0);
        let weights = net.dequantized(weights, 0.0, 0.003);
        y = net.convolution(y, weights);
        y = net.through_bytes(y, 0.05);
        let (kernel, window) = (vec![2, 2], Window::plain(2));
        let pool = Pool { kind: PoolKind::Average, kernel, window, count_padding: false };
        y = net.node(pool, &[y]);
        y = net.through_bytes(y, 0.05);
    }
    net.output(y)
}

/// Two paths of one scale that are joined, behind averages that lie exactly between two steps one time in four. Every scale is
/// one constant, by which quantizations divide and dequantizations multiply.
fn quantized_with_shared_scales() -> Graph {
    let (mut net, x) = Net::new(&[1, 16, 12, 12]);
    net.shared = Some(Vec::new());
    let x = net.through_bytes(x, 0.011);
    let weights = net.constant(DataType::I8, &[16, 16, 3, 3], -127.0, 127.0);
    let weights = net.dequantized(weights, 0.0, 0.003);
    let y = net.convolution(x, weights);
    let y = net.through_bytes(y, 0.05);
    let paths = [PoolKind::Average, PoolKind::Maximum].map(|kind| {
        let (kernel, window) = (vec![2, 2], Window::plain(2));
        let pooled = net.node(Pool { kind, kernel, window, count_padding: false }, &[y]);
        net.through_bytes(pooled, 0.05)
    });
    let joined = net.node(Concat { axis: 1 }, &paths);
    let joined = net.through_bytes(joined, 0.05);
    let weights = net.constant(DataType::I8, &[16, 32, 3, 3], -127.0, 127.0);
    let weights = net.dequantized(weights, 0.0, 0.003);
    let y = net.convolution(joined, weights);
    net.output(y)
}

/// A dequantized number and one that its zero point times its scale nearly cancels, `number` apart from it, as quantized networks
/// have them in front of what is `1 + erf(x)`.
fn quantized_sum_that_cancels(number: f64) -> Graph {
    let (mut net, x) = Net::new(&[4, 64]);
    let x = net.through_bytes(x, 0.007_827_79);
    let y = net.by(BinaryFunction::Add, x, DataType::F32, 120.0 * 0.007_827_79 + number);
    let y = net.through_bytes(y, 0.007_833_18);
    net.output(y)
}

/// Attention of quantized numbers; its scores have a factor that is no power of two.
fn quantized_attention() -> Graph {
    let (mut net, x) = Net::new(&[1, 4, 32, 48]);
    let x = net.through_bytes(x, 0.011);
    let [query, key, value] = [0.3, 0.4, 0.5].map(|scale| {
        let weights = net.constant(DataType::F32, &[48, 48], -scale, scale);
        net.node(MatMul {}, &[x, weights])
    });
    let key = net.node(Transpose { permutation: vec![0, 1, 3, 2] }, &[key]);
    let scores = net.node(MatMul {}, &[query, key]);
    let scores = net.by(BinaryFunction::Multiply, scores, DataType::F32, 0.144_337_56);
    let weights = net.node(Softmax { axis: 3, log: false }, &[scores]);
    let y = net.node(MatMul {}, &[weights, value]);
    net.output(y)
}

/// A convolution that a network holds twice, its weights too.
fn quantized_with_equal_constants() -> Graph {
    let (mut net, x) = Net::new(&[1, 16, 12, 12]);
    let x = net.through_bytes(x, 0.011);
    let weights = net.random(DataType::F32, &[16, 16, 3, 3], -0.2, 0.2);
    let both = [UnaryFunction::Relu, UnaryFunction::Negate].map(|function| {
        let weights = net.graph.add_constant("weights", weights.clone());
        let y = net.convolution(x, weights);
        net.node(Unary::new(function), &[y])
    });
    let y = net.node(Binary::new(BinaryFunction::Add), &both);
    net.output(y)
}

fn largest_error(got: &Tensor, want: &Tensor) -> f64 {
    let (got, want) = (got.to_f64(), want.to_f64());
    let largest = want.iter().map(|own| own.abs()).fold(0.0, f64::max);
    let errors = got.iter().zip(&want).map(|(got, want)| (got - want).abs());
    errors.fold(0.0, f64::max) / largest
}

/// Why the passes on a graph would not be checked by those on the lifted one, `input` being that of the latter.
fn difference(compiled: &Graph, lifted: &Graph, input: &Tensor) -> Option<String> {
    match same_structure(compiled, lifted) {
        Ok(apart) => evaluate_lifted(lifted, &apart, std::slice::from_ref(input)).unwrap().1,
        Err(difference) => Some(difference),
    }
}

/// Evaluates the graph after each pass, for processors with and without products of bytes.
fn check(graph: &Graph) {
    let (mut net, _) = Net::new(&[1]);
    let input = graph.tensor_type(graph.inputs()[0].value).shape.clone();
    let input = net.random(DataType::F32, &input, -1.0, 1.0);
    let rounds = rounds_to_integers(graph);
    let (checked, input, working, bound) = match rounds {
        true => (lift(graph).unwrap(), lift_tensor(&input).unwrap(), DataType::F64, 1e-9),
        false => (graph.clone(), input, DataType::F32, 1e-5),
    };
    let want = evaluate(&checked, std::slice::from_ref(&input)).unwrap().remove(0);
    for cpu in ["x86-64-v3", "skylake-avx512", "cascadelake"] {
        let target = Target::for_platform("linux", "amd64", cpu).unwrap();
        let options = Options::new(target);
        let mut passes = 0;
        let prepared = prepare_exactly(&checked, &options, working, &mut |pass, graph| {
            let got = evaluate(graph, std::slice::from_ref(&input)).unwrap().remove(0);
            let error = largest_error(&got, &want);
            assert!(error <= bound, "{cpu}: the pass '{pass}' changes answers by {error:.1e}");
            passes += 1;
        });
        assert!(passes > 10);
        let compiled = prepare_exactly(graph, &options, DataType::F32, &mut |_, _| {}).unwrap();
        if rounds {
            assert_eq!(difference(&compiled, &prepared.unwrap(), &input), None, "{cpu}");
        }
    }
}

#[test]
fn passes_keep_the_answers_of_convolutions() {
    check(&convolutions());
}

#[test]
fn passes_keep_the_answers_of_a_quantized_model() {
    let graph = quantized();
    assert!(rounds_to_integers(&graph));
    check(&graph);
}

#[test]
fn passes_keep_the_answers_where_scales_are_shared() {
    check(&quantized_with_shared_scales());
}

#[test]
fn passes_keep_the_answers_where_constants_nearly_cancel() {
    check(&quantized_sum_that_cancels(0.0001));
}

#[test]
fn passes_keep_the_answers_of_an_attention_whose_factor_is_no_power_of_two() {
    let graph = quantized_attention();
    let options = Options::new(Target::for_platform("linux", "amd64", "cascadelake").unwrap());
    let prepared = prepare_exactly(&graph, &options, DataType::F32, &mut |_, _| {}).unwrap();
    let is_attention =
        |node: &hone_driver::Node<Op>| node.operation.downcast::<Attention>().is_some();
    assert!(prepared.nodes().iter().any(|(_, node)| is_attention(node)));
    check(&graph);
}

#[test]
fn passes_keep_the_answers_where_equal_constants_are_held_twice() {
    check(&quantized_with_equal_constants());
}

#[test]
fn a_constant_that_differs_is_noticed() {
    let options = Options::new(Target::for_platform("linux", "amd64", "cascadelake").unwrap());
    let prepare =
        |graph: &Graph, working| prepare_exactly(graph, &options, working, &mut |_, _| {}).unwrap();
    let is_noticed = |graph: &Graph, lifted: &Graph| {
        let shape = graph.tensor_type(graph.inputs()[0].value).shape.clone();
        let input = Net::new(&[1]).0.random(DataType::F64, &shape, -1.0, 1.0);
        let lifted = prepare(&lift(lifted).unwrap(), DataType::F64);
        difference(&prepare(graph, DataType::F32), &lifted, &input).is_some()
    };
    let graph = quantized();
    assert!(!is_noticed(&graph, &graph));
    // A sum of which what is left is a hundredth of a step more.
    let [other, another] = [0.0001, 0.0002].map(quantized_sum_that_cancels);
    assert!(!is_noticed(&other, &other));
    assert!(is_noticed(&other, &another) && is_noticed(&another, &other));
    // Another scale at one place.
    let (mut net, x) = Net::new(&[1, 16, 12, 12]);
    let y = net.through_bytes(x, 0.012);
    let other = net.output(y);
    let (mut net, x) = Net::new(&[1, 16, 12, 12]);
    let y = net.through_bytes(x, 0.0121);
    let another = net.output(y);
    assert!(is_noticed(&another, &other));
}
