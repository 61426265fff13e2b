//! Windows that move on by several positions, and what samples positions up and down: the number of positions follows
//! from the size by a division.

use crate::case::{Build, Case, check_sizes, padded_at};
use hone_graph::ValueId;
use hone_ops::*;

const BOUND: usize = 29;
/// All remainders of two and of three.
const WITNESSES: [usize; 4] = [26, 24, 19, 17];

fn check(name: &str, build: Build) -> hone_passes::PaddedGraph {
    check_sizes(name, build, (BOUND, 1), &WITNESSES)
}

/// The positions of a value along its last axis.
fn last(c: &Case, value: ValueId) -> usize {
    *c.graph.tensor_type(value).shape.last().unwrap()
}

fn strided(stride: usize, pads: [usize; 2]) -> Window {
    let [begin, end] = pads;
    let window = Window::plain(1);
    Window { strides: vec![stride], pads_begin: vec![begin], pads_end: vec![end], ..window }
}

fn convolution(c: &mut Case, x: ValueId, shape: [usize; 3], window: Window) -> ValueId {
    let weights = c.weights(&shape);
    c.add(Convolution { window, groups: 1 }, &[x, weights])
}

fn transposed(c: &mut Case, x: ValueId, shape: [usize; 3], window: Window) -> ValueId {
    let weights = c.weights(&shape);
    let output_padding = vec![0];
    c.add(ConvolutionTranspose { window, groups: 1, output_padding }, &[x, weights])
}

/// Attention of all positions of `[1, width, positions]` to each other, and a mean of them.
fn attention(c: &mut Case, x: ValueId, width: usize) -> Vec<ValueId> {
    let x = c.transpose(x, &[0, 2, 1]);
    let x = c.normalized(x, 2, width);
    let (query, key, value) =
        (c.linear(x, width, width), c.linear(x, width, width), c.linear(x, width, width));
    let key = c.transpose(key, &[0, 2, 1]);
    let scores = c.matmul(query, key);
    let weights = c.softmax(scores, 2);
    let seen = c.matmul(weights, value);
    let all = c.sum(seen, x);
    vec![all, c.reduce(ReduceFunction::Mean, all, &[1])]
}

#[test]
fn a_stride_halves_the_positions_that_attend() {
    let graph = check("an encoder with a stride of two", |c| {
        let x = c.floats(&[1, 3, c.n], 2);
        let x = convolution(c, x, [4, 3, 3], strided(1, [1, 1]));
        let x = convolution(c, x, [4, 4, 3], strided(2, [1, 1]));
        // Rows of a table of positions, as many as there are.
        let count = last(c, x);
        let table = c.filled(&[4, count], |index| index[1] as f32 / (index[0] + 1) as f32);
        let x = c.sum(x, table);
        attention(c, x, 4)
    });
    assert_eq!(graph.axes(), [Some(1), None]);
    assert_eq!(graph.least, 1);
    assert_eq!(graph.outputs[0].unwrap().length.at(7), 4);
}

#[test]
fn features_of_a_signal_have_a_least_size() {
    let graph = check("convolutions of wav2vec", |c| {
        let x = c.floats(&[1, 1, c.n], 2);
        let x = convolution(c, x, [4, 1, 5], strided(3, [0, 0]));
        let (scale, bias) = (c.weights(&[4]), c.weights(&[4]));
        let x = c.add(InstanceNormalization { epsilon: 1e-5 }, &[x, scale, bias]);
        let x = c.unary(UnaryFunction::Relu, x);
        let x = convolution(c, x, [4, 4, 3], strided(2, [0, 0]));
        let grouped = convolution(c, x, [4, 4, 2], strided(1, [1, 1]));
        let count = last(c, x);
        let grouped = c.slice(grouped, &[(0, 1), (0, 4), (0, count)]);
        let x = c.sum(x, grouped);
        attention(c, x, 4)
    });
    assert_eq!(graph.least, 11);
}

#[test]
fn normalisations_count_what_is_there() {
    check("a norm over groups", |c| {
        let x = c.floats(&[2, 4, c.n], 2);
        let x = convolution(c, x, [6, 4, 3], strided(2, [1, 0]));
        let (scale, bias) = (c.weights(&[6]), c.weights(&[6]));
        vec![c.add(GroupNormalization { groups: 2, epsilon: 1e-5 }, &[x, scale, bias])]
    });
    check("a norm over everything, joined", |c| {
        let x = c.floats(&[2, 4, c.n], 2);
        let rows = c.reshape(x, &[2, 1, 4 * c.n]);
        let (scale, bias) = (c.weights(&[1]), c.weights(&[1]));
        let x = c.add(InstanceNormalization { epsilon: 1e-5 }, &[rows, scale, bias]);
        vec![c.reshape(x, &[2, 4, c.n])]
    });
}

#[test]
fn pools_divide_by_what_they_see() {
    let builds: [Build; 4] = [
        |c| pooled(c, PoolKind::Average, true),
        |c| pooled(c, PoolKind::Average, false),
        |c| pooled(c, PoolKind::Maximum, false),
        |c| pooled(c, PoolKind::Lp(2), true),
    ];
    for (number, build) in builds.into_iter().enumerate() {
        check(&format!("pool {number}"), build);
    }
}

/// The mean of what two windows beyond both ends see of an image whose columns go with the size.
#[test]
fn pools_of_images_divide_by_what_they_see() {
    check("an image", |c| {
        let x = c.floats(&[1, 2, 5, c.n], 3);
        let window = Window {
            strides: vec![2, 2],
            pads_begin: vec![1, 1],
            pads_end: vec![1, 1],
            ..Window::plain(2)
        };
        let kind = PoolKind::Average;
        vec![c.add(Pool { kind, kernel: vec![3, 3], window, count_padding: false }, &[x])]
    });
}

fn pooled(c: &mut Case, kind: PoolKind, count_padding: bool) -> Vec<ValueId> {
    let x = c.floats(&[1, 2, c.n], 2);
    let window = strided(2, [1, 1]);
    vec![c.add(Pool { kind, kernel: vec![3], window, count_padding }, &[x])]
}

/// Rounded up: how far the last window reaches beyond the end goes with the size.
fn rounded_up(c: &mut Case, kind: PoolKind) -> Vec<ValueId> {
    let x = c.floats(&[1, 2, c.n], 2);
    let beyond = (c.n - 3).next_multiple_of(2) + 3 - c.n;
    let window = strided(2, [0, beyond]);
    vec![c.add(Pool { kind, kernel: vec![3], window, count_padding: false }, &[x])]
}

#[test]
fn pools_are_rounded_up() {
    let graph = check("the largest", |c| rounded_up(c, PoolKind::Maximum));
    assert_eq!(graph.outputs[0].unwrap().length.at(8), 4);
    check("the mean", |c| rounded_up(c, PoolKind::Average));
}

#[test]
fn what_is_sampled_up_again_is_joined_at_multiples() {
    let build: Build = |c| {
        let x = c.floats(&[1, 2, c.n], 2);
        let first = convolution(c, x, [4, 2, 3], strided(2, [1, 1]));
        let second = convolution(c, first, [4, 4, 4], strided(2, [1, 1]));
        let up = transposed(c, second, [4, 4, 2], strided(2, [0, 0]));
        let up = c.add(Concat { axis: 1 }, &[up, first]);
        let up = transposed(c, up, [8, 2, 4], strided(2, [1, 1]));
        vec![c.sum(up, x), second]
    };
    let graph = check_sizes("a network over time", build, (32, 4), &[28, 20, 12]);
    let length = |output: usize| graph.outputs[output].unwrap().length;
    assert_eq!((length(0).at(8), length(1).at(8)), (8, 2));
}

#[test]
fn transposed_convolutions_multiply() {
    let graph = check("a decoder of audio", |c| {
        let x = c.floats(&[1, 3, c.n], 2);
        let up = transposed(c, x, [3, 4, 5], strided(3, [1, 1]));
        let (scale, bias) = (c.weights(&[4]), c.weights(&[4]));
        let up = c.add(InstanceNormalization { epsilon: 1e-5 }, &[up, scale, bias]);
        let down = convolution(c, up, [2, 4, 3], strided(3, [0, 0]));
        vec![up, down, c.reduce(ReduceFunction::Maximum, up, &[2])]
    });
    let length = |output: usize| graph.outputs[output].unwrap().length;
    assert_eq!((length(0).at(5), length(1).at(5)), (15, 5));
    // Frames one after another, and back.
    check("frames", |c| {
        let x = c.floats(&[1, c.n, 6], 1);
        let line = c.reshape(x, &[1, 1, 6 * c.n]);
        let line = convolution(c, line, [1, 1, 3], strided(1, [1, 1]));
        let frames = c.reshape(line, &[1, c.n, 6]);
        let weights = c.softmax(line, 2);
        vec![frames, weights, c.reduce(ReduceFunction::Sum, line, &[2])]
    });
}

fn resized(c: &mut Case, mode: ResizeMode, coordinates: CoordinateMode) -> Vec<ValueId> {
    let x = c.floats(&[1, 2, c.n], 2);
    let x = convolution(c, x, [2, 2, 3], strided(2, [1, 1]));
    let (scales, sizes) = (vec![1.0, 1.0, 2.0], vec![1, 2, 2 * last(c, x)]);
    let (antialias, extrapolation, region) = (false, 0.0, Vec::new());
    let up = Resize { mode, coordinates, scales, sizes, antialias, extrapolation, region };
    vec![c.add(up, &[x])]
}

#[test]
fn positions_are_repeated_or_lie_between_others() {
    check("nearest", |c| {
        let rounding = NearestRounding::Floor;
        resized(c, ResizeMode::Nearest { rounding }, CoordinateMode::Asymmetric)
    });
    check("linear", |c| resized(c, ResizeMode::Linear, CoordinateMode::HalfPixel));
    check("linear from the first", |c| resized(c, ResizeMode::Linear, CoordinateMode::Asymmetric));
    check("cubic", |c| {
        let mode = ResizeMode::Cubic { coefficient_a: -0.75, exclude_outside: false };
        resized(c, mode, CoordinateMode::HalfPixel)
    });
}

#[test]
fn ends_are_mirrored() {
    for mode in [PadMode::Edge, PadMode::Reflect] {
        let build: Build = match mode {
            PadMode::Edge => |c| around(c, PadMode::Edge),
            _ => |c| around(c, PadMode::Reflect),
        };
        let graph = check("an end", build);
        assert_eq!(graph.least, if mode == PadMode::Edge { 1 } else { 4 });
    }
}

fn around(c: &mut Case, mode: PadMode) -> Vec<ValueId> {
    let x = c.floats(&[1, 2, c.n], 2);
    let (begin, end) = (vec![0, 0, 2], vec![0, 0, 3]);
    vec![c.add(Pad { begin, end, mode, value: 0.0 }, &[x])]
}

#[test]
fn every_second_position_is_taken() {
    check("a slice with a step", |c| {
        let x = c.floats(&[1, c.n, 3], 1);
        let extents = vec![1, (c.n - 1).div_ceil(2), 3];
        let even = c.add(
            Slice { starts: vec![0, 1, 0], steps: vec![1, 2, 1], extents: extents.clone() },
            &[x],
        );
        vec![even, c.reduce(ReduceFunction::Mean, even, &[1])]
    });
}

#[test]
fn blocks_of_positions_are_joined_at_multiples() {
    let build: Build = |c| {
        let x = c.floats(&[1, c.n, 3], 1);
        let blocks = c.reshape(x, &[1, c.n / 4, 12]);
        let mixed = c.linear(blocks, 12, 12);
        let all = c.transpose(mixed, &[0, 2, 1]);
        let mut outputs = attention(c, all, 12);
        outputs.push(c.reshape(mixed, &[1, c.n, 3]));
        outputs
    };
    check_sizes("patches", build, (32, 4), &[28, 20, 12]);
    let error = padded_at(
        |c| {
            let x = c.floats(&[1, c.n, 3], 1);
            vec![c.reshape(x, &[1, c.n / 4, 12])]
        },
        (32, 1),
        &[28, 20, 12],
    );
    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.contains("joins the dimension with another axis, or divides it"), "{error}");
}

#[test]
fn positions_more_and_fewer_are_results() {
    let graph = check("one before, one cut off", |c| {
        let x = c.floats(&[c.n, 3], 0);
        let token = c.weights(&[1, 3]);
        let table = c.filled(&[2 * c.n, 3], |index| index[0] as f32);
        let sum = c.reduce(ReduceFunction::Sum, table, &[0]);
        let cut = c.slice(x, &[(1, c.n - 1), (0, 3)]);
        vec![c.add(Concat { axis: 0 }, &[token, x]), cut, sum]
    });
    let lengths = [0, 1].map(|output| graph.outputs[output].unwrap().length.at(7));
    assert_eq!(lengths, [8, 6]);
}

/// At neighbouring sizes a stride may give as many results more as there are positions more: the number of results follows
/// from the stride.
#[test]
fn strides_are_read_from_the_operation() {
    let build: Build = |c| {
        let x = c.floats(&[1, 1, c.n], 2);
        vec![convolution(c, x, [1, 1, 1], strided(2, [0, 3]))]
    };
    let graph = check_sizes("a stride", build, (4, 1), &[3]);
    assert_eq!(graph.outputs[0].unwrap().length.at(2), 3);
}

#[test]
fn what_several_lengths_fit_is_refused() {
    // At odd sizes alone both constants have as many positions as there are.
    let build: Build = |c| {
        let x = c.floats(&[1, 1, c.n], 2);
        let first = convolution(c, x, [1, 1, 1], strided(2, [0, 0]));
        let second = convolution(c, x, [1, 1, 1], strided(2, [0, 1]));
        let count = c.n.div_ceil(2);
        let table = c.filled(&[1, 1, count], |_| 1.0);
        let sum = c.reduce(ReduceFunction::Sum, table, &[2]);
        vec![first, second, sum]
    };
    let error = padded_at(build, (29, 1), &[25, 21, 17]).map(drop).unwrap_err().to_string();
    assert!(error.contains("cannot be told"), "{error}");
    // Positions of one and of the other are the same at these sizes, and not at all.
    let build: Build = |c| {
        let x = c.floats(&[1, 1, c.n], 2);
        let first = convolution(c, x, [1, 1, 2], strided(2, [0, 0]));
        let second = convolution(c, x, [1, 1, 1], strided(2, [0, 0]));
        vec![if c.n % 2 == 0 { c.sum(first, second) } else { first }]
    };
    let error = padded_at(build, (28, 1), &[26, 20]).map(drop).unwrap_err().to_string();
    assert!(error.contains("cannot be told"), "{error}");
}
