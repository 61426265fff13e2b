//! Convolutions, grouped and padded in every way, and what follows them on packed channels.

use super::Net;
use hone_graph::{Constants, ValueId};
use hone_machine::Rates;
use hone_ops::{
    Convolution, GroupNormalization, InstanceNormalization, Reshape, Unary, UnaryFunction, Window,
};
use hone_passes::{LayoutOptions, choose_layouts, recognize_group_normalization, separate_taps};
use hone_types::DataType;

fn window(net: &mut Net, axes: usize, most: [usize; 3]) -> Window {
    let [stride, dilation, pad] = most;
    let mut list = |least, most| (0..axes).map(|_| net.between(least, most)).collect::<Vec<_>>();
    Window {
        strides: list(1, stride),
        dilations: list(1, dilation),
        pads_begin: list(0, pad),
        pads_end: list(0, pad),
    }
}

/// A convolution of an input with constant weights; extents are such that a window fits.
fn convolution(
    net: &mut Net,
    window: Window,
    groups: usize,
    [inputs, outputs]: [usize; 2],
    kernel: &[usize],
    (few, most): (usize, usize),
) -> ValueId {
    let mut shape = vec![net.between(1, 2), groups * inputs];
    for (axis, taps) in kernel.iter().enumerate() {
        let span = (taps - 1) * window.dilations[axis] + 1;
        let pads = window.pads_begin[axis] + window.pads_end[axis];
        let least = span.saturating_sub(pads).max(1);
        shape.push(net.between(least.max(few), least.max(most)));
    }
    let x = net.input(DataType::F32, &shape);
    let weights = [&[groups * outputs, inputs], kernel].concat();
    let mut operands = vec![x, net.whole(DataType::F32, &weights, (-2, 2))];
    if net.chance(50) {
        operands.push(net.whole(DataType::F32, &[groups * outputs], (-9, 9)));
    }
    net.node(Convolution { window, groups }, &operands)
}

/// What is normalized by groups, as one operator or as a reshape, an instance normalization and a reshape.
fn normalized(net: &mut Net, x: ValueId) -> ValueId {
    let shape = net.shape(x);
    let divisors: Vec<usize> =
        (1..=shape[1]).filter(|entry| shape[1].is_multiple_of(*entry)).collect();
    let (groups, epsilon) = (net.pick(&divisors), 0.125);
    if net.chance(50) {
        let parameters = [0, 1].map(|_| net.whole(DataType::F32, &[shape[1]], (-3, 3)));
        let operation = GroupNormalization { groups, epsilon };
        return net.node(operation, &[x, parameters[0], parameters[1]]);
    }
    let parameters = [0, 1].map(|_| net.whole(DataType::F32, &[groups], (-3, 3)));
    let rest = shape.iter().product::<usize>() / (shape[0] * groups);
    let grouped = net.node(Reshape { shape: vec![shape[0], groups, rest] }, &[x]);
    let operation = InstanceNormalization { epsilon };
    let y = net.node(operation, &[grouped, parameters[0], parameters[1]]);
    net.node(Reshape { shape }, &[y])
}

#[test]
fn packed_channels_of_any_groups_compute_the_same() {
    let (mut parts, mut normalizations) = (0, 0);
    for seed in 0..160 {
        let mut net = Net::new(seed);
        let (axes, groups) = (net.pick(&[1, 2, 2, 3]), net.between(1, 7));
        let (channels, block) = ([0, 1].map(|_| net.between(1, 21)), net.pick(&[4, 8, 16]));
        let kernel: Vec<usize> = (0..axes).map(|_| net.between(1, 3)).collect();
        let window = window(&mut net, axes, [2, 2, 2]);
        let mut y = convolution(&mut net, window, groups, channels, &kernel, (1, 5));
        if net.chance(40) {
            y = net.node(Unary::new(UnaryFunction::Relu), &[y]);
        }
        if net.chance(50) {
            y = normalized(&mut net, y);
        }
        let options = LayoutOptions {
            block,
            products: 1,
            integers: false,
            tile_row: None,
            rates: None,
            working: DataType::F32,
            decisions: None,
        };
        let after = net.check(y, seed, |graph| {
            choose_layouts(&recognize_group_normalization(graph)?, options)
        });
        let text = after.to_text(Constants::Digest);
        parts += usize::from(text.contains("\"inputs\":{\"first\""));
        normalizations += usize::from(text.contains("\"sqrt\""));
    }
    assert!(parts > 20 && normalizations > 20, "{parts} in parts, {normalizations} normalized");
}

/// Rates at which Winograd's filtering is worth its while.
const RATES: Rates =
    Rates { flops_per_ns: 4.0, memory_bytes_per_ns: 100.0, cache_bytes_per_ns: 1000.0 };

#[test]
fn filtered_windows_compute_the_same() {
    let mut filtered = [0, 0];
    for seed in 0..60 {
        let mut net = Net::new(2000 + seed);
        let (axes, block) = (net.pick(&[2, 3, 3]), net.pick(&[4, 8]));
        let channels = [block * net.between(1, 3), net.between(1, 19)];
        let mut kernel = vec![3; axes];
        kernel[..axes - 2].fill(net.between(1, 3));
        let mut window = window(&mut net, axes, [2, 2, 2]);
        window.strides[axes - 2..].fill(1);
        if axes > 2 {
            window.dilations[axes - 2..].fill(1);
        }
        let y = convolution(&mut net, window, 1, channels, &kernel, (1, 9));
        let options = LayoutOptions {
            block,
            products: 1,
            integers: false,
            tile_row: None,
            rates: Some(RATES),
            working: DataType::F32,
            decisions: None,
        };
        let after = net.check(y, seed, |graph| choose_layouts(graph, options));
        let text = after.to_text(Constants::Digest);
        filtered[axes - 2] += usize::from(text.contains("winograd_multiply"));
    }
    assert!(filtered.iter().all(|count| *count > 10), "{filtered:?}");
}

#[test]
fn separate_positions_of_windows_compute_the_same() {
    let (mut several, mut smaller) = (0, 0);
    for seed in 0..200 {
        let mut net = Net::new(1000 + seed);
        let axes = net.pick(&[1, 2, 3]);
        let extended = net.chance(60);
        let channels = [if extended { 128 } else { net.between(1, 3) }, net.between(1, 2)];
        let most = [9, 4, 3][axes - 1];
        let kernel: Vec<usize> = (0..axes).map(|_| net.between(2, most)).collect();
        let stride = net.pick(&[1, 1, 1, 2]);
        let mut window = window(&mut net, axes, [stride, 9, 9]);
        if net.chance(70) {
            // As many results as elements, as most models have it.
            let around = kernel.iter().zip(&window.dilations);
            window.pads_begin = around.map(|(taps, dilation)| taps / 2 * dilation).collect();
            let spans = kernel.iter().zip(&window.dilations);
            let behind = spans.zip(&window.pads_begin);
            let behind = behind.map(|((taps, dilation), before)| (taps - 1) * dilation - before);
            window.pads_end = behind.collect();
        }
        let groups = if extended { 1 } else { net.between(1, 2) };
        let extent = [(64, 90), (8, 12), (4, 6)][axes - 1];
        let y = convolution(&mut net, window, groups, channels, &kernel, extent);
        let before = net.graph.clone();
        let after = net.check(y, seed, separate_taps);
        match after.nodes().len() {
            1 => {
                let [old, new] = [&before, &after].map(|graph| graph.to_text(Constants::Digest));
                smaller += usize::from(old.lines().next_back() != new.lines().rev().nth(1));
            }
            _ => several += 1,
        }
    }
    assert!(several > 20 && smaller > 15, "{several} separate, {smaller} smaller");
}
