//! Products of bytes less a zero point, with scales in every shape that broadcasts.

use super::Net;
use hone_graph::{Constants, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, MatMul, Pad, PadMode, Slice, Transpose, Window,
};
use hone_passes::{
    LayoutOptions, choose_layouts, fold_constants, multiply_integers, multiply_quantized,
    narrow_integers,
};
use hone_types::DataType;

/// Bytes in 32 bits, less a zero point, perhaps times a scale.
fn numbers(net: &mut Net, bytes: ValueId, zero: f64, scale: Option<&[usize]>) -> ValueId {
    let mut value = net.node(Cast { to: DataType::I32 }, &[bytes]);
    if zero != 0.0 || net.chance(50) {
        let zero = net.constant(DataType::I32, &[], &[zero]);
        value = net.node(Binary::new(BinaryFunction::Subtract), &[value, zero]);
    }
    value = net.node(Cast { to: DataType::F32 }, &[value]);
    match scale {
        None => value,
        Some(shape) => {
            let count = shape.iter().product::<usize>();
            let scales: Vec<f64> = (0..count).map(|_| net.pick(&[0.25, 0.5, 1.0, 2.0])).collect();
            let scale = net.constant(DataType::F32, shape, &scales);
            net.node(Binary::new(BinaryFunction::Multiply), &[value, scale])
        }
    }
}

fn scale<'a>(net: &mut Net, shapes: &[Option<&'a [usize]>]) -> Option<&'a [usize]> {
    net.pick(shapes)
}

/// Constant weights: bytes in nodes, or whole numbers, of which some are no bytes.
fn weights(net: &mut Net, shape: &[usize], scales: &[Option<&[usize]>]) -> ValueId {
    if net.chance(30) {
        let most = net.pick(&[127, 127, 200]);
        return net.whole(DataType::F32, shape, (-128, most));
    }
    let bytes = net.whole(DataType::I8, shape, (-128, 127));
    let (zero, scale) = (net.pick(&[0.0, 0.0, 0.0, 3.0]), scale(net, scales));
    numbers(net, bytes, zero, scale)
}

/// Weights of a convolution, some of them moved to where they are read, as those of transposed ones are: one row or column of
/// zeros is added, and the order is reversed.
fn filters(net: &mut Net, shape: [usize; 4], scales: &[Option<&[usize]>]) -> ValueId {
    let [outputs, inputs, rows, columns] = shape;
    if rows == 1 || net.chance(50) {
        return weights(net, &shape, scales);
    }
    // As [K, C, O, K'], where scales lie along the third axis.
    let exchanged = [rows - 1, inputs, outputs, columns];
    let along = [1, 1, outputs, 1];
    let value = weights(net, &exchanged, &[None, Some(&[]), Some(&along), Some(&along)]);
    let (begin, end) = (vec![0; 4], vec![1, 0, 0, 0]);
    let padded = net.node(Pad { begin, end, mode: PadMode::Constant, value: 0.0 }, &[value]);
    let exchanged = net.node(Transpose { permutation: vec![2, 1, 0, 3] }, &[padded]);
    let (starts, steps) = (vec![0, 0, rows - 1, 0], vec![1, 1, -1, 1]);
    net.node(Slice { starts, steps, extents: shape.to_vec() }, &[exchanged])
}

/// Zero points, of which the last two are no bytes.
const ZEROS: [f64; 7] = [0.0, 1.0, 77.0, 128.0, 255.0, 300.0, -5.0];

fn bias(net: &mut Net, operands: &mut Vec<ValueId>, channels: usize) {
    if net.chance(50) {
        operands.push(net.whole(DataType::F32, &[channels], (-900, 900)));
    }
}

#[test]
fn products_of_bytes_compute_the_same() {
    let [found, in_groups] = products_found(DataType::I8, &[DataType::U8]);
    assert!(found > 80, "{found} products of bytes");
    assert!(in_groups > 20, "{in_groups} products of bytes in groups");
}

#[test]
fn products_of_integers_of_16_bits_compute_the_same() {
    let [found, in_groups] = products_found(DataType::I16, &[DataType::U8, DataType::I8]);
    assert!(found > 100, "{found} products of integers of 16 bits");
    assert!(in_groups > 20, "{in_groups} products of integers of 16 bits in groups");
}

/// Checks products of bytes on machines whose weights are of type `narrow`; says in how many they are, and in how many
/// of them in groups.
fn products_found(narrow: DataType, bytes: &[DataType]) -> [usize; 2] {
    let [mut found, mut in_groups] = [0; 2];
    for seed in 0..300 {
        let mut net = Net::new(2000 + seed);
        let dtype = net.pick(bytes);
        let is_convolution = net.chance(60);
        let (depth, columns) = (net.pick(&[4, 8, 3, 12]), net.between(1, 9));
        let zero = net.pick(&ZEROS);
        let left_scale: [Option<&[usize]>; 4] = [None, Some(&[]), Some(&[1]), Some(&[1, 1])];
        let mut groups = 1;
        let y = if is_convolution {
            groups = net.pick(&[1, 1, 1, 2, 3, 5]);
            let channels = groups * depth;
            let columns = groups * net.pick(&[columns, columns, 4, 8]);
            let shape = [net.between(1, 2), channels, net.between(2, 5), net.between(2, 5)];
            let bytes = net.input(dtype, &shape);
            let entry = scale(&mut net, &left_scale);
            let x = numbers(&mut net, bytes, zero, entry);
            let kernel = [columns, depth, net.between(1, 2), net.between(1, 2)];
            let whole = [columns, 1, 1, 1];
            let along = [1, depth, 1, 1];
            let scales: [Option<&[usize]>; 5] =
                [None, Some(&[]), Some(&whole), Some(&whole), Some(&along)];
            let mut operands = vec![x, filters(&mut net, kernel, &scales)];
            bias(&mut net, &mut operands, columns);
            let pads = [0, 1].map(|_| net.between(0, 2));
            let window = Window {
                pads_begin: vec![pads[0], pads[1]],
                pads_end: vec![pads[1], pads[0]],
                ..Window::plain(2)
            };
            net.node(Convolution { window, groups }, &operands)
        } else {
            let rows: Vec<usize> = (0..net.between(0, 2)).map(|_| net.between(1, 5)).collect();
            let shape = [&rows[..], &[net.between(1, 3), depth]].concat();
            let bytes = net.input(dtype, &shape);
            let per_row = vec![shape[shape.len() - 2], 1];
            let left: [Option<&[usize]>; 5] =
                [None, Some(&[]), Some(&[1]), Some(&[1, 1]), Some(&per_row)];
            let entry = scale(&mut net, &left);
            let x = numbers(&mut net, bytes, zero, entry);
            let is_transposed = net.chance(50);
            let matrix = if is_transposed { [columns, depth] } else { [depth, columns] };
            let scales: [Option<&[usize]>; 6] = [
                None,
                Some(&[]),
                Some(&[1, 1]),
                Some(&[matrix[0], 1]),
                Some(&[1, matrix[1]]),
                Some(&[matrix[1]]),
            ];
            let mut w = weights(&mut net, &matrix, &scales);
            if is_transposed {
                w = net.node(Transpose { permutation: vec![1, 0] }, &[w]);
            }
            net.node(MatMul {}, &[x, w])
        };
        let options = LayoutOptions {
            block: net.pick(&[4, 8]),
            products: 1,
            integers: true,
            tile_row: net.pick(&[None, Some(12)]),
            rates: None,
            working: DataType::F32,
            decisions: None,
        };
        let after = net.check(y, seed, |graph| {
            let graph = multiply_quantized(graph, narrow, None, DataType::F32)?;
            let graph = match narrow {
                DataType::I16 => narrow_integers(&fold_constants(&graph)?)?,
                _ => graph,
            };
            multiply_integers(&choose_layouts(&graph, options)?, 8)
        });
        let text = after.to_text(Constants::Digest);
        let is_packed = text.contains("packed_convolution") || text.contains("packed_matmul");
        let is_found = is_packed && text.contains(&format!("{narrow}["));
        found += usize::from(is_found);
        in_groups += usize::from(is_found && groups > 1);
    }
    [found, in_groups]
}
