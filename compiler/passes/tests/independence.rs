//! What is shown to map over a dimension, and what is refused: one case for each class of operations. What is shown holds:
//! a changed slice of the inputs changes this slice of the outputs alone, and each slice is what the graph at size 1 gives.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_graph::ValueId;
use hone_ops::*;
use hone_passes::Independence;
use hone_types::{DataType, Tensor, TensorType};

/// A graph under construction, with `n` positions along the dimension.
struct Case {
    graph: Graph,
    n: usize,
}

impl Case {
    fn input(&mut self, shape: &[usize]) -> ValueId {
        let name = format!("x{}", self.graph.inputs().len());
        self.graph.add_input(name, TensorType::new(DataType::F32, shape))
    }

    fn indices(&mut self, shape: &[usize]) -> ValueId {
        self.graph.add_input("indices", TensorType::new(DataType::I64, shape))
    }

    /// Values that differ from index to index, the same at every size.
    fn constant(&mut self, shape: &[usize]) -> ValueId {
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|i| ((i * 7 + 3) % 11) as f32 / 8.0 - 0.5).collect();
        let tensor = Tensor::from_elements(shape.to_vec(), &values).unwrap();
        self.graph.add_constant("constant", tensor)
    }

    fn equal(&mut self, shape: &[usize]) -> ValueId {
        let values = vec![1.5f32; shape.iter().product::<usize>()];
        let tensor = Tensor::from_elements(shape.to_vec(), &values).unwrap();
        self.graph.add_constant("equal", tensor)
    }

    fn positions(&mut self, positions: &[i64]) -> ValueId {
        let tensor = Tensor::from_elements([positions.len()], positions).unwrap();
        self.graph.add_constant("positions", tensor)
    }

    fn all(&mut self, operator: impl Operator, inputs: &[ValueId]) -> Vec<ValueId> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        self.graph.add_node("node", Op::new(operator), &inputs).unwrap()
    }

    fn add(&mut self, operator: impl Operator, inputs: &[ValueId]) -> ValueId {
        self.all(operator, inputs)[0]
    }

    fn sum(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.add(Binary::new(BinaryFunction::Add), &[a, b])
    }

    fn reshape(&mut self, x: ValueId, shape: &[usize]) -> ValueId {
        self.add(Reshape { shape: shape.to_vec() }, &[x])
    }

    fn transpose(&mut self, x: ValueId, permutation: &[usize]) -> ValueId {
        self.add(Transpose { permutation: permutation.to_vec() }, &[x])
    }
}

type Build = fn(&mut Case) -> ValueId;

fn graph(build: Build, n: usize) -> Graph {
    let mut case = Case { graph: Graph::new(), n };
    let output = build(&mut case);
    case.graph.add_output("y", output);
    case.graph
}

/// The first axis of every input that has as many positions.
fn axes(graph: &Graph, n: usize) -> Vec<Option<usize>> {
    let axis = |port: &hone_graph::Port| {
        (graph.tensor_type(port.value).shape.first() == Some(&n)).then_some(0)
    };
    graph.inputs().iter().map(axis).collect()
}

fn prove(graph: &Graph, n: usize) -> Result<Independence, String> {
    Independence::prove(graph, &axes(graph, n), n).map_err(|error| error.to_string())
}

const N: usize = 7;

/// Inputs at a size; those that have the dimension are slices of those at the largest one, from `first` on.
fn inputs(graph: &Graph, n: usize, first: usize) -> Vec<Tensor> {
    let tensor = |(index, port): (usize, &hone_graph::Port)| {
        let operator = graph.tensor_type(port.value).clone();
        let begin =
            if operator.shape.first() == Some(&n) { first * (operator.elements() / n) } else { 0 };
        let value = |i: usize| match operator.dtype {
            DataType::I64 => ((i + begin) % 3) as f64,
            _ => (((i + begin) * 13 + index * 5) % 17) as f64 / 4.0 - 2.0,
        };
        let values: Vec<f64> = (0..operator.elements()).map(value).collect();
        Tensor::from_f64(operator.dtype, operator.shape, &values).unwrap()
    };
    graph.inputs().iter().enumerate().map(tensor).collect()
}

fn shown(name: &str, build: Build) {
    let whole = graph(build, N);
    let proof = prove(&whole, N).unwrap_or_else(|error| panic!("{name}: {error}"));
    let given = inputs(&whole, N, 0);
    let want = evaluate(&whole, &given).unwrap().remove(0).to_f64();
    let length = want.len() / N;
    for n in [1, 2, 4, 12] {
        let other = graph(build, n);
        proof.proves_at(&whole, &other, n).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    // Each slice alone.
    let single = graph(build, 1);
    for position in 0..N {
        // At size 1 nothing tells axes of one element from the dimension: the inputs are those of the whole.
        let slices: Vec<Tensor> = whole
            .inputs()
            .iter()
            .zip(&given)
            .zip(single.inputs())
            .map(|((port, tensor), operator)| {
                let has = whole.tensor_type(port.value).shape.first() == Some(&N);
                let values = tensor.to_f64();
                let part = values.len() / N;
                let values = if has { &values[position * part..][..part] } else { &values[..] };
                let operator = single.tensor_type(operator.value).clone();
                Tensor::from_f64(operator.dtype, operator.shape, values).unwrap()
            })
            .collect();
        let found = evaluate(&single, &slices).unwrap().remove(0).to_f64();
        assert_eq!(found, &want[position * length..][..length], "{name}: slice {position}");
    }
    // One slice of one input changed.
    for index in 0..given.len() {
        let operator = &given[index];
        if operator.shape().first() != Some(&N) {
            continue;
        }
        let mut values = operator.to_f64();
        let part = values.len() / N;
        values[3 * part..4 * part].iter_mut().for_each(|value| *value = 1.0);
        let mut changed = given.clone();
        changed[index] = Tensor::from_f64(operator.dtype(), operator.shape(), &values).unwrap();
        let found = evaluate(&whole, &changed).unwrap().remove(0).to_f64();
        let differs = |position: usize| {
            let range = position * length..(position + 1) * length;
            found[range.clone()] != want[range]
        };
        assert!((0..N).all(|position| position == 3 || !differs(position)), "{name}");
    }
}

fn refused(build: Build, words: &str) {
    let whole = graph(build, N);
    let error = prove(&whole, N).expect_err(words);
    assert!(error.contains(words), "{error}");
}

#[test]
fn what_maps_over_the_dimension_is_shown() {
    let cases: &[(&str, Build)] = &[
        ("unary and a constant of the shape of a slice", |c| {
            let x = c.input(&[c.n, 5]);
            let y = c.add(Unary::new(UnaryFunction::Tanh), &[x]);
            let b = c.constant(&[5]);
            c.sum(y, b)
        }),
        ("a constant that is equal at all positions", |c| {
            let x = c.input(&[c.n, 5]);
            let b = c.equal(&[c.n, 5]);
            c.sum(b, x)
        }),
        ("an expanded mask", |c| {
            let (x, mask) = (c.input(&[c.n, 4, 4]), c.constant(&[1, 4, 4]));
            let mask = c.add(Expand { shape: vec![c.n, 4, 4] }, &[mask]);
            c.sum(x, mask)
        }),
        ("products with weights, and of two inputs", |c| {
            let (x, w) = (c.input(&[c.n, 3, 5]), c.constant(&[5, 5]));
            let y = c.add(MatMul {}, &[x, w]);
            let z = c.transpose(x, &[0, 2, 1]);
            c.add(MatMul {}, &[y, z])
        }),
        ("rows of a matrix", |c| {
            let (x, w) = (c.input(&[c.n, 5]), c.constant(&[5, 4]));
            c.add(MatMul {}, &[x, w])
        }),
        ("columns of a matrix", |c| {
            let (x, w) = (c.input(&[c.n, 5]), c.constant(&[4, 5]));
            let x = c.transpose(x, &[1, 0]);
            let y = c.add(MatMul {}, &[w, x]);
            c.transpose(y, &[1, 0])
        }),
        ("heads merged with the batch", |c| {
            let x = c.input(&[c.n, 3, 8]);
            let y = c.reshape(x, &[c.n, 3, 2, 4]);
            let y = c.transpose(y, &[0, 2, 1, 3]);
            let y = c.reshape(y, &[c.n * 2, 3, 4]);
            let z = c.transpose(y, &[0, 2, 1]);
            let y = c.add(MatMul {}, &[y, z]);
            let y = c.add(Softmax { axis: 2, log: false }, &[y]);
            c.reshape(y, &[c.n, 2, 9])
        }),
        ("flattened to rows", |c| {
            let (x, w) = (c.input(&[c.n, 3, 4]), c.constant(&[4, 2]));
            let y = c.reshape(x, &[c.n * 3, 4]);
            let y = c.add(MatMul {}, &[y, w]);
            c.reshape(y, &[c.n, 6])
        }),
        ("convolution, pool, batch normalisation and the mean", |c| {
            let (x, w) = (c.input(&[c.n, 2, 5, 5]), c.constant(&[3, 2, 3, 3]));
            let window = Window {
                strides: vec![1, 1],
                dilations: vec![1, 1],
                pads_begin: vec![1, 1],
                pads_end: vec![1, 1],
            };
            let y = c.add(Convolution { window, groups: 1 }, &[x, w]);
            let (s, v) = (c.constant(&[3]), c.equal(&[3]));
            let y = c.add(BatchNormalization { epsilon: 1e-5 }, &[y, s, s, s, v]);
            let function = ReduceFunction::Mean;
            c.add(Reduce { function, axes: vec![2, 3], keep_axes: false }, &[y])
        }),
        ("layer normalisation", |c| {
            let (x, s) = (c.input(&[c.n, 3, 4]), c.constant(&[4]));
            c.add(LayerNormalization { axis: 2, epsilon: 1e-5 }, &[x, s, s])
        }),
        ("concatenation with an expanded token, and a slice", |c| {
            let (x, token) = (c.input(&[c.n, 3, 2]), c.constant(&[1, 1, 2]));
            let token = c.add(Expand { shape: vec![c.n, 1, 2] }, &[token]);
            let y = c.add(Concat { axis: 1 }, &[token, x]);
            let (starts, steps) = (vec![0, 1, 0], vec![1, 2, 1]);
            c.add(Slice { starts, steps, extents: vec![c.n, 2, 2] }, &[y])
        }),
        ("an embedding", |c| {
            let (i, table) = (c.indices(&[c.n, 4]), c.constant(&[3, 5]));
            c.add(Gather { axis: 0 }, &[table, i])
        }),
        ("a mask that is flattened and taken apart by counting", |c| {
            let x = c.input(&[c.n, 3]);
            let y = c.reshape(x, &[c.n * 3]);
            let positions: Vec<i64> = (0..c.n as i64).flat_map(|b| [3 * b + 2, 3 * b]).collect();
            let positions = Tensor::from_elements([c.n, 1, 2], &positions).unwrap();
            let positions = c.graph.add_constant("positions", positions);
            c.add(Gather { axis: 0 }, &[y, positions])
        }),
        ("elements taken along another axis", |c| {
            let x = c.input(&[c.n, 4, 2]);
            let p = c.positions(&[2, 0, 2]);
            let y = c.add(Gather { axis: 1 }, &[x, p]);
            let f = ReduceFunction::Maximum;
            c.add(Reduce { function: f, axes: vec![1], keep_axes: true }, &[y])
        }),
        ("elements taken by indices of the batch", |c| {
            let (x, i) = (c.input(&[c.n, 4]), c.indices(&[c.n, 2]));
            c.add(GatherElements { axis: 1 }, &[x, i])
        }),
        ("one hot, and the largest", |c| {
            let i = c.indices(&[c.n, 2]);
            let values = c.constant(&[2]);
            let y = c.add(OneHot { depth: 4, axis: 0 }, &[i, values]);
            let y = c.transpose(y, &[1, 0, 2]);
            let y = c.add(
                CumulativeSum {
                    axis: 2,
                    exclusive: false,
                    reverse: false,
                    product: false,
                    in_rows: false,
                },
                &[y],
            );
            c.add(TopK::new(2, 1, true), &[y])
        }),
        ("padding and repeating other axes", |c| {
            let x = c.input(&[c.n, 3]);
            let (begin, end) = (vec![0, 1], vec![0, 2]);
            let y = c.add(Pad { begin, end, mode: PadMode::Constant, value: 0.0 }, &[x]);
            c.add(Tile { repeats: vec![1, 2] }, &[y])
        }),
        ("a choice by a condition", |c| {
            let (x, z) = (c.input(&[c.n, 3]), c.equal(&[1, 1]));
            let test = c.add(Binary::new(BinaryFunction::Less), &[x, z]);
            c.add(Select {}, &[test, x, z])
        }),
        ("an input without the dimension", |c| {
            let (x, w) = (c.input(&[c.n, 3]), c.input(&[3, 3]));
            c.add(MatMul {}, &[x, w])
        }),
    ];
    for (name, build) in cases {
        shown(name, *build);
    }
}

#[test]
fn what_mixes_positions_is_refused_by_name() {
    let cases: &[(&str, Build)] = &[
        ("node 'node' (softmax) normalises along the dimension", |c| {
            let x = c.input(&[c.n, 3]);
            c.add(Softmax { axis: 0, log: false }, &[x])
        }),
        ("(reduce) reduces along the dimension", |c| {
            let x = c.input(&[c.n, 3]);
            c.add(Reduce { function: ReduceFunction::Mean, axes: vec![0], keep_axes: true }, &[x])
        }),
        ("(matmul) adds up products along the dimension", |c| {
            let x = c.input(&[c.n, 3]);
            let y = c.transpose(x, &[1, 0]);
            c.add(MatMul {}, &[y, x])
        }),
        ("(matmul) has the dimension in its operands along different axes", |c| {
            let x = c.input(&[c.n, 3]);
            let y = c.transpose(x, &[1, 0]);
            c.add(MatMul {}, &[x, y])
        }),
        ("(binary) has the dimension along axis", |c| {
            let x = c.input(&[c.n, c.n]);
            let y = c.transpose(x, &[1, 0]);
            c.sum(x, y)
        }),
        ("(binary) reads a constant of f32[7, 1], whose values differ along the dimension", |c| {
            let (x, b) = (c.input(&[c.n, 3]), c.constant(&[c.n, 1]));
            c.sum(x, b)
        }),
        ("(cumulative_sum) adds up along the dimension", |c| {
            let x = c.input(&[c.n, 3]);
            let operator = CumulativeSum {
                axis: 0,
                exclusive: false,
                reverse: false,
                product: false,
                in_rows: false,
            };
            c.add(operator, &[x])
        }),
        ("(reshape) divides the dimension among axes", |c| {
            let x = c.input(&[c.n, 6]);
            c.reshape(x, &[2, 3 * c.n])
        }),
        ("(slice) takes positions along the dimension from others", |c| {
            let x = c.input(&[c.n, 3]);
            let (starts, steps) = (vec![c.n - 1, 0], vec![-1, 1]);
            c.add(Slice { starts, steps, extents: vec![c.n, 3] }, &[x])
        }),
        ("(gather) takes positions along the dimension by index", |c| {
            let (x, p) = (c.input(&[c.n, 3]), c.positions(&[1, 0]));
            c.add(Gather { axis: 0 }, &[x, p])
        }),
        ("(concat) joins its operands along the dimension", |c| {
            let x = c.input(&[c.n, 3]);
            c.add(Concat { axis: 0 }, &[x, x])
        }),
        ("(reduce) reduces along the dimension", |c| {
            // The number of positions, by what is found to repeat along the dimension only later.
            let (x, ones) = (c.input(&[c.n, 3]), c.equal(&[c.n, 3]));
            let function = ReduceFunction::Sum;
            let count = c.add(Reduce { function, axes: vec![0, 1], keep_axes: false }, &[ones]);
            let y = c.sum(x, ones);
            c.sum(y, count)
        }),
        ("(pad) pads along the dimension", |c| {
            let x = c.input(&[c.n, 3]);
            let (begin, end) = (vec![1, 0], vec![0, 0]);
            c.add(Pad { begin, end, mode: PadMode::Constant, value: 0.0 }, &[x])
        }),
        ("(top_k) sorts along the dimension", |c| {
            let x = c.input(&[c.n, 3]);
            c.add(TopK::new(1, 0, true), &[x])
        }),
        ("(layer_normalization) normalises along the dimension", |c| {
            let (x, s) = (c.input(&[c.n, 3]), c.equal(&[1, 3]));
            c.add(LayerNormalization { axis: 0, epsilon: 1e-5 }, &[x, s])
        }),
        ("(convolution) computes across the dimension, which is axis 1", |c| {
            let (x, w) = (c.input(&[c.n, 2, 5, 5]), c.constant(&[3, c.n, 1, 1]));
            let x = c.transpose(x, &[1, 0, 2, 3]);
            let (one, none) = (vec![1, 1], vec![0, 0]);
            let window = Window {
                strides: one.clone(),
                dilations: one,
                pads_begin: none.clone(),
                pads_end: none,
            };
            c.add(Convolution { window, groups: 1 }, &[x, w])
        }),
        ("(non_zero) is not followed along an open dimension", |c| {
            let x = c.input(&[c.n, 3]);
            c.add(NonZero {}, &[x])
        }),
        ("output 'y' has the dimension at axis 1: it has to be the outermost one", |c| {
            let x = c.input(&[c.n, 3]);
            c.transpose(x, &[1, 0])
        }),
        ("output 'y' has the dimension merged with another one", |c| {
            let x = c.input(&[c.n, 3]);
            c.reshape(x, &[3 * c.n])
        }),
        ("output 'y' does not have the dimension", |c| {
            c.input(&[c.n, 3]);
            c.constant(&[3])
        }),
    ];
    for (words, build) in cases {
        refused(*build, words);
    }
}

/// What depends on the size itself is seen by comparing sizes.
#[test]
fn a_function_of_the_size_is_refused() {
    let cases: &[(&str, Build)] = &[
        (
            "at 2 the model computes something else than at 7: node 'node' (binary) reads a constant f32[]",
            |c| {
                let x = c.input(&[c.n, 3]);
                let scale = c.graph.add_constant("n", Tensor::scalar(c.n as f32));
                c.sum(x, scale)
            },
        ),
        ("node 'node' (unary) is another operation", |c| {
            let x = c.input(&[c.n, 3]);
            let operator = if c.n > 4 { UnaryFunction::Tanh } else { UnaryFunction::Exp };
            c.add(Unary::new(operator), &[x])
        }),
        ("it has 2 nodes, not 1", |c| {
            let x = c.input(&[c.n, 3]);
            let y = c.add(Unary::new(UnaryFunction::Tanh), &[x]);
            if c.n > 4 { y } else { c.add(Unary::new(UnaryFunction::Tanh), &[y]) }
        }),
        ("reads a constant", |c| {
            let (x, b) = (c.input(&[c.n, 3]), c.n as f32);
            let tensor = Tensor::from_elements([c.n, 3], &vec![b; 3 * c.n]).unwrap();
            let b = c.graph.add_constant("b", tensor);
            c.sum(x, b)
        }),
    ];
    for (words, build) in cases {
        let whole = graph(*build, N);
        let proof = prove(&whole, N).unwrap();
        let error = proof.proves_at(&whole, &graph(*build, 2), 2).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
