//! Models of 16-bit floats: computed in `f32`, given and returned as the model declares, and as near to
//! a reference that rounds each operator's result as that type allows.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_driver::{Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate, prepare};
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, Gather, GroupNormalization, LayerNormalization,
    MatMul, Op, Pool, PoolKind, Reshape, Softmax, Transpose, Unary, UnaryFunction, Window,
};
use hone_types::DataType;

/// A graph whose inputs and constants are of one type, with seeded content.
struct Case {
    graph: Graph,
    dtype: DataType,
    inputs: Vec<Tensor>,
    seed: u64,
}

impl Case {
    fn new(dtype: DataType) -> Self {
        Self { graph: Graph::new(), dtype, inputs: Vec::new(), seed: 1 }
    }

    /// Values between -1 and 1, times `scale`.
    fn tensor(&mut self, shape: &[usize], scale: f64) -> Tensor {
        let values: Vec<f64> = (0..shape.iter().product::<usize>())
            .map(|_| {
                self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99_991);
                ((self.seed >> 40) as f64 / (1u64 << 23) as f64 - 1.0) * scale
            })
            .collect();
        Tensor::from_f64(self.dtype, shape, &values).unwrap()
    }

    fn input(&mut self, shape: &[usize]) -> ValueId {
        let tensor = self.tensor(shape, 1.0);
        self.given(tensor)
    }

    fn given(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("input{}", self.inputs.len());
        let value = self.graph.add_input(name, tensor.tensor_type().clone());
        self.inputs.push(tensor);
        value
    }

    fn constant(&mut self, shape: &[usize], scale: f64) -> ValueId {
        let tensor = self.tensor(shape, scale);
        self.graph.add_constant("constant", tensor)
    }

    fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    fn linear(&mut self, x: ValueId, from: usize, to: usize) -> ValueId {
        let weights = self.constant(&[from, to], (3.0 / from as f64).sqrt());
        let product = self.node(MatMul {}, &[x, weights]);
        let bias = self.constant(&[to], 0.1);
        self.node(Binary::new(BinaryFunction::Add), &[product, bias])
    }

    fn heads(&mut self, x: ValueId, permutation: [usize; 4]) -> ValueId {
        let split = self.node(Reshape { shape: vec![1, 24, 2, 16] }, &[x]);
        self.node(Transpose { permutation: permutation.to_vec() }, &[split])
    }

    fn normalized(&mut self, x: ValueId, width: usize) -> ValueId {
        let (scale, shift) = (self.constant(&[width], 1.0), self.constant(&[width], 1.0));
        self.node(LayerNormalization { axis: 2, epsilon: 1e-5 }, &[x, scale, shift])
    }

    /// Compiled code against both references.
    fn check(mut self, output: ValueId) {
        self.graph.add_output("output", output);
        let options = Options::new(Target::host().unwrap());
        computes_in_f32(&prepare(&self.graph, &options).unwrap());
        let compiled = compile_graph(self.graph.clone(), b"case", &options).unwrap();
        let actual = run(&compiled.artifact, &self.inputs, self.graph.tensor_type(output));
        // One unit in the last place, where both round a number that is almost the same.
        let unit = if self.dtype == DataType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
        let exact = hone_passes::extend_precision(&self.graph).unwrap();
        compare(&evaluate(&exact, &self.inputs).unwrap()[0], &actual, [unit, 1e-5]);
        compare(&evaluate(&self.graph, &self.inputs).unwrap()[0], &actual, [unit, 6.0 * unit]);
    }
}

/// No node but conversions and movements of elements has 16-bit floats.
fn computes_in_f32(graph: &Graph) {
    for (_, node) in graph.nodes().iter() {
        let half = |value: &ValueId| {
            matches!(graph.tensor_type(*value).dtype, DataType::F16 | DataType::BF16)
        };
        if node.inputs.iter().flatten().chain(&node.outputs).any(half) {
            let name = hone_graph::Operation::name(&node.operation);
            let moves = ["cast", "gather", "pack", "unpack", "reshape", "transpose"];
            assert!(moves.contains(&name), "{name} has 16-bit floats");
        }
    }
}

fn run(artifact: &[u8], inputs: &[Tensor], output: &TensorType) -> Tensor {
    let mut model =
        hone_runtime::Model::load_memory(artifact.to_vec(), &Default::default()).unwrap();
    let mut bytes = vec![0u8; output.bytes()];
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    model.run(&inputs, &mut [&mut bytes]).unwrap();
    Tensor::from_bytes(output.clone(), bytes).unwrap()
}

/// Errors up to `relative` of an element plus `scaled` of the largest.
fn compare(expected: &Tensor, actual: &Tensor, [relative, scaled]: [f64; 2]) {
    assert_eq!(expected.tensor_type(), actual.tensor_type());
    let (expected, actual) = (expected.to_f64(), actual.to_f64());
    let largest = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    assert!(largest > 0.0, "the answer is zero");
    for (index, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        let error = (expected - actual).abs();
        let allowed = relative * expected.abs() + scaled * largest;
        assert!(error <= allowed, "element {index} is {actual}, not {expected}");
    }
}

const TYPES: [DataType; 2] = [DataType::F16, DataType::BF16];

fn window(pad: usize) -> Window {
    Window {
        strides: vec![1; 2],
        dilations: vec![1; 2],
        pads_begin: vec![pad; 2],
        pads_end: vec![pad; 2],
    }
}

#[test]
fn convolutions() {
    for dtype in TYPES {
        for (groups, kernel) in [(1, 3), (32, 3), (1, 1)] {
            let mut case = Case::new(dtype);
            let x = case.input(&[1, 32, 9, 11]);
            let fan = 32 / groups * kernel * kernel;
            let w = case.constant(&[32, 32 / groups, kernel, kernel], (3.0 / fan as f64).sqrt());
            let bias = case.constant(&[32], 0.1);
            let y = case.node(Convolution { window: window(kernel / 2), groups }, &[x, w, bias]);
            let y = case.node(Unary::new(UnaryFunction::Relu), &[y]);
            case.check(y);
        }
    }
}

#[test]
fn products() {
    for dtype in TYPES {
        let mut case = Case::new(dtype);
        let x = case.input(&[5, 300]);
        let y = case.linear(x, 300, 70);
        case.check(y);
        let mut case = Case::new(dtype);
        let (x, y) = (case.input(&[2, 40, 50]), case.input(&[2, 50, 33]));
        let z = case.node(MatMul {}, &[x, y]);
        case.check(z);
    }
}

/// Weights that memory brings for few rows stay as the model has them; those of many rows are widened when compiling.
#[test]
fn weights_of_few_rows_keep_their_type() {
    let target = Target::host().unwrap();
    for dtype in TYPES {
        // As `f32` they fill no second-level cache of 2 MiB.
        let (from, to) = (704, 808);
        for rows in [1, 3, 4] {
            let mut case = Case::new(dtype);
            let x = case.input(&[rows, from]);
            let hidden = case.linear(x, from, to);
            let hidden = case.node(Unary::new(UnaryFunction::Relu), &[hidden]);
            let y = case.linear(hidden, to, 5);
            let widens = dtype == DataType::BF16 || target.half_conversion;
            let expected = if widens { dtype } else { DataType::F32 };
            assert_eq!(stored(&case.graph, y, from * to), expected, "{rows} rows");
            case.check(y);
        }
        let mut case = Case::new(dtype);
        let x = case.input(&[64, from]);
        let y = case.linear(x, from, to);
        assert_eq!(stored(&case.graph, y, from * to), DataType::F32);
    }
}

/// The type in which the packed weights of so many elements, at least, are stored.
fn stored(graph: &Graph, output: ValueId, elements: usize) -> DataType {
    let mut graph = graph.clone();
    graph.add_output("output", output);
    let prepared = prepare(&graph, &Options::new(Target::host().unwrap())).unwrap();
    let constants = prepared.values().ids().filter_map(|value| prepared.constant(value));
    let used = constants.filter(|constant| constant.tensor_type().elements() >= elements);
    let types: Vec<DataType> = used.map(Tensor::dtype).collect();
    assert_eq!(types.len(), 1, "{types:?}");
    types[0]
}

#[test]
fn an_encoder_layer() {
    for dtype in TYPES {
        let mut case = Case::new(dtype);
        let tokens: Vec<i64> = (0..24).map(|position| position * 7 % 50).collect();
        let tokens = case.given(Tensor::from_elements([1, 24], &tokens).unwrap());
        let table = case.constant(&[50, 32], 1.0);
        let x = case.node(Gather { axis: 0 }, &[table, tokens]);
        let [q, k, v] = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]].map(|permutation| {
            let projected = case.linear(x, 32, 32);
            case.heads(projected, permutation)
        });
        let scores = case.node(MatMul {}, &[q, k]);
        let scale = case.graph.add_constant("scale", Tensor::from_f64(dtype, [], &[0.25]).unwrap());
        let scaled = case.node(Binary::new(BinaryFunction::Multiply), &[scores, scale]);
        let weights = case.node(Softmax { axis: 3, log: false }, &[scaled]);
        let context = case.node(MatMul {}, &[weights, v]);
        let merged = case.node(Transpose { permutation: vec![0, 2, 1, 3] }, &[context]);
        let merged = case.node(Reshape { shape: vec![1, 24, 32] }, &[merged]);
        let attended = case.linear(merged, 32, 32);
        let sum = case.node(Binary::new(BinaryFunction::Add), &[attended, x]);
        let normal = case.normalized(sum, 32);
        let hidden = case.linear(normal, 32, 64);
        let hidden = case.node(Unary::new(UnaryFunction::Erf), &[hidden]);
        let output = case.linear(hidden, 64, 32);
        let sum = case.node(Binary::new(BinaryFunction::Add), &[output, normal]);
        let output = case.normalized(sum, 32);
        case.check(output);
    }
}

#[test]
fn group_normalization_and_pooling() {
    for dtype in TYPES {
        let mut case = Case::new(dtype);
        let x = case.input(&[1, 32, 10, 8]);
        let w = case.constant(&[16, 32, 3, 3], 0.1);
        let y = case.node(Convolution { window: window(1), groups: 1 }, &[x, w]);
        let (scale, shift) = (case.constant(&[16], 1.0), case.constant(&[16], 1.0));
        let normal = GroupNormalization { groups: 4, epsilon: 1e-5 };
        let y = case.node(normal, &[y, scale, shift]);
        let pool = Pool {
            kind: PoolKind::Average,
            kernel: vec![2, 2],
            window: Window { strides: vec![2; 2], ..window(0) },
            count_padding: false,
        };
        let y = case.node(pool, &[y]);
        case.check(y);
    }
}

#[test]
fn softmax_alone() {
    for dtype in TYPES {
        let mut case = Case::new(dtype);
        let x = case.input(&[7, 130]);
        let y = case.node(Softmax { axis: 1, log: false }, &[x]);
        case.check(y);
    }
}

#[test]
fn conversions_inside_the_model() {
    for dtype in TYPES {
        let mut case = Case::new(dtype);
        let x = case.input(&[4, 20]);
        let wide = case.node(Cast { to: DataType::F32 }, &[x]);
        let normal = case.node(Softmax { axis: 1, log: true }, &[wide]);
        let half = case.node(Cast { to: dtype }, &[normal]);
        let sum = case.node(Binary::new(BinaryFunction::Add), &[half, x]);
        case.check(sum);
    }
}

#[test]
fn what_is_given_is_returned() {
    for dtype in TYPES {
        let mut case = Case::new(dtype);
        let x = case.input(&[3, 5]);
        case.graph.add_output("same", x);
        let extended = hone_passes::extend_precision(&case.graph).unwrap();
        assert_eq!(extended.nodes().len(), 0);
        assert_eq!(evaluate(&extended, &case.inputs).unwrap(), case.inputs);
    }
}
