//! Products of matrices.

use crate::case::Case;
use hone_ops::{DotProducts, MatMul};

#[test]
fn products_of_matrices_vectors_and_batches() {
    let shapes: [[&[usize]; 2]; 10] = [
        [&[3, 4], &[4, 5]],
        [&[4], &[4, 5]],
        [&[3, 4], &[4]],
        [&[4], &[4]],
        [&[2, 3, 4], &[4, 5]],
        [&[3, 4], &[2, 4, 5]],
        [&[2, 3, 4], &[2, 4, 1]],
        [&[2, 1, 3, 4], &[3, 4, 2]],
        [&[2, 3, 4], &[4]],
        [&[4], &[2, 4, 3]],
    ];
    for (seed, [left, right]) in shapes.into_iter().enumerate() {
        println!("{left:?} {right:?}");
        let mut case = Case::new(seed as u64);
        let (a, b) = (case.input(left, -1.0, 1.0), case.input(right, -1.0, 1.0));
        let y = case.node(MatMul {}, &[a, b]);
        case.check_twice(y);
    }
}

#[test]
fn products_of_rows() {
    let mut case = Case::new(4);
    let (a, b) = (case.input(&[2, 3, 4], -1.0, 1.0), case.input(&[2, 5, 4], -1.0, 1.0));
    let y = case.node(DotProducts {}, &[a, b]);
    case.check_twice(y);
}

/// A value that is both operands.
#[test]
fn a_product_with_itself() {
    let mut case = Case::new(4);
    let a = case.input(&[3, 3], -1.0, 1.0);
    let y = case.node(MatMul {}, &[a, a]);
    case.check_twice(y);
}
