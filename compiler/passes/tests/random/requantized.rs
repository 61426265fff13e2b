//! Dequantized numbers that are moved, scaled, added and quantized again. Scales are powers of two, so that every way to
//! compute them gives the same.

use super::Net;
use hone_graph::{Operation, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Concat, Graph, Pad, PadMode, Pool, PoolKind, Reduce,
    ReduceFunction, Reshape, Slice, Transpose, Unary, UnaryFunction, Window,
};
use hone_passes::{divide_by_multiplying, fold_constants, merge_scales, move_quantized};
use hone_types::DataType;

const SCALES: [f64; 4] = [0.25, 0.5, 0.5, 1.0];

/// A byte as a number: `(q - zero) * scale`.
fn dequantized(net: &mut Net, bytes: ValueId, zero: f64, scale: f64) -> ValueId {
    let mut value = net.node(Cast { to: DataType::I32 }, &[bytes]);
    if zero != 0.0 || net.chance(50) {
        let zero = net.constant(DataType::I32, &[], &[zero]);
        value = net.node(Binary::new(BinaryFunction::Subtract), &[value, zero]);
    }
    let value = net.node(Cast { to: DataType::F32 }, &[value]);
    let scale = net.constant(DataType::F32, &[], &[scale]);
    net.node(Binary::new(BinaryFunction::Multiply), &[value, scale])
}

/// The other way round.
fn quantized(net: &mut Net, value: ValueId, to: DataType, zero: f64, scale: f64) -> ValueId {
    let scale = net.constant(DataType::F32, &[], &[scale]);
    let steps = net.node(Binary::new(BinaryFunction::Divide), &[value, scale]);
    let mut value = net.node(Unary::new(UnaryFunction::Round), &[steps]);
    if zero != 0.0 || net.chance(50) {
        let zero = net.constant(DataType::F32, &[], &[zero]);
        value = net.node(Binary::new(BinaryFunction::Add), &[value, zero]);
    }
    net.node(Cast { to }, &[value])
}

/// What moves the elements of a value of shape `[_, _, n, n]`, and may change it to another such shape.
fn moved(net: &mut Net, value: ValueId) -> ValueId {
    let shape = net.shape(value);
    match net.between(0, 6) {
        0 => net.node(Transpose { permutation: vec![0, 1, 3, 2] }, &[value]),
        1 => {
            let mode = net.pick(&[PadMode::Constant, PadMode::Edge]);
            let (begin, end) = (vec![0, 0, 1, 0], vec![0, 0, 0, 1]);
            net.node(Pad { begin, end, mode, value: 0.0 }, &[value])
        }
        2 => {
            let pads = vec![net.between(0, 1); 2];
            let window = Window { pads_begin: pads.clone(), pads_end: pads, ..Window::plain(2) };
            let kind = net.pick(&[PoolKind::Maximum, PoolKind::Maximum, PoolKind::Average]);
            let pool = Pool { kind, kernel: vec![2, 2], window, count_padding: true };
            net.node(pool, &[value])
        }
        3 => net.node(Concat { axis: 1 }, &[value, value]),
        4 => {
            let swapped = [&[shape[1], shape[0]], &shape[2..]].concat();
            net.node(Reshape { shape: swapped }, &[value])
        }
        5 => {
            let mut extents = shape.clone();
            extents[3] -= 1;
            net.node(Slice { starts: vec![0, 0, 0, 1], steps: vec![1; 4], extents }, &[value])
        }
        _ => {
            let function = net.pick(&[ReduceFunction::Maximum, ReduceFunction::Mean]);
            let reduced = Reduce { function, axes: vec![1], keep_axes: true };
            net.node(reduced, &[value])
        }
    }
}

fn count(graph: &Graph, name: &str) -> usize {
    graph.nodes().iter().filter(|(_, node)| node.operation.name() == name).count()
}

#[test]
fn what_is_moved_is_what_it_was() {
    let mut found = 0;
    for seed in 0..300 {
        let mut net = Net::new(7000 + seed);
        let dtype = net.pick(&[DataType::U8, DataType::I8]);
        let (zero, scale) = (net.pick(&[0.0, 3.0, 100.0]), net.pick(&SCALES));
        let shape = [net.between(1, 2), net.between(1, 3), 4, 4];
        let bytes = net.input(dtype, &shape);
        let mut value = dequantized(&mut net, bytes, zero, scale);
        for _ in 0..net.between(1, 2) {
            value = moved(&mut net, value);
        }
        let other = net.chance(15);
        let (to_zero, to_scale) = if other { (1.0, 2.0) } else { (zero, scale) };
        let y = quantized(&mut net, value, dtype, to_zero, to_scale);
        let after = net.check(y, seed, |graph| fold_constants(&move_quantized(graph)?));
        found += usize::from(count(&after, "unary") == 0);
    }
    assert!((100..290).contains(&found), "{found} networks move bytes");
}

#[test]
fn scales_merge_to_the_same_numbers() {
    let mut found = 0;
    for seed in 0..300 {
        let mut net = Net::new(8000 + seed);
        let channels = net.between(1, 3);
        let shape = [1, channels, 3, 2];
        let addend = |net: &mut Net| {
            if net.chance(30) {
                let x = net.input(DataType::F32, &shape);
                let factors = net.whole(DataType::F32, &[channels, 1, 1], (-2, 2));
                return net.node(Binary::new(BinaryFunction::Multiply), &[x, factors]);
            }
            let bytes = net.input(DataType::U8, &shape);
            let (zero, scale) = (net.pick(&[0.0, 7.0, 128.0]), net.pick(&SCALES));
            dequantized(net, bytes, zero, scale)
        };
        let mut value = addend(&mut net);
        for _ in 0..net.between(0, 3) {
            let other = if net.chance(50) {
                addend(&mut net)
            } else {
                net.whole(DataType::F32, &[channels, 1, 1], (-9, 9))
            };
            value = net.node(Binary::new(BinaryFunction::Add), &[value, other]);
        }
        if net.chance(40) {
            value = net.node(Unary::new(UnaryFunction::Relu), &[value]);
        }
        let scale = net.pick(&SCALES);
        let y = quantized(&mut net, value, DataType::U8, 3.0, scale);
        let before = std::cell::Cell::new(0);
        let after = net.check(y, seed, |graph| {
            let graph = divide_by_multiplying(&fold_constants(graph)?)?;
            before.set(count(&graph, "binary"));
            fold_constants(&merge_scales(&graph)?)
        });
        found += usize::from(count(&after, "binary") < before.get());
    }
    assert!(found > 100, "{found} networks have merged scales");
}
