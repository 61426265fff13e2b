//! Elements chosen, written, counted up and padded.

use crate::case::Case;
use hone_ops::{
    CumulativeSum, Gather, GatherElements, GatherNd, Pad, PadMode, ScatterElements, ScatterNd,
    ScatterReduction, TopK,
};

#[test]
fn slices_chosen_by_indices() {
    let chosen: [(usize, &[usize], &[i64]); 5] = [
        (0, &[3], &[1, 1, -1]),
        (1, &[2, 2], &[0, 2, -3, 2]),
        (2, &[], &[3]),
        (1, &[1], &[1]),
        (2, &[0], &[]),
    ];
    for (axis, shape, indices) in chosen {
        println!("{indices:?} along {axis}");
        let mut case = Case::new(axis as u64);
        let x = case.input(&[2, 3, 4], -1.0, 1.0);
        let indices = case.indices(shape, indices);
        let y = case.node(Gather { axis }, &[x, indices]);
        case.check_twice(y);
    }
}

#[test]
fn single_elements_and_tuples() {
    let mut case = Case::new(2);
    let x = case.input(&[3, 4], -1.0, 1.0);
    let indices = case.indices(&[2, 4], &[0, 1, -1, 2, 0, 0, 2, 1]);
    let y = case.node(GatherElements { axis: 0 }, &[x, indices]);
    case.check_twice(y);
    let mut case = Case::new(2);
    let x = case.input(&[3, 4, 2], -1.0, 1.0);
    let indices = case.indices(&[3, 2], &[0, 1, -1, 3, 0, 1]);
    let y = case.node(GatherNd { batch_axes: 0 }, &[x, indices]);
    case.check_twice(y);
    let mut case = Case::new(2);
    let x = case.input(&[2, 3, 4], -1.0, 1.0);
    let indices = case.indices(&[2, 2, 1], &[0, 2, -1, -1]);
    let y = case.node(GatherNd { batch_axes: 1 }, &[x, indices]);
    case.check_twice(y);
    let mut case = Case::new(2);
    let x = case.input(&[2, 3, 4], -1.0, 1.0);
    let indices = case.indices(&[2, 3, 2, 1], &[0, 2, -1, -1, 1, 1, 3, 3, 0, 1, 2, 2]);
    let y = case.node(GatherNd { batch_axes: 2 }, &[x, indices]);
    case.check_twice(y);
}

/// With places that are written twice, of which the last update remains or all are added.
#[test]
fn updates() {
    for reduction in [ScatterReduction::None, ScatterReduction::Add] {
        for axis in [0, 1] {
            let mut case = Case::new(4);
            let x = case.input(&[3, 4], -1.0, 1.0);
            let indices = case.indices(&[3, 2], &[0, 0, -1, 2, 0, 1]);
            let updates = case.input(&[3, 2], -1.0, 1.0);
            let y = case.node(ScatterElements::new(axis, reduction), &[x, indices, updates]);
            case.check_twice(y);
        }
        let mut case = Case::new(4);
        let x = case.input(&[3, 4, 2], -1.0, 1.0);
        let indices = case.indices(&[2, 2, 2], &[0, 1, -1, 3, 0, 1, 0, -3]);
        let updates = case.input(&[2, 2, 2], -1.0, 1.0);
        let y = case.node(ScatterNd::new(reduction), &[x, indices, updates]);
        case.check_twice(y);
        let mut case = Case::new(4);
        let x = case.input(&[3, 2], -1.0, 1.0);
        let indices = case.indices(&[4, 1], &[2, 0, 2, 2]);
        let updates = case.input(&[4, 2], -1.0, 1.0);
        let y = case.node(ScatterNd::new(reduction), &[x, indices, updates]);
        case.check_twice(y);
    }
}

#[test]
fn the_largest_elements() {
    for largest in [true, false] {
        let mut case = Case::new(4);
        let x = case.distinct(&[3, 5]);
        let y = case.outputs(TopK::new(3, 1, largest), &[Some(x)])[0];
        case.check(y);
    }
}

#[test]
fn running_sums() {
    for exclusive in [false, true] {
        for reverse in [false, true] {
            let mut case = Case::new(6);
            let x = case.input(&[2, 4, 2], -1.0, 1.0);
            let sum = CumulativeSum { axis: 1, exclusive, reverse, product: false, in_rows: false };
            let y = case.node(sum, &[x]);
            case.check_twice(y);
        }
    }
}

#[test]
fn padding() {
    for mode in [PadMode::Constant, PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
        for (begin, end) in
            [([1, 2], [2, 0]), ([-1, 3], [1, -2]), ([0, 5], [0, 4]), ([-1, 0], [-1, 0])]
        {
            println!("{mode:?} {begin:?} {end:?}");
            let mut case = Case::new(6);
            let x = case.input(&[3, 4], -1.0, 1.0);
            let (begin, end) = (begin.to_vec(), end.to_vec());
            let y = case.node(Pad { begin, end, mode, value: 0.5 }, &[x]);
            case.check_twice(y);
        }
    }
    let mut case = Case::new(6);
    let (x, value) = (case.input(&[3, 4], -1.0, 1.0), case.input(&[1], -1.0, 1.0));
    let pad = Pad { begin: vec![1, -1], end: vec![0, 2], mode: PadMode::Constant, value: 0.0 };
    let y = case.node(pad, &[x, value]);
    case.check_twice(y);
}
