//! Networks, their losses and derivatives by all parameters: what compiled code computes is what the reference computes.
#![allow(clippy::unwrap_used)]

mod network;

use hone_ops::{
    BatchNormalization, BinaryFunction as B, Convolution, Gather, LayerNormalization, MatMul, Pool,
    PoolKind, Reshape, Softmax, Transpose, UnaryFunction as U, Window,
};
use network::Network;

/// Two layers, a hyperbolic tangent, the mean of the squares of what is missed.
#[test]
fn a_network_of_two_layers() {
    let mut n = Network::new();
    let (x, wanted) = (n.input(&[9, 20]), n.input(&[9, 5]));
    let hidden = n.linear(x, 20, 33);
    let hidden = n.unary(U::Tanh, hidden);
    let y = n.linear(hidden, 33, 5);
    let missed = n.binary(B::Subtract, y, wanted);
    let square = n.binary(B::Multiply, missed, missed);
    let loss = n.mean(square);
    n.check(loss);
}

/// Convolution, batch normalization, rectifier, pooling by the largest, a layer, cross entropy.
#[test]
fn a_convolutional_network() {
    let mut n = Network::new();
    let (x, wanted) = (n.input(&[2, 3, 12, 12]), n.input(&[2, 7]));
    let (w, bias) = (n.parameter(&[8, 3, 3, 3], 0.3), n.parameter(&[8], 0.1));
    let window = |stride: usize, pad: usize| Window {
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        pads_begin: vec![pad; 2],
        pads_end: vec![pad; 2],
    };
    let y = n.node(Convolution { window: window(1, 1), groups: 1 }, &[x, w, bias]);
    let (scale, shift) = (n.parameter(&[8], 1.0), n.parameter(&[8], 0.1));
    let (mean, variance) = (n.constant(&[8], 0.1, 0.0), n.constant(&[8], 0.1, 1.0));
    let y = n.node(BatchNormalization { epsilon: 1e-5 }, &[y, scale, shift, mean, variance]);
    let y = n.unary(U::Relu, y);
    let (kind, kernel) = (PoolKind::Maximum, vec![2, 2]);
    let pool = Pool { kind, kernel, window: window(2, 0), count_padding: false };
    let y = n.node(pool, &[y]);
    // Groups and a stride, too.
    let w = n.parameter(&[8, 2, 3, 3], 0.3);
    let y = n.node(Convolution { window: window(2, 1), groups: 4 }, &[y, w]);
    let y = n.unary(U::Sigmoid, y);
    let flat = n.node(Reshape { shape: vec![2, 72] }, &[y]);
    let scores = n.linear(flat, 72, 7);
    let loss = n.cross_entropy(scores, wanted);
    n.check(loss);
}

/// Rows of a table chosen by tokens, attention over them, layer normalization.
#[test]
fn a_block_of_attention() {
    let (tokens, width, heads) = (10, 16, 2);
    let mut n = Network::new();
    let (wanted, ids) = (n.input(&[tokens, 30]), n.indices(&[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]));
    let table = n.parameter(&[30, width], 1.0);
    let x = n.node(Gather { axis: 0 }, &[table, ids]);
    let by_heads = |n: &mut Network, x, permutation: [usize; 3]| {
        let y = n.linear(x, width, width);
        let y = n.node(Reshape { shape: vec![tokens, heads, width / heads] }, &[y]);
        n.node(Transpose { permutation: permutation.to_vec() }, &[y])
    };
    let query = by_heads(&mut n, x, [1, 0, 2]);
    let key = by_heads(&mut n, x, [1, 2, 0]);
    let value = by_heads(&mut n, x, [1, 0, 2]);
    let scores = n.node(MatMul {}, &[query, key]);
    let scale = n.number((heads as f64 / width as f64).sqrt());
    let scores = n.binary(B::Multiply, scores, scale);
    let shares = n.node(Softmax { axis: 2, log: false }, &[scores]);
    let y = n.node(MatMul {}, &[shares, value]);
    let y = n.node(Transpose { permutation: vec![1, 0, 2] }, &[y]);
    let y = n.node(Reshape { shape: vec![tokens, width] }, &[y]);
    let y = n.binary(B::Add, x, y);
    let (scale, shift) = (n.parameter(&[width], 1.0), n.parameter(&[width], 0.1));
    let y = n.node(LayerNormalization { axis: 1, epsilon: 1e-5 }, &[y, scale, shift]);
    let scores = n.linear(y, width, 30);
    let loss = n.cross_entropy(scores, wanted);
    n.check(loss);
}

/// The derivative of the square of a derivative, as in a penalty of the slope.
#[test]
fn second_derivatives() {
    let mut n = Network::new();
    let x = n.input(&[6, 8]);
    let hidden = n.linear(x, 8, 12);
    let hidden = n.unary(U::Tanh, hidden);
    let y = n.linear(hidden, 12, 1);
    let slope = n.derivative(y, x);
    let square = n.binary(B::Multiply, slope, slope);
    let loss = n.mean(square);
    n.check(loss);
}
