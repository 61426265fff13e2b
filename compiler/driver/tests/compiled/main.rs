//! Small graphs through the whole path: what the artifact computes is what the reference computes.
//! Scheduled programs are interpreted first, so that a wrong schedule is told apart from wrong code.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod case;
mod joined;
mod recurrent;
mod sums;

use case::Case;
use hone_ops::{
    BinaryFunction, Convolution, ConvolutionTranspose, DequantizeBlocks, GroupNormalization,
    InstanceNormalization, LayerNormalization, MatMul, Pool, PoolKind, Reduce, ReduceFunction,
    Reshape, Softmax, Transpose, UnaryFunction, WeightBits, Window,
};
use hone_types::DataType;

fn window(stride: usize, pad: usize) -> Window {
    Window {
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        pads_begin: vec![pad; 2],
        pads_end: vec![pad; 2],
    }
}

fn convolution(shape: [usize; 4], outputs: usize, kernel: usize, stride: usize, groups: usize) {
    convolution_by(&shape, outputs, &[kernel; 2], window(stride, kernel / 2), groups);
}

fn convolution_by(
    shape: &[usize],
    outputs: usize,
    kernel: &[usize],
    window: Window,
    groups: usize,
) {
    let mut case = Case::new();
    let x = case.input(shape);
    let w = case.constant(&[&[outputs, shape[1] / groups], kernel].concat());
    let bias = case.constant(&[outputs]);
    let y = case.node(Convolution { window, groups }, &[x, w, bias]);
    let y = case.unary(UnaryFunction::Relu, y);
    case.check(y);
}

/// A window over `axes` axes that leaves room for its dilation.
fn dilated(axes: usize, dilation: usize) -> Window {
    Window {
        strides: vec![1; axes],
        dilations: vec![dilation; axes],
        pads_begin: vec![dilation; axes],
        pads_end: vec![dilation; axes],
    }
}

#[test]
fn lone_convolutions_of_single_elements() {
    // Products of plain values, with positions that fill vectors and that do not; of one image alone.
    convolution([1, 64, 12, 12], 48, 1, 1, 1);
    convolution([1, 24, 9, 11], 40, 1, 1, 1);
    convolution([3, 64, 12, 12], 48, 1, 1, 1);
    let mut case = Case::new();
    let (x, w) = (case.input(&[1, 32, 10, 10]), case.input(&[32, 32, 1, 1]));
    let bias = case.input(&[32]);
    let product = Convolution { window: window(1, 0), groups: 1 };
    let y = case.node(product, &[x, w, bias]);
    let y = case.binary(BinaryFunction::Add, y, x);
    case.check(y);
}

#[test]
fn convolutions_of_many_shapes() {
    convolution([1, 3, 17, 19], 24, 3, 2, 1);
    convolution([1, 20, 9, 11], 40, 3, 1, 1);
    convolution([2, 64, 7, 7], 48, 1, 1, 1);
    convolution([1, 32, 29, 31], 17, 1, 1, 1);
    convolution([1, 32, 13, 13], 64, 1, 2, 1);
    convolution([1, 64, 8, 8], 64, 3, 1, 2);
    convolution([1, 5, 6, 7], 1, 5, 1, 1);
}

/// Groups that fill no vectors.
#[test]
fn grouped_convolutions() {
    convolution([1, 64, 9, 9], 64, 3, 1, 16);
    convolution([1, 104, 7, 8], 104, 3, 2, 13);
    convolution([2, 16, 6, 6], 32, 3, 1, 16);
    convolution([1, 15, 6, 6], 21, 1, 1, 3);
    convolution([1, 40, 5, 5], 40, 3, 1, 2);
}

/// Groups that end inside of vectors of any width: several periods of groups and a rest, one period, more or
/// fewer results than inputs, one group in each sample's last block.
#[test]
fn groups_that_end_inside_of_vectors() {
    convolution([1, 120, 9, 9], 120, 3, 1, 5);
    convolution([2, 88, 6, 7], 88, 3, 2, 4);
    convolution([1, 72, 7, 7], 144, 1, 1, 3);
    convolution([1, 168, 5, 6], 84, 3, 1, 7);
    convolution([1, 100, 5, 5], 100, 3, 1, 5);
    convolution([1, 36, 8, 8], 36, 3, 1, 3);
}

/// Shapes whose convolution is computed by minimal filtering, on vectors of this machine's width.
#[test]
fn convolutions_by_tiles() {
    convolution([1, 64, 16, 24], 64, 3, 1, 1);
    convolution([2, 128, 12, 12], 80, 3, 1, 1);
    convolution([1, 128, 14, 14], 128, 3, 1, 1);
    convolution([1, 64, 35, 29], 64, 3, 1, 1);
    // Over frames, too, each of which is transformed once for all windows that read it.
    let every_other = Window { strides: vec![2, 1, 1], ..dilated(3, 1) };
    convolution_by(&[1, 32, 3, 12, 12], 32, &[3, 3, 3], every_other, 1);
}

/// Means of many positions of each channel, in two stages.
#[test]
fn long_reductions_of_channels_in_blocks() {
    for function in [ReduceFunction::Mean, ReduceFunction::SumSquare] {
        let mut case = Case::new();
        let x = case.input(&[1, 3, 70, 80]);
        let w = case.constant(&[21, 3, 1, 1]);
        let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
        let y = case.node(Reduce { function, axes: vec![3, 2], keep_axes: false }, &[y]);
        case.check(y);
    }
}

#[test]
fn depthwise_convolutions() {
    convolution([1, 24, 15, 15], 24, 3, 1, 24);
    convolution([1, 32, 14, 14], 32, 5, 2, 32);
    convolution([1, 7, 9, 30], 7, 3, 1, 7);
}

/// Convolutions over one axis and over three.
#[test]
fn convolutions_over_other_axes() {
    convolution_by(&[1, 40, 50], 24, &[3], dilated(1, 4), 1);
    let long = Window { strides: vec![5], ..Window::plain(1) };
    convolution_by(&[2, 1, 400], 32, &[10], long, 1);
    convolution_by(&[1, 64, 30], 64, &[4], Window::plain(1), 4);
    convolution_by(&[1, 20, 30], 20, &[3], dilated(1, 1), 20);
    convolution_by(&[1, 3, 5, 12, 11], 16, &[3, 3, 3], dilated(3, 1), 1);
    convolution_by(&[1, 16, 4, 7, 7], 40, &[3, 1, 1], Window::plain(3), 1);
    convolution_by(&[1, 32, 4, 7, 7], 32, &[3, 3, 3], dilated(3, 1), 32);
}

#[test]
fn pools_over_other_axes() {
    for (shape, axes) in [(vec![1, 24, 20], 1), (vec![1, 24, 6, 8, 8], 3)] {
        let mut case = Case::new();
        let x = case.input(&shape);
        let w = case.constant(&[&[40, 24], &vec![1; axes][..]].concat());
        let y = case.node(Convolution { window: Window::plain(axes), groups: 1 }, &[x, w]);
        let window = Window { strides: vec![2; axes], ..dilated(axes, 1) };
        let kernel = vec![3; axes];
        let y =
            case.node(Pool { kind: PoolKind::Average, kernel, window, count_padding: false }, &[y]);
        case.check(y);
    }
}

#[test]
fn reductions_of_channels_in_blocks() {
    for (axes, keep_axes) in [(vec![2, 3], true), (vec![2, 3], false), (vec![3], false)] {
        let mut case = Case::new();
        let x = case.input(&[2, 24, 6, 9]);
        let w = case.constant(&[40, 24, 1, 1]);
        let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
        let maximum = Reduce { function: ReduceFunction::Maximum, axes, keep_axes };
        let y = case.node(maximum, &[y]);
        let y = case.unary(UnaryFunction::Relu, y);
        case.check(y);
    }
}

#[test]
fn instances_are_normalized_in_blocks() {
    for channels in [32, 21] {
        let mut case = Case::new();
        let x = case.input(&[2, 24, 6, 9]);
        let w = case.constant(&[channels, 24, 1, 1]);
        let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
        let (scale, bias) = (case.constant(&[channels]), case.constant(&[channels]));
        let y = case.node(InstanceNormalization { epsilon: 1e-5 }, &[y, scale, bias]);
        let y = case.unary(UnaryFunction::Relu, y);
        case.check(y);
    }
}

/// All channels, groups that fill blocks, groups that do not; some as exporters wrote them, between reshapes.
#[test]
fn groups_are_normalized_in_blocks() {
    for (channels, groups) in [(32, 1), (64, 4), (24, 8), (21, 3)] {
        for reshaped in [false, true] {
            let mut case = Case::new();
            let x = case.input(&[2, 24, 6, 9]);
            let w = case.constant(&[channels, 24, 1, 1]);
            let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
            let y = if reshaped {
                let (scale, bias) = (case.constant(&[groups]), case.constant(&[groups]));
                let y = case.node(Reshape { shape: vec![2, groups, channels / groups * 54] }, &[y]);
                let y = case.node(InstanceNormalization { epsilon: 1e-5 }, &[y, scale, bias]);
                case.node(Reshape { shape: vec![2, channels, 6, 9] }, &[y])
            } else {
                let (scale, bias) = (case.constant(&[channels]), case.constant(&[channels]));
                case.node(GroupNormalization { groups, epsilon: 1e-5 }, &[y, scale, bias])
            };
            let y = case.unary(UnaryFunction::Relu, y);
            let w = case.constant(&[16, channels, 1, 1]);
            let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[y, w]);
            case.check(y);
        }
    }
}

/// Windows that mostly read padding, and images apart.
#[test]
fn dilated_convolutions() {
    convolution_by(&[1, 64, 20, 17], 64, &[3, 3], dilated(2, 2), 1);
    convolution_by(&[2, 128, 16, 16], 64, &[3, 3], dilated(2, 4), 1);
    convolution_by(&[1, 32, 14, 13], 48, &[3, 3], dilated(2, 10), 1);
    convolution_by(&[1, 32, 8, 9], 16, &[3, 3], dilated(2, 9), 1);
    convolution_by(&[1, 32, 1, 5], 16, &[3, 3], dilated(2, 1), 1);
}

#[test]
fn residual_sum_and_activation() {
    let mut case = Case::new();
    let x = case.input(&[1, 32, 15, 15]);
    let w = case.constant(&[32, 32, 1, 1]);
    let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
    let sum = case.binary(BinaryFunction::Add, y, x);
    let gate = case.unary(UnaryFunction::Sigmoid, sum);
    let output = case.binary(BinaryFunction::Multiply, sum, gate);
    case.check(output);
}

/// Products of bytes less a zero point, which is a constant or made from the input.
#[test]
fn products_of_bytes() {
    for computed in [false, true] {
        let mut case = Case::new();
        let (bytes, shifted) = case.bytes(&[7, 64]);
        let zero = if computed {
            let axes = vec![0, 1];
            let most = Reduce { function: ReduceFunction::Maximum, axes, keep_axes: false };
            let most = case.node(most, &[shifted]);
            case.cast(DataType::I32, most)
        } else {
            case.number(128.0, DataType::I32)
        };
        let wide = case.cast(DataType::I32, bytes);
        let centered = case.binary(BinaryFunction::Subtract, wide, zero);
        let weights = case.integers(DataType::I32, &[64, 50]);
        let sums = case.node(MatMul {}, &[centered, weights]);
        let y = case.cast(DataType::F32, sums);
        case.check(y);
    }
}

/// Sums of products of bytes, each less a zero point and times a scale, and what reads such bytes beside.
#[test]
fn products_of_scaled_bytes() {
    // Groups that are merged, the last of them with filler, those that fill blocks, and those that end inside of them.
    for (shape, outputs, stride, groups) in [
        ([1, 32, 9, 8], 40, 1, 1),
        ([2, 3, 10, 11], 32, 2, 1),
        ([1, 32, 9, 8], 64, 1, 8),
        ([1, 40, 9, 8], 40, 2, 5),
        ([1, 64, 7, 8], 64, 1, 2),
        ([1, 72, 9, 8], 72, 1, 3),
    ] {
        let mut case = Case::new();
        let (bytes, _) = case.bytes(&shape);
        let x = case.scaled(bytes, 128.0);
        let w = case.integers(DataType::I8, &[outputs, shape[1] / groups, 3, 3]);
        let w = case.scaled_by_channels(w, outputs);
        let bias = case.constant(&[outputs]);
        let y = case.node(Convolution { window: window(stride, 1), groups }, &[x, w, bias]);
        let y = case.unary(UnaryFunction::Relu, y);
        case.check(y);
    }
    let mut case = Case::new();
    let (bytes, _) = case.bytes(&[1, 32, 5, 6]);
    let x = case.scaled(bytes, 128.0);
    let w = case.integers(DataType::I8, &[32, 16, 4, 4]);
    let (w, window) = (case.scaled(w, 0.0), window(2, 1));
    let transposed = ConvolutionTranspose { window, groups: 1, output_padding: vec![0, 0] };
    let y = case.node(transposed, &[x, w]);
    case.check(y);
    let mut case = Case::new();
    let (bytes, _) = case.bytes(&[5, 64]);
    let x = case.scaled(bytes, 100.0);
    let w = case.integers(DataType::I8, &[64, 24]);
    let w = case.scaled(w, 0.0);
    let y = case.node(MatMul {}, &[x, w]);
    case.check(y);
}

/// Depthwise convolutions between a dequantization and a quantization: bytes are padded with their zero point.
#[test]
fn depthwise_convolutions_of_scaled_bytes() {
    for (stride, zero) in [(1, 0.0), (1, 100.0), (2, 100.0)] {
        let mut case = Case::new();
        let (bytes, _) = case.bytes(&[1, 32, 9, 30]);
        let x = case.scaled(bytes, zero);
        let (w, bias) = (case.constant(&[32, 1, 3, 3]), case.constant(&[32]));
        let y = case.node(Convolution { window: window(stride, 1), groups: 32 }, &[x, w, bias]);
        let steps = case.number(30.0, DataType::F32);
        let y = case.binary(BinaryFunction::Multiply, y, steps);
        let y = case.unary(UnaryFunction::Round, y);
        let zero = case.number(120.0, DataType::F32);
        let y = case.binary(BinaryFunction::Add, y, zero);
        let y = case.cast(DataType::U8, y);
        let y = case.cast(DataType::F32, y);
        case.check(y);
    }
}

/// Bytes that several nodes make numbers of.
#[test]
fn sums_of_scaled_bytes() {
    let mut case = Case::new();
    let (bytes, _) = case.bytes(&[1, 32, 9, 8]);
    let x = case.scaled(bytes, 128.0);
    let w = case.integers(DataType::I8, &[32, 32, 1, 1]);
    let w = case.scaled_by_channels(w, 32);
    let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
    let sum = case.binary(BinaryFunction::Add, y, x);
    let w = case.constant(&[32, 1, 3, 3]);
    let depthwise = case.node(Convolution { window: window(1, 1), groups: 32 }, &[x, w]);
    let y = case.binary(BinaryFunction::Add, sum, depthwise);
    case.check(y);
}

#[test]
fn products_with_constant_weights() {
    for (rows, depth, columns) in
        [(1, 40, 1000), (5, 33, 70), (128, 64, 96), (15, 16, 3), (31, 7, 33)]
    {
        let mut case = Case::new();
        let x = case.input(&[rows, depth]);
        let w = case.constant(&[depth, columns]);
        let bias = case.constant(&[columns]);
        let product = case.node(MatMul {}, &[x, w]);
        let y = case.binary(BinaryFunction::Add, product, bias);
        let y = case.unary(UnaryFunction::Tanh, y);
        case.check(y);
    }
}

#[test]
fn batched_products_of_two_inputs() {
    for (rows, depth, columns) in [(17, 20, 30), (16, 64, 64), (3, 5, 100), (1, 8, 40)] {
        let mut case = Case::new();
        let a = case.input(&[3, rows, depth]);
        let b = case.input(&[3, depth, columns]);
        let y = case.node(MatMul {}, &[a, b]);
        case.check(y);
    }
}

#[test]
fn attention_scores_with_transposed_keys() {
    let mut case = Case::new();
    let q = case.input(&[1, 2, 19, 16]);
    let k = case.input(&[1, 19, 2, 16]);
    let k = case.node(Transpose { permutation: vec![0, 2, 3, 1] }, &[k]);
    let scores = case.node(MatMul {}, &[q, k]);
    let y = case.node(Softmax { axis: 3, log: false }, &[scores]);
    case.check(y);
}

#[test]
fn softmax_and_means_of_rows() {
    for length in [5, 16, 37, 128, 200] {
        let mut case = Case::new();
        let x = case.input(&[6, length]);
        let y = case.node(Softmax { axis: 1, log: false }, &[x]);
        case.check(y);
        let mut case = Case::new();
        let x = case.input(&[6, length]);
        let reduce = Reduce { function: ReduceFunction::Mean, axes: vec![1], keep_axes: true };
        let mean = case.node(reduce, &[x]);
        let y = case.binary(BinaryFunction::Subtract, x, mean);
        case.check(y);
    }
}

#[test]
fn pools_and_transposes() {
    let mut case = Case::new();
    let x = case.input(&[1, 16, 13, 15]);
    let w = case.constant(&[16, 16, 1, 1]);
    let y = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
    let pool = Pool {
        kind: PoolKind::Maximum,
        kernel: vec![3, 3],
        window: window(2, 1),
        count_padding: false,
    };
    let y = case.node(pool, &[y]);
    let y = case.node(Transpose { permutation: vec![0, 2, 3, 1] }, &[y]);
    case.check(y);
}

/// Lengths around one, several and many vectors; a single row; everything at once.
#[test]
fn reductions_of_any_length() {
    for length in [1, 3, 7, 15, 17, 33, 65, 197, 1001] {
        let softmax = |rows: usize, log: bool| {
            let mut case = Case::new();
            let x = case.input(&[rows, length]);
            let y = case.node(Softmax { axis: 1, log }, &[x]);
            case.check(y);
        };
        softmax(3, true);
        softmax(1, false);
        let mut case = Case::new();
        let x = case.input(&[length, 3]);
        let axes = vec![0, 1];
        let reduce = Reduce { function: ReduceFunction::Maximum, axes, keep_axes: false };
        let y = case.node(reduce, &[x]);
        case.check(y);
        let mut case = Case::new();
        let [x, scale, bias] = [&[5, length][..], &[length], &[length]].map(|own| case.input(own));
        let y = case.node(LayerNormalization { axis: 1, epsilon: 1e-2 }, &[x, scale, bias]);
        case.check(y);
    }
}

#[test]
fn softmax_over_channels() {
    for (channels, places) in [(3, 5), (21, 70), (19, 64), (300, 33)] {
        let mut case = Case::new();
        let x = case.input(&[2, channels, places]);
        let y = case.node(Softmax { axis: 1, log: false }, &[x]);
        case.check(y);
    }
}

/// Padding is read as zeros within the kernel, in each stride and at each border.
#[test]
fn depthwise_convolutions_with_padding() {
    for (stride, extent) in [(1, 5), (1, 29), (2, 14), (2, 31)] {
        let mut case = Case::new();
        let x = case.input(&[1, 16, 6, 9]);
        let w = case.constant(&[32, 16, 1, 1]);
        let x = case.node(Convolution { window: Window::plain(2), groups: 1 }, &[x, w]);
        let w = case.constant(&[32, 1, 3, 3]);
        let y = case.node(Convolution { window: window(stride, 1), groups: 32 }, &[x, w]);
        let y = case.unary(UnaryFunction::Sigmoid, y);
        case.check(y);
        let mut case = Case::new();
        let x = case.input(&[1, 32, 4, extent]);
        let w = case.constant(&[32, 1, 5, 5]);
        let y = case.node(Convolution { window: window(stride, 2), groups: 32 }, &[x, w]);
        case.check(y);
    }
}

#[test]
fn transposed_convolutions() {
    for (kernel, stride, groups) in [(2, 2, 1), (3, 2, 1), (4, 3, 2), (3, 1, 1)] {
        let mut case = Case::new();
        let x = case.input(&[1, 32, 7, 6]);
        let w = case.constant(&[32, 16, kernel, kernel]);
        let transposed = ConvolutionTranspose {
            window: window(stride, 1),
            groups,
            output_padding: vec![0, stride - 1],
        };
        let y = case.node(transposed, &[x, w]);
        case.check(y);
    }
}

/// Images so small that each phase is a convolution of its own, with pads at both ends and a bias.
#[test]
fn transposed_convolutions_of_small_images() {
    for (place, kernel, stride, pads, extra) in [
        (4, 4, 2, [1, 1], 0),
        (5, 4, 2, [0, 0], 0),
        (3, 2, 2, [0, 0], 0),
        (4, 3, 2, [1, 0], 0),
        (4, 5, 2, [2, 2], 1),
        (4, 6, 3, [2, 1], 0),
        (3, 3, 3, [0, 0], 0),
        (4, 5, 3, [1, 1], 0),
        (2, 6, 2, [3, 1], 0),
    ] {
        for axes in [1, 2] {
            let mut case = Case::new();
            let x = case.input(&[&[2, 24][..], &vec![place; axes]].concat());
            let w = case.constant(&[&[24, 16][..], &vec![kernel; axes]].concat());
            let bias = case.constant(&[16]);
            let window = Window {
                strides: vec![stride; axes],
                dilations: vec![1; axes],
                pads_begin: vec![pads[0]; axes],
                pads_end: vec![pads[1]; axes],
            };
            let output_padding = vec![extra; axes];
            let transposed = ConvolutionTranspose { window, groups: 1, output_padding };
            let y = case.node(transposed, &[x, w, bias]);
            let y = case.unary(UnaryFunction::Tanh, y);
            case.check(y);
        }
    }
}

#[test]
fn transpositions_in_squares() {
    for shape in [[1, 32, 48], [2, 37, 65], [3, 100, 33]] {
        let mut case = Case::new();
        let x = case.input(&shape);
        let y = case.node(Transpose { permutation: vec![0, 2, 1] }, &[x]);
        let y = case.unary(UnaryFunction::Tanh, y);
        case.check(y);
    }
}

/// Rows times weights of four and of eight bits: `blocks` blocks of `length` for each column; of bytes with a scale for each block, or
/// of floats.
fn product_of_bits(
    outer: &[usize],
    [blocks, length, columns]: [usize; 3],
    of_bytes: bool,
    has_zeros: bool,
) {
    for bits in [WeightBits::Four, WeightBits::Eight] {
        product_of(outer, [blocks, length, columns], bits, of_bytes, has_zeros);
    }
}

fn product_of(
    outer: &[usize],
    [blocks, length, columns]: [usize; 3],
    bits: WeightBits,
    of_bytes: bool,
    has_zeros: bool,
) {
    let mut case = Case::new();
    let in_blocks = [outer, &[blocks, length]].concat();
    let flat = [outer, &[blocks * length]].concat();
    let mut left = case.input(&flat);
    if of_bytes {
        let hundred = case.number(100.0, DataType::F32);
        let scaled = case.binary(BinaryFunction::Multiply, left, hundred);
        let bytes = case.cast(DataType::I8, scaled);
        let bytes = case.node(Reshape { shape: in_blocks }, &[bytes]);
        let numbers = case.cast(DataType::F32, bytes);
        let scales = case.input(&[outer, &[blocks, 1]].concat());
        let numbers = case.binary(BinaryFunction::Multiply, numbers, scales);
        left = case.node(Reshape { shape: flat }, &[numbers]);
    }
    let stored = case.unsigned(255, &[columns, blocks, length / bits.per_byte()]);
    // Sums near one: of larger ones the hyperbolic tangent shows what `f32` rounds.
    let scales = case.smaller_constant(&[columns, blocks], if of_bytes { 1e4 } else { 100.0 });
    let mut weights = vec![stored, scales];
    if has_zeros {
        weights.push(case.unsigned(15, &[columns, blocks]));
    }
    let weights = case.node(DequantizeBlocks { depth: blocks * length, bits }, &weights);
    let product = case.node(MatMul {}, &[left, weights]);
    let y = case.unary(UnaryFunction::Tanh, product);
    case.check(y);
}

#[test]
fn products_by_weights_of_few_bits() {
    product_of_bits(&[1], [3, 32, 130], true, false);
    product_of_bits(&[1, 1], [2, 16, 64], true, true);
    product_of_bits(&[5], [2, 32, 200], true, true);
    product_of_bits(&[2, 7], [1, 128, 33], true, false);
    product_of_bits(&[1], [3, 32, 130], false, true);
    product_of_bits(&[3], [2, 16, 70], false, false);
    product_of_bits(&[1, 4], [1, 2, 9], false, false);
    // More rows than are multiplied from bits, and blocks that are no runs of bytes.
    product_of_bits(&[9], [2, 16, 20], false, true);
    product_of_bits(&[2], [3, 12, 20], true, true);
}
