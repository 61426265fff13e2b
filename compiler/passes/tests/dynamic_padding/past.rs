//! New tokens joined to those of the past: inputs have fewer positions than the size, which counts both.

use crate::case::{BOUND, Case, check_from, padded_from};
use hone_graph::ValueId;
use hone_ops::*;
use hone_types::DataType;

const HEADS: usize = 2;
const SIZE: usize = 4;

/// Attention of `new` tokens to those of the past and to themselves; and the keys and values of all.
fn attention(c: &mut Case, new: usize) -> Vec<ValueId> {
    let (past, shape) = (c.n - new, [1, HEADS, new, SIZE]);
    let x = c.input(DataType::F32, &[1, new, HEADS * SIZE], None);
    let mask = c.input(DataType::F32, &[1, c.n], Some(1));
    let heads = |c: &mut Case| {
        let split = c.linear(x, HEADS * SIZE, HEADS * SIZE);
        let split = c.reshape(split, &[1, new, HEADS, SIZE]);
        c.transpose(split, &[0, 2, 1, 3])
    };
    let (query, key, value) = (heads(c), heads(c), heads(c));
    assert_eq!(c.graph.tensor_type(query).shape, shape);
    let joined = |c: &mut Case, tokens: ValueId| {
        let past = c.floats(&[1, HEADS, past, SIZE], 2);
        c.add(Concat { axis: 2 }, &[past, tokens])
    };
    let (key, value) = (joined(c, key), joined(c, value));
    let transposed = c.transpose(key, &[0, 1, 3, 2]);
    let mut scores = c.matmul(query, transposed);
    // Which keys a token sees depends on the distance from the end.
    let causal = c.filled(&[1, 1, new, c.n], |index| match index[3] <= index[2] + past {
        true => 0.0,
        false => -1e9,
    });
    let mask = c.reshape(mask, &[1, 1, 1, c.n]);
    scores = c.sum(scores, causal);
    scores = c.sum(scores, mask);
    let weights = c.softmax(scores, 3);
    let seen = c.matmul(weights, value);
    // Rows of a table of positions, from the length of the past on.
    let table = c.weights(&[40, SIZE]);
    let positions: Vec<i64> = (past..c.n).map(|position| position as i64).collect();
    let positions = c.tensor(&[new], &positions);
    let gathered = c.gather(0, table, positions);
    let cut = c.slice(table, &[(past, new), (0, SIZE)]);
    let seen = c.sum(seen, gathered);
    vec![c.sum(seen, cut), key, value]
}

#[test]
fn new_tokens_begin_where_the_past_ends() {
    let one = check_from(1, "one token", |c| attention(c, 1));
    assert_eq!(one.axes(), [None, Some(2), Some(2)]);
    let three = check_from(3, "three tokens", |c| attention(c, 3));
    assert_eq!(three.axes(), [None, Some(2), Some(2)]);
}

#[test]
fn something_fixed_comes_before_and_behind() {
    check_from(3, "between", |c| {
        let x = c.floats(&[2, c.n - 3, 3], 1);
        let (before, behind) = (c.weights(&[2, 1, 3]), c.weights(&[2, 2, 3]));
        vec![c.add(Concat { axis: 1 }, &[before, x, behind])]
    });
    check_from(3, "several behind", |c| {
        let x = c.floats(&[2, c.n - 3, 3], 1);
        let (first, second) = (c.weights(&[2, 1, 3]), c.weights(&[2, 2, 3]));
        let all = c.add(Concat { axis: 1 }, &[x, first, second]);
        vec![c.reduce(ReduceFunction::Mean, all, &[1]), all]
    });
}

#[test]
fn what_is_not_there_at_every_size_is_refused() {
    let refused = |least: usize, words: &str, build| {
        let error = padded_from(least, build, BOUND).map(|_| ()).expect_err(words).to_string();
        assert!(error.contains(words), "{error}\nwithout: {words}");
    };
    // At size 1 there is no past.
    refused(1, "takes positions along the dimension by index", |c| {
        let x = c.floats(&[c.n - 1, 3], 0);
        let last = c.tensor(&[1], &[-1i64]);
        vec![c.gather(0, x, last)]
    });
    refused(1, "does not have the dimension along axis 0 alone", |c| {
        let x = c.floats(&[c.n - 2, 3], 0);
        vec![c.reduce(ReduceFunction::Sum, x, &[0])]
    });
    refused(13, "13 is no smallest size of a dimension up to 12", |c| vec![c.floats(&[c.n], 0)]);
}
