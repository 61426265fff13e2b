//! Models built at a size, and the comparison of padded ones with them.

use hone_graph::ValueId;
use hone_ops::*;
use hone_passes::{NotPadded, PaddedAxis, PaddedGraph, PaddedSizes, pad_dimension};
use hone_types::{DataType, Random, Tensor, TensorType};

/// The largest size, and those that it is compared with.
pub const BOUND: usize = 12;
pub const WITNESSES: [usize; 2] = [5, 3];

/// A model under construction, with `n` positions along the dimension.
pub struct Case {
    pub graph: Graph,
    pub n: usize,
    /// The axis of each input that is the dimension.
    pub axes: Vec<Option<usize>>,
    random: Random,
}

/// Integers that inputs of indices have are below this.
pub const IDS: usize = 7;

impl Case {
    /// An input; the dimension is where the shape says so.
    pub fn input(&mut self, dtype: DataType, shape: &[usize], axis: Option<usize>) -> ValueId {
        self.axes.push(axis);
        let name = format!("x{}", self.axes.len());
        self.graph.add_input(name, TensorType::new(dtype, shape))
    }

    pub fn floats(&mut self, shape: &[usize], axis: usize) -> ValueId {
        self.input(DataType::F32, shape, Some(axis))
    }

    /// Weights, the same at every size.
    pub fn weights(&mut self, shape: &[usize]) -> ValueId {
        let count = shape.iter().product::<usize>();
        let values = self.random.normals(count, 0.0, 0.5);
        self.tensor(shape, &values)
    }

    /// A constant whose elements are a function of their indices.
    pub fn filled(&mut self, shape: &[usize], of: impl Fn(&[usize]) -> f32) -> ValueId {
        let count = shape.iter().product::<usize>();
        let index = |i: usize| {
            let mut rest = i;
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            index
        };
        let values: Vec<f32> = (0..count).map(|i| of(&index(i))).collect();
        self.tensor(shape, &values)
    }

    pub fn tensor<T: hone_types::Element>(&mut self, shape: &[usize], values: &[T]) -> ValueId {
        let tensor = Tensor::from_elements(shape, values).unwrap();
        self.graph.add_constant("constant", tensor)
    }

    pub fn number(&mut self, value: f32) -> ValueId {
        self.tensor(&[], &[value])
    }

    pub fn all(&mut self, operator: impl Operator, inputs: &[Option<ValueId>]) -> Vec<ValueId> {
        self.graph.add_node("node", Op::new(operator), inputs).unwrap()
    }

    pub fn add(&mut self, operator: impl Operator, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        self.all(operator, &inputs)[0]
    }

    pub fn binary(&mut self, function: BinaryFunction, a: ValueId, b: ValueId) -> ValueId {
        self.add(Binary::new(function), &[a, b])
    }

    pub fn sum(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryFunction::Add, a, b)
    }

    pub fn product(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryFunction::Multiply, a, b)
    }

    pub fn unary(&mut self, function: UnaryFunction, a: ValueId) -> ValueId {
        self.add(Unary::new(function), &[a])
    }

    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.add(MatMul {}, &[a, b])
    }

    pub fn reshape(&mut self, x: ValueId, shape: &[usize]) -> ValueId {
        self.add(Reshape { shape: shape.to_vec() }, &[x])
    }

    pub fn transpose(&mut self, x: ValueId, permutation: &[usize]) -> ValueId {
        self.add(Transpose { permutation: permutation.to_vec() }, &[x])
    }

    pub fn expand(&mut self, x: ValueId, shape: &[usize]) -> ValueId {
        self.add(Expand { shape: shape.to_vec() }, &[x])
    }

    pub fn cast(&mut self, x: ValueId, to: DataType) -> ValueId {
        self.add(Cast { to }, &[x])
    }

    pub fn softmax(&mut self, x: ValueId, axis: usize) -> ValueId {
        self.add(Softmax { axis, log: false }, &[x])
    }

    pub fn reduce(&mut self, function: ReduceFunction, x: ValueId, axes: &[usize]) -> ValueId {
        self.add(Reduce { function, axes: axes.to_vec(), keep_axes: false }, &[x])
    }

    pub fn gather(&mut self, axis: usize, x: ValueId, indices: ValueId) -> ValueId {
        self.add(Gather { axis }, &[x, indices])
    }

    /// A slice by pairs of first element and extent.
    pub fn slice(&mut self, x: ValueId, ranges: &[(usize, usize)]) -> ValueId {
        let (starts, extents) = ranges.iter().copied().unzip();
        self.add(Slice { starts, steps: vec![1; ranges.len()], extents }, &[x])
    }

    pub fn linear(&mut self, x: ValueId, from: usize, to: usize) -> ValueId {
        let (weights, bias) = (self.weights(&[from, to]), self.weights(&[to]));
        let product = self.matmul(x, weights);
        self.sum(product, bias)
    }

    pub fn normalized(&mut self, x: ValueId, axis: usize, width: usize) -> ValueId {
        let (scale, bias) = (self.weights(&[width]), self.weights(&[width]));
        self.add(LayerNormalization { axis, epsilon: 1e-5 }, &[x, scale, bias])
    }
}

pub type Build = fn(&mut Case) -> Vec<ValueId>;

/// A model at a size, and where its inputs have the dimension.
pub fn built(build: Build, n: usize) -> (Graph, Vec<Option<usize>>) {
    let mut case = Case { graph: Graph::new(), n, axes: Vec::new(), random: Random::new(3) };
    for (i, output) in build(&mut case).into_iter().enumerate() {
        case.graph.add_output(format!("y{i}"), output);
    }
    case.graph.verify().unwrap();
    (case.graph, case.axes)
}

pub fn padded(build: Build, bound: usize) -> Result<PaddedGraph, NotPadded> {
    padded_from(1, build, bound)
}

/// The same for sizes from one on.
pub fn padded_from(least: usize, build: Build, bound: usize) -> Result<PaddedGraph, NotPadded> {
    let (graph, axes) = built(build, bound);
    let others = WITNESSES.map(|size| (built(build, size).0, size));
    let others: Vec<(&Graph, usize)> = others.iter().map(|(graph, size)| (graph, *size)).collect();
    pad_dimension(&graph, &axes, least..=bound, "size", &others)
}

/// Numbers that an input may hold behind the size.
const ANYTHING: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 3e38, -3e38, -0.0];

/// An input with `n` positions, and the same with others behind them up to the bound.
fn input(tensor_type: &TensorType, at: Option<(usize, usize)>, random: &mut Random) -> [Tensor; 2] {
    let TensorType { dtype, shape } = tensor_type;
    let mut part = |anything: bool| match dtype {
        DataType::F32 if anything => *random.pick(&ANYTHING).unwrap(),
        DataType::Bool => random.below(2) as f64,
        DataType::I64 | DataType::I32 => random.below(IDS) as f64,
        _ => f64::from(random.normal()),
    };
    let inner: usize = at.map_or(1, |(axis, _)| shape[axis + 1..].iter().product());
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for i in 0..tensor_type.elements() {
        let before = at.is_none_or(|(axis, n)| i / inner % shape[axis] < n);
        let value = part(!before);
        large.push(value);
        if before {
            small.push(value);
        }
    }
    let mut cut = shape.clone();
    if let Some((axis, n)) = at {
        cut[axis] = n;
    }
    let whole = Tensor::from_f64(*dtype, shape.clone(), &large).unwrap();
    [Tensor::from_f64(*dtype, cut, &small).unwrap(), whole]
}

/// What results may differ by, as a fraction of the largest: sums are added up in another order.
const TOLERANCE: f64 = 1e-5;

/// Compares a padded graph with the model at each of some sizes.
pub fn compare(name: &str, build: Build, graph: &PaddedGraph, bound: usize) {
    compare_within(TOLERANCE, name, build, graph, bound);
}

/// The same, where results may differ by a given fraction of the largest.
pub fn compare_within(tolerance: f64, name: &str, build: Build, graph: &PaddedGraph, bound: usize) {
    compare_from(1, tolerance, (name, build), graph, bound);
}

/// The same for sizes from one on.
fn compare_from(
    least: usize,
    tolerance: f64,
    (name, build): (&str, Build),
    graph: &PaddedGraph,
    bound: usize,
) {
    let (at_bound, axes) = built(build, bound);
    for n in [1, 2, 3, bound - 1, bound].into_iter().filter(|n| *n >= least.max(graph.least)) {
        compare_at(n, tolerance, (name, build), graph, &at_bound, &axes);
    }
}

/// The same at one size.
fn compare_at(
    n: usize,
    tolerance: f64,
    (name, build): (&str, Build),
    graph: &PaddedGraph,
    at_bound: &Graph,
    axes: &[Option<usize>],
) {
    let (model, _) = built(build, n);
    for round in 0..3 {
        let mut random = Random::new((n * 10 + round) as u64);
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for ((port, small_port), axis) in at_bound.inputs().iter().zip(model.inputs()).zip(axes) {
            // An input may have fewer positions than the size says.
            let at = axis.map(|axis| (axis, model.tensor_type(small_port.value).shape[axis]));
            let [cut, whole] = input(at_bound.tensor_type(port.value), at, &mut random);
            small.push(cut);
            large.push(whole);
        }
        large.push(Tensor::scalar(n as i64));
        let wanted = evaluate(&model, &small).unwrap();
        let found = evaluate(&graph.graph, &large)
            .unwrap_or_else(|error| panic!("{name} at {n}: {error:?}"));
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let found = first_positions(found, graph.outputs[i], n);
            assert_eq!(found.shape(), wanted.shape(), "{name} at {n}: output {i}");
            assert_close(&format!("{name} at {n}: output {i}"), &found, wanted, tolerance);
        }
    }
}

fn first_positions(tensor: &Tensor, along: Option<PaddedAxis>, n: usize) -> Tensor {
    let mut extents = tensor.shape().to_vec();
    if let Some(PaddedAxis { axis, length }) = along {
        extents[axis] = usize::try_from(length.at(n)).unwrap();
    }
    let rank = extents.len();
    let slice = Slice { starts: vec![0; rank], steps: vec![1; rank], extents };
    slice.reference(&[Some(tensor)]).unwrap().remove(0)
}

fn assert_close(what: &str, found: &Tensor, wanted: &Tensor, tolerance: f64) {
    assert_eq!(found.dtype(), wanted.dtype(), "{what}");
    let (found, wanted) = (found.to_f64(), wanted.to_f64());
    let largest =
        wanted.iter().filter(|value| value.is_finite()).fold(1.0f64, |a, b| a.max(b.abs()));
    for (found, wanted) in found.iter().zip(&wanted) {
        let same = found == wanted || (found.is_nan() && wanted.is_nan());
        assert!(
            same || (found - wanted).abs() < tolerance * largest,
            "{what}: {found}, not {wanted}"
        );
    }
}

/// Requires that a model is padded for sizes from one on, and computes the same.
pub fn check_from(least: usize, name: &str, build: Build) -> PaddedGraph {
    let graph = padded_from(least, build, BOUND).unwrap_or_else(|error| panic!("{name}: {error}"));
    graph.graph.verify().unwrap();
    compare_from(least, TOLERANCE, (name, build), &graph, BOUND);
    graph
}

/// Requires that a model is padded, and computes the same.
pub fn check(name: &str, build: Build) -> PaddedGraph {
    let graph = padded(build, BOUND).unwrap_or_else(|error| panic!("{name}: {error}"));
    graph.graph.verify().unwrap();
    compare(name, build, &graph, BOUND);
    graph
}

/// A model that is padded for multiples of a number up to a bound, by what it is at other sizes; compared at every size that
/// it takes.
pub fn check_sizes(
    name: &str,
    build: Build,
    (bound, multiple): (usize, usize),
    witnesses: &[usize],
) -> PaddedGraph {
    let padded = padded_at(build, (bound, multiple), witnesses);
    let padded = padded.unwrap_or_else(|error| panic!("{name}: {error}"));
    padded.graph.verify().unwrap();
    let (at_bound, axes) = built(build, bound);
    assert!(padded.least <= bound);
    for n in (padded.least..=bound).filter(|n| n % multiple == 0) {
        compare_at(n, TOLERANCE, (name, build), &padded, &at_bound, &axes);
    }
    padded
}

/// The model as it is padded there.
pub fn padded_at(
    build: Build,
    (bound, multiple): (usize, usize),
    witnesses: &[usize],
) -> Result<PaddedGraph, NotPadded> {
    let (graph, axes) = built(build, bound);
    let others: Vec<(Graph, usize)> =
        witnesses.iter().map(|size| (built(build, *size).0, *size)).collect();
    let others: Vec<(&Graph, usize)> = others.iter().map(|(graph, size)| (graph, *size)).collect();
    pad_dimension(&graph, &axes, PaddedSizes { least: 1, bound, multiple }, "size", &others)
}
