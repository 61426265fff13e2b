//! A graph of a few nodes in `f64`, whose derivatives are compared with central differences.

use hone_gradient::gradients;
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Graph, Op, Reduce, ReduceFunction, Unary, UnaryFunction, evaluate,
};
use hone_types::{DataType, Random, Tensor, TensorType};

/// Half the distance of the two points that a difference is taken between.
const STEP: f64 = 1e-5;
/// Largest error of a derivative, as a share of the largest one (or of one, where all are smaller). A central difference
/// errs by the square of the step, some 1e-10, and by rounding over the step, some 1e-11.
const BOUND: f64 = 1e-7;

/// A graph, and the values of its inputs.
pub struct Case {
    pub graph: Graph,
    values: Vec<Tensor>,
    random: Random,
}

impl Case {
    pub fn new(seed: u64) -> Self {
        Self { graph: Graph::new(), values: Vec::new(), random: Random::new(seed) }
    }

    /// An input of numbers between two bounds.
    pub fn input(&mut self, shape: &[usize], from: f64, to: f64) -> ValueId {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> =
            (0..count).map(|_| from + (to - from) * self.random.unit()).collect();
        self.input_of(shape, &values)
    }

    /// An input of different numbers, at least 0.05 from one another and from zero: far from where an extreme changes.
    pub fn distinct(&mut self, shape: &[usize]) -> ValueId {
        let count = shape.iter().product::<usize>();
        let mut values: Vec<f64> = (0..count)
            .map(|place| 0.05 * (place as f64 - (count / 2) as f64 + 0.5) + 0.03)
            .collect();
        values.iter_mut().filter(|value| value.abs() < 0.05).for_each(|value| *value *= 3.0);
        for place in (1..count).rev() {
            values.swap(place, self.random.below(place + 1));
        }
        self.input_of(shape, &values)
    }

    pub fn input_of(&mut self, shape: &[usize], values: &[f64]) -> ValueId {
        self.values.push(Tensor::from_f64(DataType::F64, shape, values).unwrap());
        let name = format!("input{}", self.graph.inputs().len());
        self.graph.add_input(name, TensorType::new(DataType::F64, shape))
    }

    /// Constant numbers.
    pub fn constant(&mut self, shape: &[usize], values: &[f64]) -> ValueId {
        self.graph.add_constant("", Tensor::from_f64(DataType::F64, shape, values).unwrap())
    }

    /// Constant indices.
    pub fn indices(&mut self, shape: &[usize], values: &[i64]) -> ValueId {
        self.graph.add_constant("", Tensor::from_elements(shape, values).unwrap())
    }

    /// All outputs of a node.
    pub fn outputs(
        &mut self,
        operation: impl Into<Op>,
        inputs: &[Option<ValueId>],
    ) -> Vec<ValueId> {
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), inputs).unwrap()
    }

    pub fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        self.outputs(operation, &inputs)[0]
    }

    pub fn unary(&mut self, function: UnaryFunction, x: ValueId) -> ValueId {
        self.node(Unary { function }, &[x])
    }

    pub fn binary(&mut self, function: BinaryFunction, a: ValueId, b: ValueId) -> ValueId {
        self.node(Binary { function }, &[a, b])
    }

    /// A number made of a value: the sum of its elements, each with a weight of its own and to the second power as well, so
    /// that adjoints are no constants.
    pub fn number(&mut self, y: ValueId) -> ValueId {
        let shape = self.graph.tensor_type(y).shape.clone();
        let count = shape.iter().product::<usize>();
        let weights: Vec<f64> = (0..count).map(|_| 0.5 + self.random.unit()).collect();
        let weights = self.constant(&shape, &weights);
        let weighted = self.binary(BinaryFunction::Multiply, y, weights);
        let square = self.binary(BinaryFunction::Multiply, weighted, y);
        let sum = self.binary(BinaryFunction::Add, weighted, square);
        let axes = (0..shape.len()).collect();
        self.node(Reduce { function: ReduceFunction::Sum, axes, keep_axes: false }, &[sum])
    }

    /// Derivatives of a number made of `y`, by every input, are those of central differences.
    #[track_caller]
    pub fn check(mut self, y: ValueId) {
        let number = self.number(y);
        self.check_number(number);
    }

    /// As [`Case::check`], and so are the derivatives of a number made of the derivatives.
    #[track_caller]
    pub fn check_twice(mut self, y: ValueId) {
        let number = self.number(y);
        self.check_number(number);
        let inputs: Vec<ValueId> = self.graph.inputs().iter().map(|port| port.value).collect();
        let first = gradients(&mut self.graph, number, &inputs, &[]).unwrap();
        let numbers: Vec<ValueId> = first.into_iter().map(|own| self.number(own)).collect();
        let sum = numbers.into_iter().reduce(|a, b| self.binary(BinaryFunction::Add, a, b));
        self.check_number(sum.unwrap());
    }

    #[track_caller]
    fn check_number(&self, number: ValueId) {
        let inputs: Vec<ValueId> = self.graph.inputs().iter().map(|port| port.value).collect();
        let mut graph = self.graph.clone();
        let found = gradients(&mut graph, number, &inputs, &[]).unwrap();
        graph.add_output("number", number);
        for (place, gradient) in found.iter().enumerate() {
            assert_eq!(graph.tensor_type(*gradient), self.values[place].tensor_type());
            graph.add_output(format!("gradient{place}"), *gradient);
        }
        graph.verify().unwrap();
        let found = evaluate(&graph, &self.values).unwrap();
        for (place, found) in found[1..].iter().enumerate() {
            let found = found.to_f64();
            let expected = self.differences(number, place);
            let largest = expected.iter().fold(1.0f64, |most, own| most.max(own.abs()));
            for (element, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    (found - expected).abs() <= BOUND * largest,
                    "input {place}, element {element}: {found} instead of {expected}"
                );
            }
        }
    }

    /// The derivatives of the sum of `y`'s elements by every input.
    pub fn values_of(mut self, y: ValueId) -> Vec<Vec<f64>> {
        let inputs: Vec<ValueId> = self.graph.inputs().iter().map(|port| port.value).collect();
        let found = gradients(&mut self.graph, y, &inputs, &[]).unwrap();
        for (place, gradient) in found.iter().enumerate() {
            self.graph.add_output(format!("gradient{place}"), *gradient);
        }
        let found = evaluate(&self.graph, &self.values).unwrap();
        found.iter().map(Tensor::to_f64).collect()
    }

    /// Central differences of a number by each element of an input.
    fn differences(&self, number: ValueId, place: usize) -> Vec<f64> {
        let mut graph = self.graph.clone();
        graph.add_output("number", number);
        let values = self.values[place].to_f64();
        let at = |element: usize, step: f64| {
            let mut moved = values.clone();
            moved[element] += step;
            let mut inputs = self.values.clone();
            let shape = inputs[place].shape().to_vec();
            inputs[place] = Tensor::from_f64(DataType::F64, shape, &moved).unwrap();
            evaluate(&graph, &inputs).unwrap()[0].to_f64()[0]
        };
        let difference = |element| (at(element, STEP) - at(element, -STEP)) / (2.0 * STEP);
        (0..values.len()).map(difference).collect()
    }
}
