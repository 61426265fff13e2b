//! Random graphs around what passes look for: what a pass leaves computes what the graph did. Extents are odd, numbers
//! of channels fill no blocks, and every test says how often the pass found something, so that none passes by finding
//! nothing.
#![allow(clippy::unwrap_used)]

mod attention;
mod convolutions;
mod independence;
mod quantized;
mod requantized;

use hone_graph::ValueId;
use hone_ops::{Graph, Op, evaluate};
use hone_passes::PassError;
use hone_types::{DataType, Random, Tensor, TensorType};

/// A graph under construction, and where its random choices come from.
struct Net {
    graph: Graph,
    random: Random,
}

impl Net {
    fn new(seed: u64) -> Self {
        Self { graph: Graph::new(), random: Random::new(seed) }
    }

    /// A number from one to another, both included.
    fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.random.below(most - least + 1)
    }

    fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        *self.random.pick(things).unwrap()
    }

    /// Whether something that comes about so often of a hundred times does.
    fn chance(&mut self, percent: usize) -> bool {
        self.random.below(100) < percent
    }

    fn input(&mut self, dtype: DataType, shape: &[usize]) -> ValueId {
        let name = format!("x{}", self.graph.inputs().len());
        self.graph.add_input(name, TensorType::new(dtype, shape))
    }

    fn constant(&mut self, dtype: DataType, shape: &[usize], values: &[f64]) -> ValueId {
        let tensor = Tensor::from_f64(dtype, shape, values).unwrap();
        self.graph.add_constant("constant", tensor)
    }

    /// A constant of whole numbers between two bounds, both included.
    fn whole(&mut self, dtype: DataType, shape: &[usize], (least, most): (i64, i64)) -> ValueId {
        let count = shape.iter().product::<usize>();
        let span = (most - least) as usize;
        let values: Vec<f64> =
            (0..count).map(|_| (least + self.between(0, span) as i64) as f64).collect();
        self.constant(dtype, shape, &values)
    }

    fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    fn shape(&self, value: ValueId) -> Vec<usize> {
        self.graph.tensor_type(value).shape.clone()
    }

    /// What a pass leaves of the graph, after it was compared on inputs of whole numbers.
    fn check(
        mut self,
        output: ValueId,
        seed: u64,
        pass: impl Fn(&Graph) -> Result<Graph, PassError>,
    ) -> Graph {
        self.graph.add_output("y", output);
        self.graph.verify().unwrap();
        let after = pass(&self.graph).unwrap();
        after.verify().unwrap();
        let ports: Vec<TensorType> = self
            .graph
            .inputs()
            .iter()
            .map(|port| self.graph.tensor_type(port.value).clone())
            .collect();
        let inputs: Vec<Tensor> =
            ports.iter().map(|entry| whole_numbers(&mut self.random, entry)).collect();
        let of = |graph: &Graph| evaluate(graph, &inputs).unwrap().remove(0);
        let (expected, actual) = (of(&self.graph), of(&after));
        assert_eq!(expected.tensor_type(), actual.tensor_type(), "seed {seed}");
        let (expected, actual) = (expected.to_f64(), actual.to_f64());
        let finite = expected.iter().filter(|value| value.is_finite());
        let largest = finite.fold(1e-3f64, |most, value| most.max(value.abs()));
        for (index, (old, new)) in expected.iter().zip(&actual).enumerate() {
            let same = old == new || (old.is_nan() && new.is_nan());
            let near = same || (old - new).abs() <= 1e-5 * largest;
            assert!(near, "seed {seed}: element {index} was {old} and is {new}");
        }
        after
    }
}

/// Any byte, or small numbers.
fn whole_numbers(random: &mut Random, entry: &TensorType) -> Tensor {
    let number = |random: &mut Random| match entry.dtype {
        DataType::U8 => random.below(256) as f64,
        _ => random.below(7) as f64 - 3.0,
    };
    let values: Vec<f64> = (0..entry.elements()).map(|_| number(random)).collect();
    Tensor::from_f64(entry.dtype, entry.shape.clone(), &values).unwrap()
}
