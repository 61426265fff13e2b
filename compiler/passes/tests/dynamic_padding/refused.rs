//! What is refused, and in which words.

use crate::case::{BOUND, Build, check, padded};
use hone_ops::*;
use hone_passes::{NotPadded, pad_dimension};
use hone_types::{DataType, TensorType};

fn refused(words: &str, build: Build) {
    let error = padded(build, BOUND).map(|_| ()).expect_err(words).to_string();
    assert!(error.contains(words), "{error}\nwithout: {words}");
}

#[test]
fn operations_that_mix_positions_are_refused_by_name() {
    let cases: &[(&str, Build)] = &[
        ("node 'node' (layer_normalization) normalises along the dimension", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let (scale, bias) = (c.weights(&[1, 3]), c.weights(&[1, 3]));
            vec![c.add(LayerNormalization { axis: 1, epsilon: 1e-5 }, &[x, scale, bias])]
        }),
        ("(reduce) is a mean of integers along the dimension", |c| {
            let x = c.input(DataType::I64, &[c.n], Some(0));
            vec![c.reduce(ReduceFunction::Mean, x, &[0])]
        }),
        ("(top_k) sorts along the dimension", |c| {
            let x = c.floats(&[c.n, 3], 0);
            vec![c.add(TopK::new(2, 0, true), &[x])]
        }),
        ("(reduce) computes along the dimension, joined with another axis", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let rows = c.reshape(x, &[2 * c.n, 3]);
            vec![c.reduce(ReduceFunction::Sum, rows, &[0])]
        }),
        ("(matmul) sums up the dimension, joined with another axis", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let rows = c.reshape(x, &[2 * c.n, 3]);
            let columns = c.transpose(rows, &[1, 0]);
            vec![c.matmul(columns, rows)]
        }),
        ("(binary) joins the dimension with another axis, or repeats it", |c| {
            // Rows of one are samples, and then positions; of the other it is the other way round.
            let (x, y) = (c.floats(&[2, c.n, 3], 1), c.floats(&[c.n, 2, 3], 0));
            let (x, y) = (c.reshape(x, &[2 * c.n, 3]), c.reshape(y, &[2 * c.n, 3]));
            let sum = c.sum(x, y);
            vec![c.reshape(sum, &[2, c.n, 3])]
        }),
        ("(reshape) joins the dimension with another axis, or divides it", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            let rows = c.reshape(x, &[2 * c.n, 3]);
            vec![c.reshape(rows, &[c.n, 2, 3])]
        }),
        ("(reshape) joins the dimension with another axis, or divides it", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            vec![c.reshape(x, &[3, c.n, 2])]
        }),
        ("(reshape) joins the dimension with another axis, or divides it", |c| {
            let x = c.floats(&[c.n, 3], 0);
            vec![c.reshape(x, &[3, c.n])]
        }),
        ("(tile) repeats the dimension", |c| {
            let x = c.floats(&[c.n, 3], 0);
            vec![c.add(Tile { repeats: vec![2, 1] }, &[x])]
        }),
        ("(concat) joins the dimension twice, along it", |c| {
            let x = c.floats(&[c.n, 3], 0);
            vec![c.add(Concat { axis: 0 }, &[x, x])]
        }),
        ("(pad) pads along the dimension with elements of it", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let (begin, end) = (vec![1, 0], vec![0, 0]);
            vec![c.add(Pad { begin, end, mode: PadMode::Wrap, value: 0.0 }, &[x])]
        }),
        ("(slice) takes positions along the dimension from others", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let (starts, steps) = (vec![c.n - 1, 0], vec![-1, 1]);
            vec![c.add(Slice { starts, steps, extents: vec![c.n, 3] }, &[x])]
        }),
        ("(slice) takes positions along the dimension from others", |c| {
            // The second position, which is not there at size 1.
            let x = c.floats(&[c.n, 3], 0);
            vec![c.slice(x, &[(1, 1), (0, 3)])]
        }),
        ("(slice) takes positions along the dimension from others", |c| {
            let x = c.floats(&[c.n, 3], 0);
            vec![c.slice(x, &[(c.n - 2, 2), (0, 3)])]
        }),
        ("(slice) takes positions along the dimension from others", |c| {
            // Rows of a table whose first one depends on the size.
            let x = c.floats(&[c.n, 3], 0);
            let table = c.weights(&[64, 3]);
            let rows = c.slice(table, &[(32 - c.n, c.n), (0, 3)]);
            vec![c.sum(x, rows)]
        }),
        ("(gather) takes positions along the dimension by index", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let second = c.tensor(&[], &[1i64]);
            vec![c.gather(0, x, second)]
        }),
        ("(gather) takes positions along the dimension by index", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let before = c.tensor(&[], &[c.n as i64 - 2]);
            vec![c.gather(0, x, before)]
        }),
        ("(gather) takes positions along the dimension by index", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let mixed = c.tensor(&[2], &[0i64, -1]);
            vec![c.gather(0, x, mixed)]
        }),
        ("(gather_nd) takes positions along the dimension by index", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let index = c.input(DataType::I64, &[1, 1], None);
            vec![c.add(GatherNd { batch_axes: 0 }, &[x, index])]
        }),
        ("(scatter_elements) stores elements along the dimension", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let index = c.input(DataType::I64, &[1, 3], None);
            let updates = c.weights(&[1, 3]);
            let reduction = ScatterReduction::None;
            vec![c.add(ScatterElements::new(0, reduction), &[x, index, updates])]
        }),
    ];
    for (words, build) in cases {
        refused(words, *build);
    }
}

/// The branches of a condition: a row, and its negation.
fn branches(shape: &[usize]) -> If {
    let regions = [false, true].map(|negate| {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, shape));
        let function = if negate { UnaryFunction::Negate } else { UnaryFunction::Abs };
        let y = graph.add_node("y", Op::new(Unary::new(function)), &[Some(x)]).unwrap();
        graph.add_output("y", y[0]);
        graph
    });
    If::from_regions(regions.into()).unwrap()
}

#[test]
fn operations_without_a_rule_are_refused() {
    let cases: &[(&str, Build)] = &[
        ("(non_zero) is not followed along a dimension whose size is an input", |c| {
            let x = c.floats(&[c.n, 1], 0);
            c.all(NonZero {}, &[Some(x)])
        }),
        ("(if) has graphs inside that depend on the size", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let test = c.input(DataType::Bool, &[], None);
            vec![c.add(branches(&[c.n, 3]), &[test, x, x])]
        }),
    ];
    for (words, build) in cases {
        refused(words, *build);
    }
    // What nothing needs is not looked at.
    check("a node without readers", |c| {
        let x = c.floats(&[c.n, 1], 0);
        c.all(NonZero {}, &[Some(x)]);
        vec![x]
    });
    // A condition beside the dimension is left as it is.
    check("a branch", |c| {
        let (x, row) = (c.floats(&[c.n, 3], 0), c.input(DataType::F32, &[3], None));
        let test = c.input(DataType::Bool, &[], None);
        let row = c.add(branches(&[3]), &[test, row, row]);
        vec![c.sum(x, row)]
    });
}

#[test]
fn what_differs_between_sizes_is_refused() {
    let cases: &[(&str, Build)] = &[
        (
            "node 'node' (binary) reads a constant of f32[] that differs between 3 sizes, and is not seen to be an \
             affine function of the size",
            |c| {
                let x = c.floats(&[c.n, 3], 0);
                let fraction = c.number(1.0 / c.n as f32);
                vec![c.product(x, fraction)]
            },
        ),
        (
            "reads a constant of f32[12, 3] of which neither the beginning nor the end is what it is",
            |c| {
                let x = c.floats(&[c.n, 3], 0);
                let n = c.n as f32;
                let bias = c.filled(&[c.n, 3], |index| index[0] as f32 / n);
                vec![c.sum(x, bias)]
            },
        ),
        ("(unary) is another operation at 3 (unary)", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let function = if c.n > 4 { UnaryFunction::Tanh } else { UnaryFunction::Exp };
            vec![c.unary(function, x)]
        }),
        ("at 5 the model computes something else than at 12: it has 2 nodes, not 1", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let y = c.unary(UnaryFunction::Tanh, x);
            if c.n == 5 { vec![c.unary(UnaryFunction::Tanh, y)] } else { vec![y] }
        }),
        ("(binary) reads another value", |c| {
            let (x, y) = (c.floats(&[c.n, 3], 0), c.floats(&[c.n, 3], 0));
            let other = if c.n == 5 { x } else { y };
            vec![c.sum(x, other)]
        }),
        ("output 'y0' reads another value", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let y = c.unary(UnaryFunction::Tanh, x);
            if c.n == 5 { vec![x] } else { vec![y] }
        }),
    ];
    for (words, build) in cases {
        refused(words, *build);
    }
}

#[test]
fn inputs_and_outputs_without_first_positions_are_refused() {
    let cases: &[(&str, Build)] = &[
        ("input 'x1' does not have the dimension along axis 1 alone", |c| {
            let x = c.floats(&[c.n, 3], 1);
            vec![c.unary(UnaryFunction::Tanh, x)]
        }),
        ("input 'x1' differs in shape between the sizes", |c| {
            let x = c.input(DataType::F32, &[c.n, 3], None);
            vec![c.unary(UnaryFunction::Tanh, x)]
        }),
        ("output 'y0' has the dimension along several axes", |c| {
            let x = c.floats(&[c.n, 3], 0);
            let transposed = c.transpose(x, &[1, 0]);
            vec![c.matmul(x, transposed)]
        }),
        ("output 'y0' has the dimension joined with another axis", |c| {
            let x = c.floats(&[2, c.n, 3], 1);
            vec![c.reshape(x, &[2 * c.n, 3])]
        }),
    ];
    for (words, build) in cases {
        refused(words, *build);
    }
}

#[test]
fn requests_that_mean_nothing_are_refused() {
    let mut graph = Graph::new();
    let shape = TensorType::new(DataType::F32, [4, 3]);
    let x = graph.add_input("x", shape);
    graph.add_output("y", x);
    let words = |axes: &[Option<usize>], bound: usize, name: &str, sizes: &[usize]| {
        let others: Vec<(&Graph, usize)> = sizes.iter().map(|size| (&graph, *size)).collect();
        match pad_dimension(&graph, axes, 1..=bound, name, &others) {
            Err(NotPadded::Request(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(words(&[Some(0)], 1, "n", &[1]).contains("1 is no bound"));
    assert!(words(&[Some(0)], 4, "n", &[]).contains("no different sizes below 4"));
    assert!(words(&[Some(0)], 4, "n", &[4]).contains("no different sizes below 4"));
    assert!(words(&[Some(0)], 4, "n", &[2, 2]).contains("no different sizes below 4"));
    assert!(words(&[], 4, "n", &[2]).contains("axes are given for 0 inputs"));
    assert!(words(&[Some(0)], 4, "x", &[2]).contains("has an input 'x' already"));
}
