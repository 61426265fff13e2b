//! Elements that are moved, repeated, joined or cut.

use crate::case::Case;
use hone_ops::{Concat, Expand, Reshape, Slice, Tile, Transpose, Trilu};

#[test]
fn elements_that_are_moved_or_repeated() {
    let checks: [fn(&mut Case) -> hone_graph::ValueId; 6] = [
        |case| {
            let x = case.input(&[2, 3, 4], -1.0, 1.0);
            case.node(Reshape { shape: vec![6, 4] }, &[x])
        },
        |case| {
            let x = case.input(&[2, 3, 4], -1.0, 1.0);
            case.node(Transpose { permutation: vec![2, 0, 1] }, &[x])
        },
        |case| {
            let x = case.input(&[3, 1, 2], -1.0, 1.0);
            case.node(Expand { shape: vec![2, 1, 4, 1] }, &[x])
        },
        |case| {
            let x = case.input(&[2, 3], -1.0, 1.0);
            case.node(Tile { repeats: vec![3, 2] }, &[x])
        },
        |case| {
            let x = case.input(&[2, 3, 4], -1.0, 1.0);
            case.node(Trilu { upper: true, diagonal: 1 }, &[x])
        },
        |case| {
            let x = case.input(&[3, 3], -1.0, 1.0);
            case.node(Trilu { upper: false, diagonal: -1 }, &[x])
        },
    ];
    for (seed, check) in checks.into_iter().enumerate() {
        let mut case = Case::new(seed as u64);
        let y = check(&mut case);
        case.check_twice(y);
    }
}

#[test]
fn parts_joined() {
    let mut case = Case::new(7);
    let parts: Vec<_> =
        [2, 1, 0, 4].iter().map(|extent| case.input(&[2, *extent, 3], -1.0, 1.0)).collect();
    let y = case.node(Concat { axis: 1 }, &parts);
    case.check_twice(y);
    // The same part twice.
    let mut case = Case::new(7);
    let x = case.input(&[2, 3], -1.0, 1.0);
    let y = case.node(Concat { axis: 0 }, &[x, x]);
    case.check_twice(y);
}

#[test]
fn slices_with_steps_forwards_and_backwards() {
    for (starts, steps, extents) in [
        (vec![1, 0], vec![1, 1], vec![2, 7]),
        (vec![0, 1], vec![2, 3], vec![2, 2]),
        (vec![3, 6], vec![-1, -2], vec![4, 4]),
        (vec![3, 5], vec![-3, -2], vec![2, 3]),
        (vec![2, 3], vec![-7, 9], vec![1, 1]),
        (vec![0, 0], vec![3, 4], vec![2, 2]),
    ] {
        println!("{starts:?} {steps:?} {extents:?}");
        let mut case = Case::new(2);
        let x = case.input(&[4, 7], -1.0, 1.0);
        let y = case.node(Slice { starts, steps, extents }, &[x]);
        case.check_twice(y);
    }
}
