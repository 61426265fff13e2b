//! A network with parameters, and checking the derivatives of a number that it computes.

use hone_driver::{Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate};
use hone_gradient::gradients;
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, MatMul, Op, Reduce, ReduceFunction, Softmax, Unary, UnaryFunction,
};
use hone_types::{DataType, Random};

/// Largest error of an element, as a share of the largest of its output.
const BOUND: f64 = 1e-4;

/// Parameters are inputs of the graph, so that nothing of them is folded.
pub struct Network {
    graph: Graph,
    inputs: Vec<Tensor>,
    parameters: Vec<ValueId>,
    random: Random,
}

impl Network {
    pub fn new() -> Self {
        let random = Random::new(17);
        Self { graph: Graph::new(), inputs: Vec::new(), parameters: Vec::new(), random }
    }

    fn seeded(&mut self, shape: &[usize], size: f64, middle: f64) -> Tensor {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> =
            (0..count).map(|_| middle + size * self.random.signed_unit()).collect();
        Tensor::from_f64(DataType::F32, shape, &values).unwrap()
    }

    pub fn input(&mut self, shape: &[usize]) -> ValueId {
        let values = self.seeded(shape, 1.0, 0.0);
        self.inputs.push(values);
        let name = format!("input{}", self.graph.inputs().len());
        self.graph.add_input(name, TensorType::new(DataType::F32, shape))
    }

    pub fn parameter(&mut self, shape: &[usize], size: f64) -> ValueId {
        let values = self.seeded(shape, size, 0.0);
        let own = self.input(shape);
        self.inputs.pop();
        self.inputs.push(values);
        self.parameters.push(own);
        own
    }

    pub fn constant(&mut self, shape: &[usize], size: f64, middle: f64) -> ValueId {
        let values = self.seeded(shape, size, middle);
        self.graph.add_constant("constant", values)
    }

    pub fn number(&mut self, value: f64) -> ValueId {
        let number = Tensor::from_f64(DataType::F32, [], &[value]).unwrap();
        self.graph.add_constant("number", number)
    }

    /// An input of indices.
    pub fn indices(&mut self, values: &[i64]) -> ValueId {
        self.inputs.push(Tensor::from_elements([values.len()], values).unwrap());
        let name = format!("input{}", self.graph.inputs().len());
        self.graph.add_input(name, TensorType::new(DataType::I64, [values.len()]))
    }

    pub fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    pub fn unary(&mut self, function: UnaryFunction, x: ValueId) -> ValueId {
        self.node(Unary { function }, &[x])
    }

    pub fn binary(&mut self, function: BinaryFunction, a: ValueId, b: ValueId) -> ValueId {
        self.node(Binary { function }, &[a, b])
    }

    fn reduce(&mut self, function: ReduceFunction, x: ValueId) -> ValueId {
        let axes = (0..self.graph.tensor_type(x).rank()).collect();
        self.node(Reduce { function, axes, keep_axes: false }, &[x])
    }

    pub fn mean(&mut self, x: ValueId) -> ValueId {
        self.reduce(ReduceFunction::Mean, x)
    }

    /// `x`, `[rows, from]`, times weights plus a bias, `[rows, to]`.
    pub fn linear(&mut self, x: ValueId, from: usize, to: usize) -> ValueId {
        let w = self.parameter(&[from, to], 1.0 / (from as f64).sqrt());
        let bias = self.parameter(&[to], 0.1);
        let product = self.node(MatMul {}, &[x, w]);
        self.binary(BinaryFunction::Add, product, bias)
    }

    /// The mean of `-wanted * log(softmax(scores))`, along rows.
    pub fn cross_entropy(&mut self, scores: ValueId, wanted: ValueId) -> ValueId {
        let logarithm = self.node(Softmax { axis: 1, log: true }, &[scores]);
        let product = self.binary(BinaryFunction::Multiply, logarithm, wanted);
        let mean = self.mean(product);
        self.unary(UnaryFunction::Negate, mean)
    }

    /// The derivative of the sum of `y` by `x`.
    pub fn derivative(&mut self, y: ValueId, x: ValueId) -> ValueId {
        gradients(&mut self.graph, y, &[x], &[]).unwrap()[0]
    }

    /// Compiled code computes `loss` and its derivatives by all parameters as the reference does, and the derivatives say
    /// how the loss changes along themselves.
    pub fn check(mut self, loss: ValueId) {
        let found = gradients(&mut self.graph, loss, &self.parameters, &[]).unwrap();
        self.graph.add_output("loss", loss);
        for (place, value) in found.iter().enumerate() {
            self.graph.add_output(format!("gradient{place}"), *value);
        }
        self.graph.verify().unwrap();
        let expected = evaluate(&self.graph, &self.inputs).unwrap();
        self.check_descent(&expected);
        let options = Options::new(Target::host().unwrap());
        let compiled = compile_graph(self.graph.clone(), b"network", &options).unwrap();
        let actual = run(&compiled.artifact, &self.inputs);
        for (place, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
            assert_eq!(expected.tensor_type(), actual.tensor_type());
            let (expected, actual) = (expected.to_f64(), actual.to_f64());
            let largest = expected.iter().fold(1e-6f64, |most, own| most.max(own.abs()));
            for (element, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
                let error = (expected - actual).abs();
                assert!(
                    error <= BOUND * largest,
                    "output {place}, element {element}: {actual} instead of {expected}"
                );
            }
        }
    }

    /// A small step along the derivatives changes the loss by the step times the sum of their squares.
    fn check_descent(&self, outputs: &[Tensor]) {
        let squares: f64 = outputs[1..].iter().flat_map(Tensor::to_f64).map(|own| own * own).sum();
        assert!(squares > 0.0);
        let step = 1e-3 / squares.sqrt();
        let moved = |sign: f64| {
            let mut inputs = self.inputs.clone();
            for (parameter, gradient) in self.parameters.iter().zip(&outputs[1..]) {
                let ports = self.graph.inputs();
                let place = ports.iter().position(|port| port.value == *parameter).unwrap();
                let pairs = inputs[place].to_f64().into_iter().zip(gradient.to_f64());
                let values: Vec<f64> =
                    pairs.map(|(own, slope)| own + sign * step * slope).collect();
                let shape = inputs[place].shape().to_vec();
                inputs[place] = Tensor::from_f64(DataType::F32, shape, &values).unwrap();
            }
            evaluate(&self.graph, &inputs).unwrap()[0].to_f64()[0]
        };
        let found = (moved(1.0) - moved(-1.0)) / (2.0 * step);
        assert!((found - squares).abs() <= 0.02 * squares, "{found} instead of {squares}");
    }
}

fn run(artifact: &[u8], inputs: &[Tensor]) -> Vec<Tensor> {
    let options = hone_runtime::Options { threads: 2, ..Default::default() };
    let mut model = hone_runtime::Model::load_memory(artifact.to_vec(), &options).unwrap();
    let infos = model.outputs().to_vec();
    let mut outputs: Vec<Vec<u8>> = infos.iter().map(|own| vec![0; own.bytes as usize]).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    model.run(&inputs, &mut places).unwrap();
    let shape = |own: &[u64]| own.iter().map(|extent| *extent as usize).collect::<Vec<_>>();
    let results = infos.iter().zip(outputs);
    results
        .map(|(info, bytes)| {
            let tensor_type = TensorType::new(DataType::F32, shape(&info.shape));
            Tensor::from_bytes(tensor_type, bytes).unwrap()
        })
        .collect()
}
