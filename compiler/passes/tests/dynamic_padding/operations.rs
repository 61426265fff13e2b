//! One case for each class of operations.

use crate::case::{BOUND, Build, Case, IDS, check, compare, padded};
use hone_graph::ValueId;
use hone_ops::*;
use hone_types::{DataType, Tensor};

fn all_hold(cases: &[(&str, Build)]) {
    for (name, build) in cases {
        check(name, *build);
    }
}

#[test]
fn sums_and_searches_along_the_dimension() {
    use ReduceFunction as F;
    let cases: &[(&str, Build)] = &[
        ("every function", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let functions =
                [F::Sum, F::Mean, F::Maximum, F::Minimum, F::Product, F::L1, F::L2, F::SumSquare];
            let mut all: Vec<ValueId> =
                functions.into_iter().map(|function| c.reduce(function, x, &[1])).collect();
            let positive = c.unary(UnaryFunction::Exp, x);
            all.push(c.reduce(F::LogSum, positive, &[1]));
            all.push(c.reduce(F::LogSumExp, x, &[1]));
            all
        }),
        ("several axes, and those that stay", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let mean = c.add(Reduce { function: F::Mean, axes: vec![2, 1], keep_axes: true }, &[x]);
            let spread = c.binary(BinaryFunction::Subtract, x, mean);
            let variance = c.product(spread, spread);
            let variance = c.reduce(F::Mean, variance, &[0, 1, 2]);
            vec![spread, variance]
        }),
        ("weighted sums, and weights cut off", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let scores = c.linear(x, 3, 1);
            let weights = c.softmax(scores, 0);
            let weighted = c.product(weights, x);
            let pooled = c.reduce(F::Sum, weighted, &[0]);
            let none = c.weights(&[1, 1]);
            let scores = c.add(Concat { axis: 0 }, &[none, scores]);
            let weights = c.softmax(scores, 0);
            let cut = c.slice(weights, &[(0, c.n), (0, 1)]);
            let rest = c.slice(weights, &[(1, c.n), (0, 1)]);
            vec![pooled, c.reduce(F::Sum, cut, &[0]), c.reduce(F::Sum, rest, &[0])]
        }),
        ("two axes that are the dimension", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let transposed = c.transpose(x, &[1, 0]);
            let square = c.matmul(x, transposed);
            let bias = c.filled(&[c.n, c.n], |index| index[0] as f32 - index[1] as f32);
            let square = c.sum(square, bias);
            let weights = c.softmax(square, 1);
            let columns = c.reduce(F::Sum, weights, &[0]);
            let columns = c.reshape(columns, &[c.n]);
            vec![c.reduce(F::Mean, square, &[0, 1]), c.reduce(F::Sum, weights, &[0, 1]), columns]
        }),
        ("integers and truth values", |c| {
            let x = c.input(DataType::I64, &[c.n, 2], Some(0));
            let (low, high) = (c.tensor(&[], &[4i64]), c.tensor(&[], &[1i64]));
            let below = c.binary(BinaryFunction::Less, x, low);
            let narrow = c.cast(x, DataType::I32);
            let extended = c.binary(BinaryFunction::Add, x, high);
            vec![
                c.reduce(F::Maximum, x, &[0]),
                c.reduce(F::Minimum, narrow, &[0]),
                c.reduce(F::Product, extended, &[0]),
                c.reduce(F::Maximum, below, &[0, 1]),
                c.reduce(F::Minimum, below, &[0, 1]),
            ]
        }),
        ("positions of extremes", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let small = c.input(DataType::I64, &[2, c.n, 3], Some(1));
            let hidden = c.filled(&[1, c.n, 3], |_| f32::NEG_INFINITY);
            let hidden = c.binary(BinaryFunction::Minimum, hidden, x);
            let mut all = Vec::new();
            for maximum in [true, false] {
                for select_last in [true, false] {
                    for value in [x, small, hidden] {
                        let keep_axis = select_last;
                        let i = ArgReduce { maximum, axis: 1, keep_axis, select_last };
                        all.push(c.add(i, &[value]));
                    }
                }
            }
            all
        }),
        ("the largest, running sums, and a norm", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let inputs = [Some(x)];
            let mut all = c.all(TopK::new(1, 1, true), &inputs);
            for (reverse, exclusive, product) in [
                (false, false, false),
                (true, false, false),
                (true, true, true),
                (false, true, true),
            ] {
                all.push(c.add(
                    CumulativeSum { axis: 1, exclusive, reverse, product, in_rows: false },
                    &[x],
                ));
            }
            all.push(c.add(LpNormalization { axis: 1, order: 2 }, &[x]));
            all.push(c.add(Softmax { axis: 1, log: true }, &[x]));
            all
        }),
    ];
    all_hold(cases);
}

#[test]
fn positions_stay_positions() {
    let cases: &[(&str, Build)] = &[
        ("elements, and constants along the dimension", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let bias = c.filled(&[1, c.n, 3], |index| (index[1] * 3 + index[2]) as f32);
            let y = c.sum(x, bias);
            let y = c.unary(UnaryFunction::Tanh, y);
            let test = c.binary(BinaryFunction::Less, y, x);
            vec![c.add(Select {}, &[test, x, y])]
        }),
        ("rows and columns of products", |c| {
            let x = c.floats(&[c.n, 4], 0);
            let weights = c.weights(&[4, 3]);
            let rows = c.matmul(x, weights);
            let transposed = c.transpose(x, &[1, 0]);
            let other = c.weights(&[3, 4]);
            let columns = c.matmul(other, transposed);
            let vector = c.weights(&[4]);
            vec![rows, columns, c.matmul(x, vector)]
        }),
        ("normalisation along other axes", |c| {
            let x = c.floats(&[2, c.n, 4], 1);
            let y = c.normalized(x, 2, 4);
            let y = c.softmax(y, 2);
            let y = c.transpose(y, &[0, 2, 1]);
            let (scale, variance) = (c.weights(&[4]), c.filled(&[4], |_| 1.5));
            let inputs = [y, scale, scale, scale, variance];
            vec![c.add(BatchNormalization { epsilon: 1e-5 }, &inputs)]
        }),
        ("axes divided, joined, repeated and cut beside it", |c| {
            let x = c.floats(&[2, c.n, 6], 1);
            let y = c.reshape(x, &[2, c.n, 2, 3]);
            let y = c.transpose(y, &[0, 2, 1, 3]);
            let y = c.reshape(y, &[4, c.n, 3]);
            let y = c.add(Tile { repeats: vec![1, 1, 2] }, &[y]);
            let z = c.slice(y, &[(1, 3), (0, c.n), (1, 4)]);
            let (begin, end) = (vec![1, 0, 0], vec![0, 0, 1]);
            let z = c.add(Pad { begin, end, mode: PadMode::Reflect, value: 0.0 }, &[z]);
            vec![c.add(Concat { axis: 2 }, &[y, z])]
        }),
        ("repetition to the size, and rows of a table", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let token = c.weights(&[1, 1, 3]);
            let tiled = c.add(Tile { repeats: vec![2, c.n, 1] }, &[token]);
            let table = c.weights(&[64, 3]);
            let rows = c.slice(table, &[(2, c.n), (0, 3)]);
            let y = c.sum(x, tiled);
            let y = c.sum(y, rows);
            let input = c.input(DataType::F32, &[2, 1, 3], None);
            let extended = c.expand(input, &[2, c.n, 3]);
            vec![c.sum(y, extended)]
        }),
        ("a triangle, and codes of indices", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let transposed = c.transpose(x, &[1, 0]);
            let square = c.matmul(x, transposed);
            let lower = c.add(Trilu { upper: false, diagonal: 0 }, &[square]);
            let ids = c.input(DataType::I64, &[c.n], Some(0));
            let values = c.weights(&[2]);
            let codes = c.add(OneHot { depth: IDS, axis: 1 }, &[ids, values]);
            vec![c.matmul(lower, x), codes]
        }),
        ("a smaller extent than the dimension may have, alone", |c| {
            let x = c.floats(&[1, c.n, 3], 1);
            let y = c.reshape(x, &[c.n, 3]);
            let y = c.linear(y, 3, 3);
            vec![c.reshape(y, &[1, c.n, 1, 3])]
        }),
    ];
    all_hold(cases);
}

#[test]
fn positions_by_index() {
    let cases: &[(&str, Build)] = &[
        ("a class token joined before", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let token = c.weights(&[1, 1, 3]);
            let token = c.expand(token, &[2, 1, 3]);
            let y = c.add(Concat { axis: 1 }, &[token, x]);
            let positions = c.filled(&[1, c.n + 1, 3], |index| (index[1] + index[2]) as f32);
            let y = c.sum(y, positions);
            let transposed = c.transpose(y, &[0, 2, 1]);
            let scores = c.matmul(y, transposed);
            let weights = c.softmax(scores, 2);
            let y = c.matmul(weights, y);
            let both = c.tensor(&[2], &[0i64, 1]);
            let last = c.tensor(&[], &[c.n as i64]);
            let mean = c.reduce(ReduceFunction::Mean, y, &[1]);
            let rest = c.slice(y, &[(0, 2), (1, c.n), (0, 3)]);
            vec![c.gather(1, y, both), c.gather(1, y, last), mean, rest]
        }),
        ("constant tables of positions", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let back: Vec<i64> =
                (0..c.n * c.n).map(|i| (i / c.n) as i64 - (i % c.n) as i64).collect();
            let back: Vec<i64> = back.into_iter().map(|distance| distance.max(0)).collect();
            let back = c.tensor(&[c.n, c.n], &back);
            let y = c.gather(0, x, back);
            let y = c.reduce(ReduceFunction::Sum, y, &[1]);
            let ends = c.tensor(&[2], &[0, c.n as i64 - 1]);
            vec![y, c.gather(0, x, ends)]
        }),
        ("indices that are data", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let scores = c.reduce(ReduceFunction::Sum, x, &[1]);
            let largest =
                ArgReduce { maximum: true, axis: 0, keep_axis: false, select_last: false };
            let largest = c.add(largest, &[scores]);
            let one = c.tensor(&[], &[-1i64]);
            let negative = c.product(largest, one);
            let ids = c.input(DataType::I64, &[c.n, 2], Some(0));
            let three = c.tensor(&[], &[3i64]);
            let ids = c.product(ids, three);
            let table = c.weights(&[3 * IDS, 2]);
            let running = CumulativeSum {
                axis: 0,
                exclusive: false,
                reverse: false,
                product: false,
                in_rows: false,
            };
            let counts = c.add(running, &[ids]);
            let counts = c.binary(BinaryFunction::Modulo, counts, three);
            vec![
                c.gather(0, x, largest),
                c.gather(0, x, negative),
                c.gather(0, table, ids),
                c.gather(0, table, counts),
            ]
        }),
        ("elements by indices", |c| {
            let x = c.floats(&[2, c.n, IDS], 1);
            let ids = c.input(DataType::I64, &[2, c.n, 4], Some(1));
            let taken = c.add(GatherElements { axis: 2 }, &[x, ids]);
            let positions: Vec<i64> = (0..c.n).flat_map(|i| [0, i as i64]).collect();
            let positions = c.tensor(&[1, c.n, 2], &positions);
            let rows = c.floats(&[1, c.n], 1);
            let picked = c.add(GatherNd { batch_axes: 0 }, &[rows, positions]);
            let updates = c.weights(&[1, 1, 4]);
            let updates = c.expand(updates, &[2, c.n, 4]);
            let reduction = ScatterReduction::Add;
            let stored = c.add(ScatterElements::new(2, reduction), &[x, ids, updates]);
            vec![taken, picked, stored]
        }),
        ("indices that are computed", |c| {
            let x = c.floats(&[c.n, 2], 0);
            let indices = c.unary(UnaryFunction::Abs, x);
            let indices = c.cast(indices, DataType::I64);
            let table = c.weights(&[8, 3]);
            let data = c.weights(&[1, 8]);
            let data = c.expand(data, &[c.n, 8]);
            vec![c.gather(0, table, indices), c.add(GatherElements { axis: 1 }, &[data, indices])]
        }),
        ("the first and the last", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let first = c.slice(x, &[(0, 2), (0, 1), (1, 2)]);
            let last = c.slice(x, &[(1, 1), (c.n - 1, 1), (1, 2)]);
            vec![first, last]
        }),
    ];
    all_hold(cases);
}

#[test]
fn numbers_computed_from_the_size() {
    let cases: &[(&str, Build)] = &[
        ("scalars and small tensors", |c| {
            let x = c.floats(&[c.n, 2], 0);
            let n = c.number(c.n as f32);
            let y = c.product(x, n);
            let less = c.tensor(&[2], &[c.n as f32 / 2.0 - 1.0, 7.0]);
            let y = c.sum(y, less);
            let count = c.tensor(&[], &[2 * c.n as i64 + 3]);
            vec![y, count, less]
        }),
        ("a condition on a run", |c| {
            let x = c.floats(&[c.n, 2], 0);
            let limit = c.number(100.0);
            let size = c.unary(UnaryFunction::Abs, x);
            let below = c.binary(BinaryFunction::Less, size, limit);
            c.all(Require { message: "too large".into() }, &[Some(below)]);
            vec![x]
        }),
    ];
    all_hold(cases);
}

fn gates(count: usize) -> Vec<Activation> {
    [Activation::Sigmoid, Activation::Tanh, Activation::Tanh][..count].to_vec()
}

fn lstm(c: &mut Case, direction: Direction, batch_first: bool, lengths: bool) -> Vec<ValueId> {
    let (hidden, directions) = (3, direction.count());
    let shape = if batch_first { [2, c.n, 4] } else { [c.n, 2, 4] };
    let x = c.floats(&shape, usize::from(batch_first));
    let w = c.weights(&[directions, 4 * hidden, 4]);
    let r = c.weights(&[directions, 4 * hidden, hidden]);
    let bias = c.weights(&[directions, 8 * hidden]);
    let activations = gates(3).repeat(directions);
    let lengths = lengths.then(|| {
        let first = c.input(DataType::I32, &[2], None);
        let one = c.tensor(&[], &[1i32]);
        c.sum(first, one)
    });
    let operator = Lstm {
        hidden,
        direction,
        activations,
        clip: None,
        input_forget: false,
        batch_first,
        rounds_operands: false,
    };
    c.all(operator, &[Some(x), Some(w), Some(r), Some(bias), lengths])
}

#[test]
fn steps_in_time() {
    let cases: &[(&str, Build)] = &[
        ("forward", |c| lstm(c, Direction::Forward, false, false)),
        ("its sequence alone", |c| lstm(c, Direction::Forward, true, false)[..1].to_vec()),
        ("reverse", |c| lstm(c, Direction::Reverse, true, false)),
        ("both directions", |c| lstm(c, Direction::Bidirectional, false, false)),
        ("lengths of the model", |c| lstm(c, Direction::Bidirectional, true, true)),
        ("a gated unit in both directions", |c| {
            let x = c.floats(&[c.n, 2, 4], 0);
            let (w, r) = (c.weights(&[2, 9, 4]), c.weights(&[2, 9, 3]));
            let gru = Gru {
                hidden: 3,
                direction: Direction::Bidirectional,
                activations: gates(2).repeat(2),
                clip: None,
                linear_before_reset: true,
                batch_first: false,
            };
            let mut all = c.all(gru, &[Some(x), Some(w), Some(r)]);
            let transposed = c.transpose(all[0], &[1, 2, 3, 0]);
            let mean = c.reduce(ReduceFunction::Mean, transposed, &[3]);
            let (w, r) = (c.weights(&[1, 3, 4]), c.weights(&[1, 3, 3]));
            let plain = Rnn {
                hidden: 3,
                direction: Direction::Reverse,
                activations: vec![Activation::Tanh],
                clip: None,
                batch_first: false,
            };
            let steps = c.all(plain, &[Some(x), Some(w), Some(r)])[0];
            all.extend([mean, steps]);
            all
        }),
    ];
    all_hold(cases);
}

#[test]
fn windows_along_the_dimension() {
    let cases: &[(&str, Build)] = &[
        ("two axes, of which one is the dimension", |c| {
            let x = c.floats(&[1, 2, c.n, 5], 2);
            let weights = c.weights(&[3, 2, 3, 3]);
            let window = Window {
                strides: vec![1, 2],
                dilations: vec![1, 1],
                pads_begin: vec![2, 1],
                pads_end: vec![0, 1],
            };
            let y = c.add(Convolution { window, groups: 1 }, &[x, weights]);
            let window = Window {
                strides: vec![1, 1],
                dilations: vec![1, 1],
                pads_begin: vec![1, 0],
                pads_end: vec![1, 0],
            };
            let kind = PoolKind::Lp(2);
            let kernel = vec![3, 1];
            let norm = Pool { kind, kernel, window, count_padding: false };
            let mut window = Window::plain(2);
            window.pads_begin[0] = 1;
            let kind = PoolKind::Average;
            let before = Pool { kind, kernel: vec![2, 3], window, count_padding: false };
            vec![c.add(norm, &[y]), c.add(before, &[y])]
        }),
        ("elements added behind", |c| {
            let x = c.floats(&[1, 2, c.n], 2);
            let weights = c.weights(&[2, 2, 3]);
            let around =
                |mode, value| Pad { begin: vec![0, 0, 1], end: vec![0, 0, 1], mode, value };
            let y = c.add(around(PadMode::Constant, 0.5), &[x]);
            let window = Window::plain(1);
            let y = c.add(Convolution { window, groups: 1 }, &[y, weights]);
            let mut edge = around(PadMode::Edge, 0.0);
            edge.end[2] = 0;
            let z = c.add(edge, &[y]);
            let cut = Pad {
                begin: vec![0, 0, -1],
                end: vec![0, 0, 0],
                mode: PadMode::Constant,
                value: 0.0,
            };
            vec![c.add(cut, &[z])]
        }),
        ("the batch of a convolution, and a resampled one", |c| {
            let x = c.floats(&[c.n, 2, 6], 0);
            let weights = c.weights(&[3, 2, 3]);
            let mut window = Window::plain(1);
            window.strides[0] = 2;
            let y = c.add(Convolution { window, groups: 1 }, &[x, weights]);
            let resize = Resize {
                mode: ResizeMode::Linear,
                coordinates: CoordinateMode::HalfPixel,
                scales: vec![1.0, 1.0, 2.0],
                sizes: vec![c.n, 3, 4],
                antialias: false,
                extrapolation: 0.0,
                region: vec![],
            };
            let scale = c.weights(&[3]);
            let y = c.add(InstanceNormalization { epsilon: 1e-5 }, &[y, scale, scale]);
            vec![c.add(resize, &[y])]
        }),
    ];
    all_hold(cases);
}

/// Choices are made before a product where zeros are not there already, and once for several readers.
#[test]
fn masks_are_as_few_as_are_needed() {
    let build: Build = |c| {
        let x = c.floats(&[c.n, 4], 0);
        let transposed = c.transpose(x, &[1, 0]);
        let scores = c.matmul(x, transposed);
        let weights = c.softmax(scores, 1);
        let first = c.matmul(weights, x);
        let second = c.matmul(weights, x);
        let sum = c.reduce(ReduceFunction::Sum, x, &[0]);
        vec![first, second, sum]
    };
    let graph = padded(build, BOUND).unwrap();
    compare("few masks", build, &graph, BOUND);
    let count = |name: &str| {
        graph.graph.nodes().iter().filter(|(_, node)| node.operation.name() == name).count()
    };
    // One of the scores and one of the values.
    assert_eq!(count("select"), 2);
}

/// What lies behind the size changes nothing, in bits.
#[test]
fn results_do_not_depend_on_what_is_behind() {
    let build: Build = |c| {
        let x = c.floats(&[c.n, 3], 0);
        let transposed = c.transpose(x, &[1, 0]);
        let square = c.matmul(transposed, x);
        vec![square, c.reduce(ReduceFunction::Mean, x, &[0])]
    };
    let graph = padded(build, BOUND).unwrap();
    let run = |rest: f32| {
        let mut values: Vec<f32> = (0..3 * BOUND).map(|i| i as f32 / 4.0).collect();
        values[3 * 5..].fill(rest);
        let x = Tensor::from_elements([BOUND, 3], &values).unwrap();
        evaluate(&graph.graph, &[x, Tensor::scalar(5i64)]).unwrap()
    };
    assert_eq!(run(0.0), run(f32::NAN));
    assert_eq!(run(0.0), run(f32::INFINITY));
}
