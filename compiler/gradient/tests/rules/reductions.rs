//! Reductions and softmax.

use crate::case::Case;
use hone_ops::{Reduce, ReduceFunction as R, Softmax};

fn reduced(function: R, axes: &[usize], keep_axes: bool, twice: bool) {
    println!("{function:?} over {axes:?}");
    let mut case = Case::new(axes.len() as u64);
    let x = match function {
        R::Maximum | R::Minimum | R::L1 => case.distinct(&[2, 3, 4]),
        _ => case.input(&[2, 3, 4], 0.3, 1.5),
    };
    let y = case.node(Reduce { function, axes: axes.to_vec(), keep_axes }, &[x]);
    if twice { case.check_twice(y) } else { case.check(y) }
}

#[test]
fn reductions() {
    let axes: [&[usize]; 5] = [&[1], &[2, 0], &[0, 1, 2], &[], &[2]];
    for (place, axes) in axes.into_iter().enumerate() {
        for function in [R::Sum, R::Mean, R::L2, R::SumSquare, R::LogSum, R::LogSumExp] {
            reduced(function, axes, place % 2 == 0, true);
        }
        for function in [R::Maximum, R::Minimum, R::Product, R::L1] {
            reduced(function, axes, place % 2 == 0, false);
        }
    }
}

#[test]
fn ties_zeros_and_factors_of_zero() {
    let function = |function| Reduce { function, axes: vec![0], keep_axes: false };
    let found = |operator: Reduce, x: &[f64]| {
        let mut case = Case::new(1);
        let x = case.input_of(&[x.len()], x);
        let y = case.node(operator, &[x]);
        case.values_of(y).remove(0)
    };
    assert_eq!(found(function(R::Maximum), &[2.0, 1.0, 2.0]), [0.5, 0.0, 0.5]);
    assert_eq!(found(function(R::L2), &[0.0, 0.0]), [0.0, 0.0]);
    assert_eq!(found(function(R::Product), &[2.0, 0.0, 3.0]), [0.0, 6.0, 0.0]);
    assert_eq!(found(function(R::Product), &[0.0, 0.0, 3.0]), [0.0, 0.0, 0.0]);
}

#[test]
fn softmax_and_its_logarithm() {
    for log in [false, true] {
        for axis in 0..3 {
            let mut case = Case::new(axis as u64);
            let x = case.input(&[2, 3, 5], -2.0, 2.0);
            let y = case.node(Softmax { axis, log }, &[x]);
            case.check_twice(y);
        }
    }
}
