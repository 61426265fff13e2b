//! Operators over windows.

use super::{Case, case, f32s, tensor};
use hone_ops::*;
use hone_types::DataType;

pub fn cases() -> Vec<Case> {
    let mut cases = convolutions();
    cases.extend(pools());
    cases.extend(resizes());
    cases
}

fn window(
    strides: [usize; 2],
    dilations: [usize; 2],
    begin: [usize; 2],
    end: [usize; 2],
) -> Window {
    Window {
        strides: strides.to_vec(),
        dilations: dilations.to_vec(),
        pads_begin: begin.to_vec(),
        pads_end: end.to_vec(),
    }
}

fn convolutions() -> Vec<Case> {
    let padded = || window([2, 1], [1, 2], [1, 2], [1, 0]);
    let transpose = |window: Window, groups: usize, output_padding: [usize; 2]| {
        ConvolutionTranspose { window, groups, output_padding: output_padding.to_vec() }
    };
    vec![
        case(
            Convolution { window: padded(), groups: 2 },
            &[f32s([2, 4, 7, 6]), f32s([6, 2, 3, 2]), f32s([6])],
        ),
        case(
            Convolution { window: Window::plain(1), groups: 1 },
            &[f32s([1, 2, 5]), f32s([3, 2, 2])],
        ),
        half(DataType::F16, true),
        half(DataType::F16, false),
        half(DataType::BF16, true),
        case(
            PackedConvolution {
                strides: vec![2, 1],
                dilations: vec![1, 1],
                groups: 1,
                inputs: None,
                pads: None,
            },
            &[f32s([1, 2, 5, 4, 4]), f32s([3, 2, 3, 2, 4, 2]), f32s([3, 2])],
        ),
        case(
            PackedConvolution {
                strides: vec![2, 1],
                dilations: vec![1, 2],
                groups: 2,
                inputs: None,
                pads: Some([vec![1, 2], vec![0, 1]]),
            },
            &[f32s([2, 2, 5, 4, 4]), f32s([4, 1, 3, 2, 4, 2]), f32s([4, 2])],
        ),
        // Three groups that read two blocks each, from the second one on, the last of one being the first of
        // the next.
        case(
            PackedConvolution {
                strides: vec![1, 1],
                dilations: vec![1, 1],
                groups: 3,
                inputs: Some(GroupInputs { first: 1, step: 1 }),
                pads: None,
            },
            &[f32s([1, 5, 4, 4, 4]), f32s([6, 2, 3, 2, 4, 2]), f32s([6, 2])],
        ),
        case(
            PackedDepthwise { strides: vec![1, 2], dilations: vec![1, 1] },
            &[f32s([1, 2, 5, 5, 4]), f32s([2, 3, 3, 4])],
        ),
        case(WinogradInput { tile: 2 }, &[f32s([2, 2, 6, 8, 3])]),
        case(WinogradInput { tile: 4 }, &[f32s([1, 2, 6, 10, 4])]),
        case(WinogradInput { tile: 2 }, &[f32s([2, 2, 3, 6, 8, 3])]),
        case(WinogradMultiply::default(), &[f32s([4, 4, 2, 2, 2, 3, 3]), f32s([4, 4, 3, 2, 3, 4])]),
        // A window over two further axes.
        case(
            WinogradMultiply { strides: vec![2, 1], dilations: vec![1, 2] },
            &[f32s([4, 4, 2, 2, 5, 4, 2, 3, 3]), f32s([4, 4, 3, 2, 3, 2, 3, 4])],
        ),
        case(
            WinogradOutput { tile: 2, spatial: [3, 6] },
            &[f32s([4, 4, 2, 2, 2, 3, 4]), f32s([2, 4])],
        ),
        case(WinogradOutput { tile: 4, spatial: [8, 5] }, &[f32s([6, 6, 3, 1, 2, 2, 4])]),
        case(
            WinogradOutput { tile: 2, spatial: [3, 6] },
            &[f32s([4, 4, 2, 2, 3, 2, 3, 4]), f32s([2, 4])],
        ),
        case(transpose(padded(), 1, [0, 0]), &[f32s([2, 4, 5, 4]), f32s([4, 3, 3, 2]), f32s([3])]),
        case(transpose(padded(), 2, [1, 0]), &[f32s([1, 4, 3, 4]), f32s([4, 3, 3, 3])]),
        case(
            transpose(window([3, 2], [1, 1], [0, 0], [0, 0]), 1, [2, 1]),
            &[f32s([1, 2, 2, 3]), f32s([2, 2, 2, 2])],
        ),
        case(
            transpose(window([2, 2], [1, 1], [0, 0], [0, 0]), 2, [0, 0]),
            &[f32s([1, 4, 3, 2]), f32s([4, 1, 2, 2]), f32s([2])],
        ),
        case(
            ConvolutionTranspose { window: Window::plain(1), groups: 1, output_padding: vec![0] },
            &[f32s([1, 2, 4]), f32s([2, 1, 3])],
        ),
        case(
            ConvolutionTranspose {
                window: window([2, 3], [1, 1], [1, 2], [0, 1]),
                groups: 2,
                output_padding: vec![1, 2],
            },
            &[f32s([2, 4, 3, 5]), f32s([4, 3, 3, 4]), f32s([6])],
        ),
    ]
}

/// A convolution in 16 bits whose sums have so many terms that they must be kept in more.
fn half(dtype: DataType, has_bias: bool) -> Case {
    let mut inputs = vec![tensor(dtype, [1, 64, 4, 5]), tensor(dtype, [2, 64, 3, 3])];
    inputs.extend(has_bias.then(|| tensor(dtype, [2])));
    let window = window([1, 1], [1, 1], [1, 1], [1, 1]);
    case(Convolution { window, groups: 1 }, &inputs)
}

fn pools() -> Vec<Case> {
    let windows = [
        (vec![2, 2], window([2, 2], [1, 1], [0, 0], [0, 0])),
        (vec![3, 2], window([2, 1], [1, 2], [1, 1], [1, 2])),
        (vec![3, 3], window([2, 2], [2, 1], [2, 0], [2, 1])),
        (vec![1, 1], Window::plain(2)),
        (vec![2, 2], window([2, 2], [1, 1], [3, 0], [0, 3])),
    ];
    let kinds =
        [PoolKind::Maximum, PoolKind::Average, PoolKind::Lp(1), PoolKind::Lp(2), PoolKind::Lp(3)];
    let mut cases = Vec::new();
    for (kernel, window) in &windows {
        for kind in kinds {
            for count_padding in [false, true] {
                let (kernel, window) = (kernel.clone(), window.clone());
                let pool = Pool { kind, kernel, window, count_padding };
                let Pool { kernel, window, .. } = pool.clone();
                cases.push(case(pool, &[f32s([2, 3, 7, 5])]));
                let packed = PackedPool { kind, kernel, window, count_padding };
                cases.push(case(packed, &[f32s([1, 2, 6, 5, 4])]));
            }
        }
    }
    let line = |kind: PoolKind| Pool {
        kind,
        kernel: vec![3],
        window: Window { pads_begin: vec![1], ..Window::plain(1) },
        count_padding: false,
    };
    cases.push(case(line(PoolKind::Maximum), &[tensor(DataType::I8, [1, 2, 6])]));
    cases.push(case(line(PoolKind::Average), &[tensor(DataType::F16, [1, 2, 6])]));
    cases
}

fn resizes() -> Vec<Case> {
    use CoordinateMode::*;
    let cubic = |exclude_outside: bool| ResizeMode::Cubic { coefficient_a: -0.75, exclude_outside };
    let mut modes = vec![ResizeMode::Linear, cubic(false), cubic(true)];
    for rounding in [
        NearestRounding::RoundPreferFloor,
        NearestRounding::RoundPreferCeil,
        NearestRounding::Floor,
        NearestRounding::Ceil,
    ] {
        modes.push(ResizeMode::Nearest { rounding });
    }
    let sizes: [&[usize]; 6] =
        [&[1, 2, 6, 8], &[1, 2, 5, 3], &[1, 2, 1, 4], &[1, 1, 3, 1], &[2, 2, 3, 4], &[1, 2, 0, 4]];
    let input = [1, 2, 3, 4];
    let mut cases = Vec::new();
    for mode in modes {
        for coordinates in [
            HalfPixel,
            PytorchHalfPixel,
            AlignCorners,
            Asymmetric,
            HalfPixelSymmetric,
            TfCropAndResize,
        ] {
            for sizes in sizes {
                let is_cropped = coordinates == TfCropAndResize;
                let extents = sizes.iter().zip(input);
                let scales = extents.map(|(size, input)| (*size as f64 / input as f64).max(0.1));
                let region = [0.0, 0.0, 0.2, -0.1, 1.0, 1.0, 0.9, 1.3];
                let resize = Resize {
                    mode,
                    coordinates,
                    scales: scales.collect(),
                    sizes: sizes.to_vec(),
                    antialias: false,
                    extrapolation: -7.0,
                    region: if is_cropped { region.to_vec() } else { vec![] },
                };
                let is_nearest = matches!(mode, ResizeMode::Nearest { .. });
                cases.push(case(resize.clone(), &[f32s(input)]));
                if is_nearest {
                    cases.push(case(resize, &[tensor(DataType::U8, input)]));
                } else if !is_cropped {
                    let resize = Resize { antialias: true, ..resize };
                    cases.push(Case { is_folded: true, ..case(resize, &[f32s(input)]) });
                }
            }
        }
    }
    cases
}
