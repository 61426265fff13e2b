//! Normalizations.

use crate::case::Case;
use hone_ops::{
    BatchNormalization, GroupNormalization, InstanceNormalization, LayerNormalization,
    LocalResponseNormalization, LpNormalization,
};

#[test]
fn batch_normalization() {
    for shape in [&[2, 3, 2, 2][..], &[3, 3], &[1, 3, 4]] {
        let mut case = Case::new(shape.len() as u64);
        let x = case.input(shape, -1.0, 1.0);
        let mut operands = vec![x];
        operands.extend((0..3).map(|_| case.input(&[3], -1.0, 1.0)));
        operands.push(case.input(&[3], 0.5, 2.0));
        let y = case.node(BatchNormalization { epsilon: 1e-3 }, &operands);
        case.check_twice(y);
    }
}

#[test]
fn layer_normalization() {
    for (axis, parameters) in [(2, &[4][..]), (1, &[3, 4]), (1, &[4]), (0, &[2, 3, 4]), (2, &[])] {
        for has_bias in [false, true] {
            let mut case = Case::new(axis as u64);
            let mut operands = vec![case.input(&[2, 3, 4], -1.0, 1.0)];
            operands.push(case.input(parameters, 0.5, 1.5));
            if has_bias {
                operands.push(case.input(parameters, -1.0, 1.0));
            }
            let y = case.node(LayerNormalization { axis, epsilon: 1e-2 }, &operands);
            case.check_twice(y);
        }
    }
}

#[test]
fn group_and_instance_normalization() {
    for groups in [1, 2, 4] {
        let mut case = Case::new(groups as u64);
        let x = case.input(&[2, 4, 3], -1.0, 1.0);
        let (scale, bias) = (case.input(&[4], 0.5, 1.5), case.input(&[4], -1.0, 1.0));
        let y = case.node(GroupNormalization { groups, epsilon: 1e-2 }, &[x, scale, bias]);
        case.check_twice(y);
    }
    let mut case = Case::new(5);
    let x = case.input(&[2, 3, 2, 3], -1.0, 1.0);
    let (scale, bias) = (case.input(&[3], 0.5, 1.5), case.input(&[3], -1.0, 1.0));
    let y = case.node(InstanceNormalization { epsilon: 1e-2 }, &[x, scale, bias]);
    case.check_twice(y);
}

#[test]
fn norms_of_lines() {
    for order in [1, 2] {
        for axis in [0, 1] {
            let mut case = Case::new(3);
            let x = case.distinct(&[3, 4]);
            let y = case.node(LpNormalization { axis, order }, &[x]);
            case.check(y);
        }
    }
    let mut case = Case::new(3);
    let x = case.input_of(&[2, 2], &[0.0, 0.0, 3.0, 4.0]);
    let y = case.node(LpNormalization { axis: 1, order: 2 }, &[x]);
    let found = case.values_of(y).remove(0);
    assert_eq!(found[..2], [0.0, 0.0]);
    assert!((found[2] - 0.032).abs() < 1e-12 && (found[3] + 0.024).abs() < 1e-12);
}

#[test]
fn local_response_normalization() {
    for size in [1, 2, 3, 9] {
        let mut case = Case::new(size as u64);
        let x = case.input(&[2, 5, 2], -1.0, 1.0);
        let operator = LocalResponseNormalization { size, alpha: 0.5, beta: 0.75, bias: 1.0 };
        let y = case.node(operator, &[x]);
        case.check_twice(y);
    }
}
