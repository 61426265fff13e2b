//! Convolutions, transposed ones, pooling, resampling.

use crate::case::Case;
use hone_ops::{
    Convolution, ConvolutionTranspose, CoordinateMode, NearestRounding, Pool, PoolKind, Resize,
    ResizeMode, Window,
};

fn window(strides: &[usize], dilations: &[usize], pads: [&[usize]; 2]) -> Window {
    Window {
        strides: strides.to_vec(),
        dilations: dilations.to_vec(),
        pads_begin: pads[0].to_vec(),
        pads_end: pads[1].to_vec(),
    }
}

fn convolved(x: &[usize], w: &[usize], window: Window, groups: usize) {
    println!("{x:?} by {w:?} in {groups} groups, {window:?}");
    let mut case = Case::new(groups as u64);
    let (x, bias) = (case.input(x, -1.0, 1.0), case.input(&[w[0]], -1.0, 1.0));
    let w = case.input(w, -1.0, 1.0);
    let y = case.node(Convolution { window, groups }, &[x, w, bias]);
    case.check_twice(y);
}

#[test]
fn convolutions() {
    convolved(&[2, 3, 5], &[4, 3, 2], window(&[1], &[1], [&[0], &[0]]), 1);
    convolved(&[1, 2, 6], &[2, 2, 3], window(&[2], &[2], [&[1], &[2]]), 1);
    convolved(&[2, 2, 4, 5], &[3, 2, 3, 3], window(&[1, 1], &[1, 1], [&[1, 1], &[1, 1]]), 1);
    // Rows and columns behind the last window.
    convolved(&[1, 2, 6, 7], &[2, 2, 3, 2], window(&[2, 3], &[1, 2], [&[1, 0], &[0, 1]]), 1);
    convolved(&[2, 4, 5, 4], &[6, 2, 2, 3], window(&[1, 2], &[1, 1], [&[0, 1], &[1, 1]]), 2);
    convolved(&[2, 3, 5, 4], &[3, 1, 3, 3], window(&[2, 1], &[1, 1], [&[1, 1], &[1, 1]]), 3);
    convolved(&[1, 2, 3, 3, 4], &[2, 1, 2, 1, 3], window(&[1; 3], &[1; 3], [&[0; 3], &[1; 3]]), 2);
    // A stride that leaves most of the input out.
    convolved(&[1, 1, 9], &[1, 1, 1], window(&[4], &[1], [&[0], &[0]]), 1);
}

fn transposed(x: &[usize], w: &[usize], window: Window, groups: usize, padding: &[usize]) {
    println!("{x:?} by {w:?} in {groups} groups, {window:?}, {padding:?}");
    let mut case = Case::new(groups as u64);
    let (x, bias) = (case.input(x, -1.0, 1.0), case.input(&[w[1] * groups], -1.0, 1.0));
    let w = case.input(w, -1.0, 1.0);
    let output_padding = padding.to_vec();
    let y = case.node(ConvolutionTranspose { window, groups, output_padding }, &[x, w, bias]);
    case.check_twice(y);
}

#[test]
fn transposed_convolutions() {
    transposed(&[2, 3, 4], &[3, 2, 3], window(&[1], &[1], [&[0], &[0]]), 1, &[0]);
    transposed(
        &[1, 2, 3, 3],
        &[2, 2, 3, 2],
        window(&[2, 2], &[1, 1], [&[1, 0], &[0, 1]]),
        1,
        &[1, 0],
    );
    transposed(
        &[2, 4, 3, 2],
        &[4, 1, 2, 2],
        window(&[2, 1], &[1, 2], [&[0, 0], &[0, 0]]),
        2,
        &[0, 0],
    );
    // More added at the end than a stride is long.
    transposed(&[1, 1, 3], &[1, 1, 2], window(&[2], &[2], [&[0], &[0]]), 1, &[3]);
}

fn pooled(kind: PoolKind, x: &[usize], kernel: &[usize], window: Window, count_padding: bool) {
    println!("{kind:?} of {x:?} by {kernel:?}, {window:?}");
    let mut case = Case::new(kernel[0] as u64);
    let x = case.distinct(x);
    let pool = Pool { kind, kernel: kernel.to_vec(), window, count_padding };
    let y = case.node(pool, &[x]);
    case.check(y);
}

#[test]
fn pooling() {
    for kind in
        [PoolKind::Maximum, PoolKind::Average, PoolKind::Lp(1), PoolKind::Lp(2), PoolKind::Lp(3)]
    {
        for count_padding in [false, true] {
            pooled(kind, &[2, 2, 5], &[2], window(&[1], &[1], [&[0], &[0]]), count_padding);
            let padded = window(&[2, 2], &[1, 1], [&[1, 1], &[1, 0]]);
            pooled(kind, &[1, 2, 5, 4], &[3, 2], padded, count_padding);
            let dilated = window(&[1, 2], &[2, 1], [&[0, 1], &[1, 2]]);
            pooled(kind, &[1, 1, 5, 6], &[2, 3], dilated, count_padding);
            let whole = window(&[1, 1], &[1, 1], [&[0, 0], &[0, 0]]);
            pooled(kind, &[2, 1, 3, 2], &[3, 2], whole, count_padding);
        }
    }
}

/// Of equal elements the first one of a window is the largest.
#[test]
fn ties_in_windows() {
    let mut case = Case::new(1);
    let x = case.input_of(&[1, 1, 4], &[2.0, 2.0, 2.0, 1.0]);
    let window = window(&[1], &[1], [&[0], &[0]]);
    let kernel = vec![2];
    let pool = Pool { kind: PoolKind::Maximum, kernel, window, count_padding: false };
    let y = case.node(pool, &[x]);
    assert_eq!(case.values_of(y), [vec![1.0, 1.0, 1.0, 0.0]]);
}

fn resized(mode: ResizeMode, coordinates: CoordinateMode, sizes: [usize; 2], antialias: bool) {
    println!("{mode:?} {coordinates:?} to {sizes:?}");
    let mut case = Case::new(9);
    let x = case.input(&[1, 2, 4, 5], -1.0, 1.0);
    let scales = vec![1.0, 1.0, sizes[0] as f64 / 4.0, sizes[1] as f64 / 5.0];
    let region = match coordinates {
        CoordinateMode::TfCropAndResize => vec![0.0, 0.0, 0.1, -0.2, 1.0, 1.0, 0.9, 0.8],
        _ => Vec::new(),
    };
    let sizes = [&[1, 2], &sizes[..]].concat();
    let extrapolation = 0.7;
    let resize = Resize { mode, coordinates, scales, sizes, antialias, extrapolation, region };
    let y = case.node(resize, &[x]);
    case.check_twice(y);
}

#[test]
fn resampling() {
    let nearest = ResizeMode::Nearest { rounding: NearestRounding::RoundPreferFloor };
    let cubic = ResizeMode::Cubic { coefficient_a: -0.75, exclude_outside: true };
    for mode in [nearest, ResizeMode::Linear, cubic] {
        for coordinates in [
            CoordinateMode::HalfPixel,
            CoordinateMode::AlignCorners,
            CoordinateMode::Asymmetric,
            CoordinateMode::TfCropAndResize,
        ] {
            resized(mode, coordinates, [7, 3], false);
            resized(mode, coordinates, [4, 10], false);
        }
    }
    resized(ResizeMode::Linear, CoordinateMode::HalfPixel, [2, 3], true);
}
