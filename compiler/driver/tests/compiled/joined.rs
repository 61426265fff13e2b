//! Concatenations: what computes the inputs writes them into the result where it can, and answers are right where it
//! cannot. Channels are multiples of any vector, so that no layout hides what is looked at.

use super::case::Case;
use super::window;
use hone_graph::ValueId;
use hone_ops::{
    BinaryFunction, Concat, Convolution, Expand, Gather, MatMul, Pool, PoolKind, Reduce,
    ReduceFunction, Reshape, Softmax, Transpose, UnaryFunction,
};
use hone_types::DataType;

fn convolved(case: &mut Case, x: ValueId, [from, to]: [usize; 2], kernel: usize) -> ValueId {
    let w = case.constant(&[to, from, kernel, kernel]);
    let bias = case.constant(&[to]);
    let y = case.node(Convolution { window: window(1, kernel / 2), groups: 1 }, &[x, w, bias]);
    case.unary(UnaryFunction::Relu, y)
}

fn pooled(case: &mut Case, x: ValueId, kind: PoolKind) -> ValueId {
    let pool = Pool { kind, kernel: vec![3, 3], window: window(1, 1), count_padding: true };
    case.node(pool, &[x])
}

/// A product with a constant matrix of 32 columns.
fn product(case: &mut Case, x: ValueId, rows: usize) -> ValueId {
    let w = case.constant(&[rows, 32]);
    case.node(MatMul {}, &[x, w])
}

#[test]
fn branches_of_a_block_write_their_channels() {
    let mut case = Case::new();
    let x = case.input(&[1, 32, 9, 9]);
    let one = convolved(&mut case, x, [32, 16], 1);
    let before = convolved(&mut case, x, [32, 16], 1);
    let three = convolved(&mut case, before, [16, 32], 3);
    let most = pooled(&mut case, x, PoolKind::Maximum);
    let most = convolved(&mut case, most, [32, 16], 1);
    let x = convolved(&mut case, x, [32, 32], 1);
    let mean = pooled(&mut case, x, PoolKind::Average);
    let all = case.node(Concat { axis: 1 }, &[one, three, most, mean]);
    let next = convolved(&mut case, all, [96, 16], 1);
    let pooled = pooled(&mut case, all, PoolKind::Maximum);
    case.check_copies(&[next, pooled], 0);
}

/// A layer of a dense block: normalized channels are convolved to 16 more.
fn layer(case: &mut Case, x: ValueId, channels: usize) -> ValueId {
    let (scale, shift) = (case.constant(&[channels, 1, 1]), case.constant(&[channels, 1, 1]));
    let x = case.binary(BinaryFunction::Multiply, x, scale);
    let x = case.binary(BinaryFunction::Add, x, shift);
    let x = case.unary(UnaryFunction::Relu, x);
    convolved(case, x, [channels, 16], 3)
}

#[test]
fn a_dense_block_lies_in_one_place() {
    // Each layer joins to what the one before it joined, or all layers anew.
    for nested in [true, false] {
        let mut case = Case::new();
        let x = case.input(&[1, 16, 7, 7]);
        let first = convolved(&mut case, x, [16, 32], 1);
        let mut parts = vec![first];
        let mut all = first;
        for number in 0..3 {
            let next = layer(&mut case, all, 32 + 16 * number);
            parts.push(next);
            all = match nested {
                true => case.node(Concat { axis: 1 }, &[all, next]),
                false => case.node(Concat { axis: 1 }, &parts),
            };
        }
        let y = convolved(&mut case, all, [80, 16], 1);
        case.check_copies(&[y], 0);
    }
}

#[test]
fn new_channels_in_front_of_all_lie_in_one_place() {
    let mut case = Case::new();
    let x = case.input(&[1, 16, 7, 7]);
    let mut parts = vec![convolved(&mut case, x, [16, 32], 1)];
    let mut all = parts[0];
    for number in 0..2 {
        let next = layer(&mut case, all, 32 + 16 * number);
        parts.insert(0, next);
        all = case.node(Concat { axis: 1 }, &parts);
    }
    let y = convolved(&mut case, all, [64, 16], 1);
    case.check_copies(&[y], 0);
}

#[test]
fn rows_are_joined_to_a_result() {
    let mut case = Case::new();
    let x = case.input(&[4, 16]);
    let [one, other] = [0; 2].map(|_| product(&mut case, x, 16));
    let all = case.node(Concat { axis: 0 }, &[one, other]);
    let again = product(&mut case, all, 32);
    let softmax = case.node(Softmax { axis: 1, log: false }, &[one]);
    // The first output is what is joined.
    case.check_copies(&[all, again, softmax], 0);
}

#[test]
fn views_of_computed_values_are_joined() {
    let mut case = Case::new();
    let x = case.input(&[4, 16]);
    let [one, other] = [0; 2].map(|_| product(&mut case, x, 16));
    let [one, other] =
        [one, other].map(|value| case.node(Reshape { shape: vec![1, 2, 64] }, &[value]));
    let all = case.node(Concat { axis: 1 }, &[one, other]);
    let flat = case.node(Reshape { shape: vec![8, 32] }, &[all]);
    let y = product(&mut case, flat, 32);
    case.check_copies(&[y], 0);
}

#[test]
fn what_has_its_place_elsewhere_is_copied_alone() {
    // An input of the graph.
    let mut case = Case::new();
    let x = case.input(&[4, 32]);
    let y = product(&mut case, x, 32);
    let all = case.node(Concat { axis: 0 }, &[x, y]);
    let z = product(&mut case, all, 32);
    case.check_copies(&[z], 1);
    // An output, and a constant.
    let mut case = Case::new();
    let x = case.input(&[4, 32]);
    let [one, other] = [0; 2].map(|_| product(&mut case, x, 32));
    let constant = case.constant(&[2, 32]);
    let large = case.input(&[400, 32]);
    let large = product(&mut case, large, 32);
    let all = case.node(Concat { axis: 0 }, &[one, constant, other, large]);
    let z = product(&mut case, all, 32);
    case.check_copies(&[z, one], 2);
    // The same twice, and once more in another concatenation.
    let mut case = Case::new();
    let x = case.input(&[4, 32]);
    let [one, other] = [0; 2].map(|_| product(&mut case, x, 32));
    let all = case.node(Concat { axis: 0 }, &[one, other, one]);
    let third = product(&mut case, x, 32);
    let again = case.node(Concat { axis: 0 }, &[third, other]);
    let [y, z] = [all, again].map(|value| product(&mut case, value, 32));
    case.check_copies(&[y, z], 2);
}

#[test]
fn what_is_no_stretch_of_the_result_is_copied() {
    // Keys of several heads are joined along the sequence.
    let mut case = Case::new();
    let past = case.input(&[1, 2, 5, 16]);
    let x = case.input(&[1, 2, 3, 16]);
    let w = case.constant(&[16, 16]);
    let new = case.node(MatMul {}, &[x, w]);
    let all = case.node(Concat { axis: 2 }, &[past, new]);
    let y = case.node(MatMul {}, &[all, w]);
    case.check_copies(&[all, y], 1);
    // Two images.
    let mut case = Case::new();
    let x = case.input(&[2, 16, 5, 5]);
    let [one, other] = [1, 3].map(|kernel| convolved(&mut case, x, [16, 16], kernel));
    let all = case.node(Concat { axis: 1 }, &[one, other]);
    let y = convolved(&mut case, all, [32, 16], 1);
    case.check_copies(&[y], 1);
    // Rows of 12 bytes begin where no buffer does.
    let mut case = Case::new();
    let x = case.input(&[5, 16]);
    let w = case.constant(&[16, 3]);
    let [one, other] = [0; 2].map(|_| case.node(MatMul {}, &[x, w]));
    let other = case.node(Softmax { axis: 1, log: false }, &[other]);
    let all = case.node(Concat { axis: 0 }, &[one, other]);
    let y = case.node(Softmax { axis: 1, log: false }, &[all]);
    case.check_copies(&[y], 1);
}

#[test]
fn channels_that_fill_no_blocks_are_copied() {
    let mut case = Case::new();
    let x = case.input(&[1, 16, 7, 7]);
    let one = convolved(&mut case, x, [16, 17], 1);
    let other = convolved(&mut case, x, [16, 15], 3);
    let all = case.node(Concat { axis: 1 }, &[one, other]);
    let y = convolved(&mut case, all, [32, 16], 1);
    case.check_copies(&[y], 1);
}

#[test]
fn what_reads_joined_channels_alone_is_a_kernel_of_its_own() {
    let mut case = Case::new();
    let x = case.input(&[1, 16, 7, 7]);
    let [one, other] = [1, 3].map(|kernel| convolved(&mut case, x, [16, 16], kernel));
    let all = case.node(Concat { axis: 1 }, &[one, other]);
    let y = case.unary(UnaryFunction::Erf, all);
    let y = convolved(&mut case, y, [32, 16], 1);
    case.check_copies(&[y], 0);
}

#[test]
fn differences_to_gathered_neighbours_are_joined_with_the_points() {
    // The element of the indices is the same in all lanes, but only those of the differences may read it.
    let (points, neighbours, features) = (64, 16, 64);
    let mut case = Case::new();
    let x = case.input(&[points, features]);
    let numbers = case.input(&[1, points, neighbours]);
    let half = case.number(31.0, DataType::F32);
    let scaled = case.binary(BinaryFunction::Multiply, numbers, half);
    let shifted = case.binary(BinaryFunction::Add, scaled, half);
    let indices = case.cast(DataType::I64, shifted);
    let zero = case.number(0.0, DataType::I64);
    let zero = case.node(Reshape { shape: vec![] }, &[zero]);
    let indices = case.node(Gather { axis: 0 }, &[indices, zero]);
    let gathered = case.node(Gather { axis: 0 }, &[x, indices]);
    let gathered = case.node(Transpose { permutation: vec![2, 0, 1] }, &[gathered]);
    let shape = vec![1, features, points, neighbours];
    let gathered = case.node(Reshape { shape: shape.clone() }, &[gathered]);
    let own = case.node(Transpose { permutation: vec![1, 0] }, &[x]);
    let own = case.node(Reshape { shape: vec![1, features, points, 1] }, &[own]);
    let differences = case.binary(BinaryFunction::Subtract, gathered, own);
    let own = case.node(Expand { shape }, &[own]);
    let all = case.node(Concat { axis: 1 }, &[differences, own]);
    let y = convolved(&mut case, all, [2 * features, 32], 1);
    let most = Reduce { function: ReduceFunction::Maximum, axes: vec![3], keep_axes: false };
    let y = case.node(most, &[y]);
    case.check(y);
}
