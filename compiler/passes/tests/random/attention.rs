//! Attention with constant masks of every form, one over the other, and with rows of which they hide every key.

use super::Net;
use hone_graph::{Constants, ValueId};
use hone_ops::{Binary, BinaryFunction, MatMul, Select, Softmax, Transpose, Unary, UnaryFunction};
use hone_passes::fuse_attention;
use hone_types::DataType;

const LANES: usize = 4;

/// What hides a key: what exporters write, and numbers about as large that do not.
const HIDING: [f64; 6] = [-1e9, f64::NEG_INFINITY, f32::MIN as f64, -3e9, -1e9, -5e8];
/// What does not: the last ones are as large as what does.
const SHOWING: [f64; 9] = [0.0, 0.0, 0.0, 1.0, -2.0, 5e7, -5e8, 1e9, 2e9];

/// A mask of one of the shapes that broadcast to `[batch, heads, queries, keys]`: each row shows a range of keys.
fn mask(net: &mut Net, scores: &[usize], dtype: DataType) -> ValueId {
    let [batch, heads, queries, keys] = scores[..] else { panic!() };
    let shape = match net.between(0, 4) {
        0 => vec![queries, keys],
        1 => vec![1, keys],
        2 => vec![batch, 1, queries, keys],
        3 => vec![batch, heads, queries, keys],
        _ => vec![batch, 1, 1, keys],
    };
    let (hiding, showing) = (net.pick(&HIDING), net.pick(&SHOWING));
    let (first, last) = (net.between(0, keys), net.between(0, keys));
    let slope = net.pick(&[0, 1, 2]);
    let mut values = Vec::new();
    for row in 0..shape.iter().product::<usize>() / keys {
        let first = if slope == 0 { first } else { slope * (row % queries) };
        let blind = net.chance(4);
        for key in 0..keys {
            let shown = !blind && (first.min(last)..first.max(last)).contains(&key);
            values.push(match dtype {
                DataType::Bool => f64::from(u8::from(shown)),
                _ => {
                    if shown {
                        showing
                    } else {
                        hiding
                    }
                }
            });
        }
    }
    net.constant(dtype, &shape, &values)
}

/// One change of the scores.
fn step(net: &mut Net, x: ValueId) -> ValueId {
    let scores = net.shape(x);
    let number = |net: &mut Net, value: f64| net.constant(DataType::F32, &[1], &[value]);
    match net.between(0, 9) {
        0 => {
            let by = net.pick(&[0.5, 2.0, -1.0, 64.0]);
            let by = number(net, by);
            net.node(Binary::new(BinaryFunction::Multiply), &[x, by])
        }
        1 => net.node(Unary::new(UnaryFunction::Tanh), &[x]),
        2 => {
            let seen = net.input(DataType::F32, &[1, 1, 1, scores[3]]);
            net.node(Binary::new(BinaryFunction::Add), &[x, seen])
        }
        kind @ 3..=5 => {
            let condition = mask(net, &scores, DataType::Bool);
            let value = net.pick(&[-1e9, f64::NEG_INFINITY, -2e9, -5e8, 1e9, 0.0]);
            let value = number(net, value);
            let [then, otherwise] = if kind == 3 { [value, x] } else { [x, value] };
            net.node(Select {}, &[condition, then, otherwise])
        }
        _ => {
            let mask = mask(net, &scores, DataType::F32);
            net.node(Binary::new(BinaryFunction::Add), &[x, mask])
        }
    }
}

fn attention(net: &mut Net, [queries, keys]: [usize; 2], steps: usize) -> ValueId {
    let (batch, heads, size) = (net.between(1, 2), net.between(1, 2), net.between(1, 3));
    let mut rows = |count: usize| net.input(DataType::F32, &[batch, heads, count, size]);
    let (query, key, value) = (rows(queries), rows(keys), rows(keys));
    let transposed = net.node(Transpose { permutation: vec![0, 1, 3, 2] }, &[key]);
    let mut scores = net.node(MatMul {}, &[query, transposed]);
    for _ in 0..steps {
        scores = step(net, scores);
    }
    let mut weights = net.node(Softmax { axis: 3, log: false }, &[scores]);
    if net.chance(30) {
        let is_nan = net.node(Unary::new(UnaryFunction::IsNan), &[weights]);
        let zero = net.constant(DataType::F32, &[1], &[0.0]);
        weights = net.node(Select {}, &[is_nan, zero, weights]);
    }
    net.node(MatMul {}, &[weights, value])
}

#[test]
fn attention_without_hidden_keys_computes_the_same() {
    let (mut fused, mut parts) = (0, 0);
    for seed in 0..1000 {
        let mut net = Net::new(3000 + seed);
        let (queries, keys) = (net.pick(&[4, 5, 8, 12, 16]), net.between(8, 40));
        let steps = net.pick(&[1, 1, 2, 2, 3]);
        let y = attention(&mut net, [queries, keys], steps);
        let after = net.check(y, seed, |graph| fuse_attention(graph, LANES, DataType::F32));
        let text = after.to_text(Constants::Digest);
        fused += usize::from(text.contains("attention"));
        parts += usize::from(text.contains("\"part\":"));
    }
    assert!(fused > 900 && parts > 60, "{fused} attentions, {parts} in parts");
}

/// A key that a mask hides counts where others of the row are moved as far, or it was before.
#[test]
fn hidden_keys_count_where_all_are_moved_as_far() {
    let [queries, keys] = [4, 32];
    let halves = |first: f64, second: f64| -> Vec<f64> {
        (0..keys).map(|key| if key < keys / 2 { first } else { second }).collect()
    };
    for raised in [false, true] {
        let mut net = Net::new(1);
        let mut rows = |count: usize| net.input(DataType::F32, &[count, 2]);
        let (query, key, value) = (rows(queries), rows(keys), rows(keys));
        let key = net.node(Transpose { permutation: vec![1, 0] }, &[key]);
        let scores = net.node(MatMul {}, &[query, key]);
        let add = || Binary::new(BinaryFunction::Add);
        let scores = if raised {
            let half = net.constant(DataType::Bool, &[1, keys], &halves(1.0, 0.0));
            let far = net.constant(DataType::F32, &[1], &[1e9]);
            let scores = net.node(Select {}, &[half, far, scores]);
            let mask = net.constant(DataType::F32, &[1, keys], &halves(-1e9, 0.0));
            net.node(add(), &[scores, mask])
        } else {
            let first = net.constant(DataType::F32, &[1, keys], &halves(-1e9, -5e8));
            let scores = net.node(add(), &[scores, first]);
            let second = net.constant(DataType::F32, &[1, keys], &halves(0.0, -5e8));
            net.node(add(), &[scores, second])
        };
        let weights = net.node(Softmax { axis: 1, log: false }, &[scores]);
        let y = net.node(MatMul {}, &[weights, value]);
        let after = net.check(y, 1, |graph| fuse_attention(graph, LANES, DataType::F32));
        assert!(!after.to_text(Constants::Digest).contains("\"part\":"));
    }
}

/// Parts of neighbouring queries, which are worth it where there are many.
#[test]
fn attention_in_several_parts_computes_the_same() {
    let mut parts = 0;
    for seed in 0..2 {
        let mut net = Net::new(9000 + seed);
        let (queries, keys) = (512, net.pick(&[521, 600]));
        let mut rows = |count: usize| net.input(DataType::F32, &[count, 2]);
        let (query, key, value) = (rows(queries), rows(keys), rows(keys));
        let key = net.node(Transpose { permutation: vec![1, 0] }, &[key]);
        let scores = net.node(MatMul {}, &[query, key]);
        let hiding = net.pick(&HIDING[..5]);
        // Each query sees a window of keys, and one of a hundred sees none.
        let (window, blind) = (net.between(20, 200), net.between(0, 99));
        let seen = |query: usize| match query % 100 == blind && query < 100 {
            true => 0..0,
            false => query.saturating_sub(window)..query + 1,
        };
        let element = |index: usize| match seen(index / keys).contains(&(index % keys)) {
            true => 0.0,
            false => hiding,
        };
        let values: Vec<f64> = (0..queries * keys).map(element).collect();
        let mask = net.constant(DataType::F32, &[queries, keys], &values);
        let scores = net.node(Binary::new(BinaryFunction::Add), &[scores, mask]);
        let weights = net.node(Softmax { axis: 1, log: false }, &[scores]);
        let y = net.node(MatMul {}, &[weights, value]);
        let after = net.check(y, seed, |graph| fuse_attention(graph, LANES, DataType::F32));
        parts += usize::from(after.to_text(Constants::Digest).matches("\"part\":").count() > 1);
    }
    assert_eq!(parts, 2);
}
