//! Channels that do not fill their blocks: the filler lanes stay finite, whatever functions lie between two
//! convolutions, so that a model whose reference results are finite has finite results.
#![allow(clippy::unwrap_used)]

use hone_driver::{
    DataType, Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate, prepare,
};
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Convolution, InstanceNormalization, Op, Reduce, ReduceFunction, Unary,
    UnaryFunction, Window,
};

/// A convolution whose results lie near ten, where every function below has finite values. Its filler is
/// zero, where they have none.
struct Case {
    graph: Graph,
    channels: usize,
    x: ValueId,
}

fn numbers(shape: &[usize], scale: f64, offset: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let number = |index: usize| ((index * 37 + 11) % 101) as f64 / 101.0 - 0.5;
    let values: Vec<f64> = (0..count).map(|index| number(index) * scale + offset).collect();
    Tensor::from_f64(DataType::F32, shape, &values).unwrap()
}

impl Case {
    fn new(channels: usize) -> Self {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, [1, 4, 5, 6]));
        Self { graph, channels, x }
    }

    fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        self.graph.add_node("node", operation.into(), &inputs).unwrap()[0]
    }

    fn convolution(&mut self, x: ValueId, outputs: usize, bias: f64) -> ValueId {
        let inputs = self.graph.tensor_type(x).shape[1];
        let scale = 1.0 / inputs as f64;
        let w = self.graph.add_constant("w", numbers(&[outputs, inputs, 1, 1], scale, 0.0));
        let b = self.graph.add_constant("b", numbers(&[outputs], 0.1, bias));
        self.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w, b])
    }

    /// What lies near ten.
    fn ten(&mut self) -> ValueId {
        self.convolution(self.x, self.channels, 10.0)
    }

    fn unary(&mut self, function: UnaryFunction, x: ValueId) -> ValueId {
        self.node(Unary::new(function), &[x])
    }

    fn binary(&mut self, function: BinaryFunction, a: ValueId, b: ValueId) -> ValueId {
        self.node(Binary::new(function), &[a, b])
    }

    fn with_number(&mut self, function: BinaryFunction, a: ValueId, number: f64) -> ValueId {
        let number = Tensor::from_f64(DataType::F32, [1], &[number]).unwrap();
        let number = self.graph.add_constant("number", number);
        self.binary(function, a, number)
    }
}

/// Compares results of a convolution of `between`: of the graph after all passes, for several numbers of
/// channels, and of the compiled code for one.
fn check(between: impl Fn(&mut Case) -> ValueId) {
    for channels in [3, 5, 16, 17] {
        let mut case = Case::new(channels);
        let value = between(&mut case);
        let y = case.convolution(value, 7, 0.0);
        case.graph.add_output("y", y);
        let options = Options::new(Target::host().unwrap());
        let x = numbers(&[1, 4, 5, 6], 2.0, 0.0);
        let expected = evaluate(&case.graph, std::slice::from_ref(&x)).unwrap().remove(0);
        assert!(expected.to_f64().iter().all(|value| value.is_finite()), "the model is not finite");
        let prepared = prepare(&case.graph, &options).unwrap();
        let prepared = evaluate(&prepared, std::slice::from_ref(&x)).unwrap().remove(0);
        compare(&expected, &prepared, channels);
        if channels == 5 {
            let compiled = compile_graph(case.graph, b"filler", &options).unwrap();
            compare(&expected, &run(&compiled.artifact, &x, expected.tensor_type()), channels);
        }
    }
}

fn run(artifact: &[u8], x: &Tensor, output: &TensorType) -> Tensor {
    let options = hone_runtime::Options { threads: 1, ..Default::default() };
    let mut model = hone_runtime::Model::load_memory(artifact.to_vec(), &options).unwrap();
    let mut bytes = vec![0; output.bytes()];
    model.run(&[x.bytes()], &mut [&mut bytes]).unwrap();
    Tensor::from_bytes(output.clone(), bytes).unwrap()
}

fn compare(expected: &Tensor, actual: &Tensor, channels: usize) {
    let expected = expected.to_f64();
    let largest = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    for (want, got) in expected.iter().zip(actual.to_f64()) {
        let close = (want - got).abs() <= 1e-3 * largest;
        assert!(close, "{got} instead of {want}, {channels} channels");
    }
}

#[test]
fn a_negative_power() {
    check(|case| {
        let ten = case.ten();
        let ten = case.unary(UnaryFunction::Abs, ten);
        case.with_number(BinaryFunction::Power, ten, -0.5)
    });
}

#[test]
fn a_power_whose_exponents_are_computed() {
    check(|case| {
        let (base, exponent) = (case.ten(), case.ten());
        let exponent = case.with_number(BinaryFunction::Subtract, exponent, 9.0);
        case.binary(BinaryFunction::Power, base, exponent)
    });
}

#[test]
fn a_root_of_a_difference() {
    check(|case| {
        let ten = case.ten();
        let five = case.with_number(BinaryFunction::Subtract, ten, 5.0);
        case.unary(UnaryFunction::Sqrt, five)
    });
}

#[test]
fn functions_that_have_no_value_at_zero() {
    for function in [UnaryFunction::Log, UnaryFunction::Reciprocal, UnaryFunction::Acosh] {
        check(|case| {
            let ten = case.ten();
            case.unary(function, ten)
        });
    }
}

#[test]
fn functions_of_a_short_interval() {
    use UnaryFunction as F;
    for function in [F::Asin, F::Acos, F::Atanh, F::Tan] {
        check(|case| {
            let ten = case.ten();
            let near_zero = case.with_number(BinaryFunction::Subtract, ten, 10.0);
            let small = case.with_number(BinaryFunction::Divide, near_zero, 8.0);
            case.unary(function, small)
        });
    }
}

#[test]
fn exponentials_that_overflow_at_zero() {
    for function in [UnaryFunction::Exp, UnaryFunction::Cosh, UnaryFunction::Sinh] {
        check(|case| {
            let ten = case.ten();
            let falling = case.with_number(BinaryFunction::Multiply, ten, -20.0);
            let small = case.with_number(BinaryFunction::Add, falling, 200.0);
            case.unary(function, small)
        });
    }
}

#[test]
fn reductions_that_take_logarithms() {
    for function in [ReduceFunction::LogSum, ReduceFunction::LogSumExp, ReduceFunction::L2] {
        check(|case| {
            let ten = case.ten();
            let reduce = Reduce { function, axes: vec![2, 3], keep_axes: true };
            let reduced = case.node(reduce, &[ten]);
            case.binary(BinaryFunction::Add, ten, reduced)
        });
    }
}

#[test]
fn divisions_by_computed_values() {
    use BinaryFunction as F;
    for function in [F::Divide, F::Modulo, F::Remainder] {
        check(|case| {
            let (dividend, divisor) = (case.ten(), case.ten());
            let divisor = case.with_number(F::Multiply, divisor, 3.0);
            case.binary(function, dividend, divisor)
        });
    }
}

#[test]
fn instance_normalization_without_epsilon() {
    for epsilon in [0.0, 1e-5] {
        check(|case| {
            let ten = case.ten();
            let channels = case.channels;
            let scale = case.graph.add_constant("scale", numbers(&[channels], 1.0, 1.0));
            let bias = case.graph.add_constant("bias", numbers(&[channels], 1.0, 0.0));
            case.node(InstanceNormalization { epsilon }, &[ten, scale, bias])
        });
    }
}

#[test]
fn products_that_grow_beyond_all_numbers() {
    check(|case| {
        let ten = case.ten();
        // The filler is -10, and its sixth square 1e64.
        let mut value = case.with_number(BinaryFunction::Subtract, ten, 10.0);
        let other = case.with_number(BinaryFunction::Subtract, ten, 10.0);
        for _ in 0..6 {
            value = case.binary(BinaryFunction::Multiply, value, value);
        }
        case.binary(BinaryFunction::Add, value, other)
    });
}
