//! Sizes that a run computes: kernels leave out what lies behind them, and answers are those of the reference at every size,
//! whatever an earlier run left in memory.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::run;
use hone_driver::{
    Graph, Options, StepMap, Target, Tensor, TensorType, compile_graph, evaluate, map_steps,
};
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction, Concat, Convolution, MatMul, Op, Reduce, ReduceFunction, Reshape,
    Select, Softmax, Transpose, Unary, UnaryFunction, Window,
};
use hone_runtime::{Model, Options as RunOptions};
use hone_types::{DataType, Random};

const ROOM: usize = 48;
const CHANNELS: usize = 8;

/// A model under construction: values are `[1, CHANNELS, ROOM]`, of which two counts say how much is there.
struct Builder {
    graph: Graph,
    random: Random,
    counts: [ValueId; 2],
}

impl Builder {
    /// The model's inputs are `x` and what is summed up to the first count; the second is twice that, or as much as there
    /// is room for.
    fn new(seed: u64) -> (Self, ValueId) {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, [1, CHANNELS, ROOM]));
        let ones = graph.add_input("ones", TensorType::new(DataType::I64, [ROOM]));
        let mut b = Self { graph, random: Random::new(seed), counts: [x; 2] };
        let sum = Reduce { function: ReduceFunction::Sum, axes: vec![0], keep_axes: false };
        let count = b.add(sum, &[ones]);
        let [two, room] =
            [2, ROOM as i64].map(|number| b.graph.add_constant("number", Tensor::scalar(number)));
        let twice = b.add(Binary::new(BinaryFunction::Multiply), &[count, two]);
        let twice = b.add(Binary::new(BinaryFunction::Minimum), &[twice, room]);
        b.counts = [count, twice];
        (b, x)
    }

    fn add(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let operation = operation.into();
        let name = format!("{}_{}", operation.name(), self.graph.nodes().len());
        self.graph.add_node(name, operation, &inputs).unwrap()[0]
    }

    fn weights(&mut self, shape: &[usize]) -> ValueId {
        let values = self.random.normals(shape.iter().product(), 0.0, 0.3);
        self.graph.add_constant("weights", Tensor::from_elements(shape, &values).unwrap())
    }

    /// The value up to one of the counts, `behind` elsewhere.
    fn masked(&mut self, x: ValueId, count: usize, behind: f32) -> ValueId {
        let places: Vec<i64> = (0..ROOM as i64).collect();
        let places = Tensor::from_elements([ROOM], &places).unwrap();
        let places = self.graph.add_constant("places", places);
        let less = Binary::new(BinaryFunction::Less);
        let there = self.add(less, &[places, self.counts[count]]);
        let behind = self.graph.add_constant("behind", Tensor::scalar(behind));
        self.add(Select {}, &[there, x, behind])
    }

    fn convolution(&mut self, x: ValueId, dilation: usize) -> ValueId {
        let weights = self.weights(&[CHANNELS, CHANNELS, 3]);
        let bias = self.weights(&[CHANNELS]);
        let window = Window {
            strides: vec![1],
            dilations: vec![dilation],
            pads_begin: vec![dilation],
            pads_end: vec![dilation],
        };
        self.add(Convolution { window, groups: 1 }, &[x, weights, bias])
    }

    /// Every position is a mean of those that are there, weighted by how alike they are.
    fn attention(&mut self, x: ValueId, count: usize) -> ValueId {
        let turned = self.add(Transpose { permutation: vec![0, 2, 1] }, &[x]);
        let scores = self.add(MatMul {}, &[turned, x]);
        let scores = self.masked(scores, count, f32::NEG_INFINITY);
        let weights = self.add(Softmax { axis: 2, log: false }, &[scores]);
        let seen = self.add(MatMul {}, &[weights, turned]);
        self.add(Transpose { permutation: vec![0, 2, 1] }, &[seen])
    }

    /// The sum over the positions that are there, added to all.
    fn summed(&mut self, x: ValueId, count: usize) -> ValueId {
        let there = self.masked(x, count, 0.0);
        let sum = Reduce { function: ReduceFunction::Sum, axes: vec![2], keep_axes: false };
        let sum = self.add(sum, &[there]);
        let tenth = self.graph.add_constant("tenth", Tensor::scalar(0.1f32));
        let sum = self.add(Binary::new(BinaryFunction::Multiply), &[sum, tenth]);
        let sum = self.add(Reshape { shape: vec![1, CHANNELS, 1] }, &[sum]);
        self.add(Binary::new(BinaryFunction::Add), &[x, sum])
    }

    /// Applies one operation to the last of the values, by chance.
    fn step(&mut self, values: &mut Vec<ValueId>) {
        let (last, count) = (*values.last().unwrap(), self.random.below(2));
        let next = match self.random.below(8) {
            0 | 1 => {
                let dilation = 1 + self.random.below(3);
                let there = self.masked(last, count, 0.0);
                self.convolution(there, dilation)
            }
            2 => self.convolution(last, 1),
            3 => self.masked(last, count, 0.5),
            4 => self.attention(last, count),
            5 => self.summed(last, count),
            6 => {
                let other = values[self.random.below(values.len())];
                self.add(Binary::new(BinaryFunction::Add), &[last, other])
            }
            _ => self.add(Unary::new(UnaryFunction::Tanh), &[last]),
        };
        values.push(next);
    }

    /// Gives the values masked by each of the counts, and the last one whole where `whole` says so.
    fn finish(mut self, last: ValueId, whole: bool) -> Graph {
        for (count, name) in ["first", "second"].into_iter().enumerate() {
            let there = self.masked(last, count, 0.0);
            self.graph.add_output(name, there);
        }
        if whole {
            self.graph.add_output("whole", last);
        }
        self.graph.verify().unwrap();
        self.graph
    }
}

/// A chain of convolutions and attention with a mask before each.
fn chain() -> Graph {
    let (mut b, x) = Builder::new(3);
    let mut y = x;
    for dilation in [1, 3] {
        let there = b.masked(y, 0, 0.0);
        y = b.convolution(there, dilation);
        y = b.add(Unary::new(UnaryFunction::Tanh), &[y]);
    }
    y = b.attention(y, 0);
    let there = b.masked(y, 0, 0.0);
    b.graph.add_output("y", there);
    b.graph.verify().unwrap();
    b.graph
}

fn by_chance(seed: u64) -> Graph {
    let (mut b, x) = Builder::new(seed);
    let mut values = vec![x];
    (0..7).for_each(|_| b.step(&mut values));
    let last = *values.last().unwrap();
    b.finish(last, seed.is_multiple_of(3))
}

fn inputs(count: usize, seed: u64, is_nan: bool) -> [Tensor; 2] {
    let values = match is_nan {
        true => vec![f32::NAN; CHANNELS * ROOM],
        false => Random::new(seed).normals(CHANNELS * ROOM, 0.0, 1.0),
    };
    let ones: Vec<i64> = (0..ROOM).map(|place| i64::from(place < count)).collect();
    [
        Tensor::from_elements([1, CHANNELS, ROOM], &values).unwrap(),
        Tensor::from_elements([ROOM], &ones).unwrap(),
    ]
}

/// Compiles a model, compares its answers at several counts with the reference's, and gives what its steps hold.
fn checked(graph: &Graph, name: &str) -> StepMap {
    let options = Options::new(Target::host().unwrap());
    let compiled = compile_graph(graph.clone(), b"counted", &options).unwrap();
    let folder = std::env::temp_dir().join(format!("hone-counted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.hone"));
    std::fs::write(&path, &compiled.artifact).unwrap();
    for threads in [1, 3] {
        let options = RunOptions { threads, ..RunOptions::default() };
        let mut model = Model::load(&path, &options).unwrap();
        for count in [48, 0, 1, 47, 17, 24, 5] {
            // What it leaves in memory is no number.
            run(&mut model, &inputs(ROOM, 1, true));
            let given = inputs(count, count as u64, false);
            let want = evaluate(graph, &given).unwrap();
            for (place, (got, want)) in run(&mut model, &given).iter().zip(&want).enumerate() {
                let want = want.elements::<f32>().unwrap();
                let finite = want.iter().filter(|value| value.is_finite());
                let most = finite.fold(0f32, |most, value| most.max(value.abs()));
                for (element, (got, want)) in got.iter().zip(&want).enumerate() {
                    let near = (got - want).abs() <= 1e-4 * most.max(1e-6);
                    assert!(
                        near || got.is_nan() && want.is_nan(),
                        "{name}, output {place}, element {element}, {count} there, on {threads} threads: \
                         {got} in place of {want}"
                    );
                }
            }
        }
    }
    std::fs::remove_file(&path).unwrap();
    let reader = hone_artifact::Reader::new(&compiled.artifact).unwrap();
    map_steps(graph, None, &options, &reader.manifest().variants[0].steps).unwrap()
}

#[test]
fn kernels_between_masks_stop_at_the_count() {
    let map = checked(&chain(), "chain");
    let is_convolution =
        |node: &hone_graph::NodeId| map.graph.nodes()[*node].name.starts_with("convolution");
    let stops = map.calls.iter().filter(|call| !call.needed.is_empty());
    let convolutions = stops.filter(|call| call.nodes.iter().any(is_convolution)).count();
    assert!(convolutions >= 2, "{convolutions} of the convolutions stop at the count");
}

/// Products of rows, an element-wise function between them, of which the result is masked where it leaves the graph.
fn products() -> Graph {
    let (mut b, x) = Builder::new(4);
    let rows = b.add(Transpose { permutation: vec![0, 2, 1] }, &[x]);
    let mut y = b.add(Reshape { shape: vec![ROOM, CHANNELS] }, &[rows]);
    let places: Vec<i64> = (0..ROOM as i64).collect();
    let places = b.graph.add_constant("places", Tensor::from_elements([ROOM, 1], &places).unwrap());
    for (from, to) in [(CHANNELS, 32), (32, 24)] {
        let weights = b.weights(&[from, to]);
        let bias = b.weights(&[to]);
        y = b.add(MatMul {}, &[y, weights]);
        y = b.add(Binary::new(BinaryFunction::Add), &[y, bias]);
        y = b.add(Unary::new(UnaryFunction::Tanh), &[y]);
    }
    let there = b.add(Binary::new(BinaryFunction::Less), &[places, b.counts[0]]);
    let zero = b.graph.add_constant("zero", Tensor::scalar(0.0f32));
    let there = b.add(Select {}, &[there, y, zero]);
    b.graph.add_output("y", there);
    b.graph.verify().unwrap();
    b.graph
}

#[test]
fn products_whose_masked_result_leaves_the_graph_stop_at_the_count() {
    let map = checked(&products(), "products");
    let is_product = |node: &hone_graph::NodeId| {
        let name = &map.graph.nodes()[*node].name;
        name.starts_with("matmul") || name.starts_with("packed")
    };
    let stops = map.calls.iter().filter(|call| !call.needed.is_empty());
    let products = stops.filter(|call| call.nodes.iter().any(is_product)).count();
    assert_eq!(products, 2, "products that stop at the count");
}

/// Convolutions whose channels are joined, with a mask before each that reads them.
fn joined() -> Graph {
    let (mut b, x) = Builder::new(5);
    let there = b.masked(x, 0, 0.0);
    let parts: Vec<ValueId> = (1..3).map(|dilation| b.convolution(there, dilation)).collect();
    let all = b.add(Concat { axis: 1 }, &parts);
    let there = b.masked(all, 0, 0.0);
    let weights = b.weights(&[CHANNELS, 2 * CHANNELS, 3]);
    let bias = b.weights(&[CHANNELS]);
    let window =
        Window { strides: vec![1], dilations: vec![1], pads_begin: vec![1], pads_end: vec![1] };
    let y = b.add(Convolution { window, groups: 1 }, &[there, weights, bias]);
    let there = b.masked(y, 0, 0.0);
    let sum = Reduce { function: ReduceFunction::Sum, axes: vec![1, 2], keep_axes: false };
    let again = b.masked(all, 0, 0.0);
    let sum = b.add(sum, &[again]);
    b.graph.add_output("y", there);
    b.graph.add_output("sum", sum);
    b.graph.verify().unwrap();
    b.graph
}

#[test]
fn what_is_needed_of_joined_channels_is_needed_of_their_parts() {
    let map = checked(&joined(), "joined");
    let is_convolution =
        |node: &hone_graph::NodeId| map.graph.nodes()[*node].name.starts_with("convolution");
    let stops = map.calls.iter().filter(|call| !call.needed.is_empty());
    let convolutions = stops.filter(|call| call.nodes.iter().any(is_convolution)).count();
    assert!(convolutions >= 3, "{convolutions} of the convolutions stop at the count");
}

#[test]
fn answers_are_those_of_the_reference_at_every_count() {
    let mut stopping = 0;
    for seed in 0..24 {
        let map = checked(&by_chance(seed), &format!("seed-{seed}"));
        stopping += map.calls.iter().filter(|call| !call.needed.is_empty()).count();
    }
    assert!(stopping > 40, "{stopping} kernels stop at a count");
}
