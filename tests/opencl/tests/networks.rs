//! Whole networks on an OpenCL device, kernel by kernel, with random weights: every kernel against the interpreter of
//! loop programs, and the network's answers against the reference.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::OpenCl;
use hone_device_tests::{count, network_outcomes};
use hone_opencl_tests::device_of_tests;

#[test]
fn networks_compute_the_same_on_a_device() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let mut tiles = 0;
    for (name, outcome) in network_outcomes(&OpenCl(device)).unwrap() {
        println!("{name}: {outcome}");
        count(outcome.right, "kernel runs of OpenCL C right");
        assert!(outcome.wrong.is_empty(), "{name}: {outcome}\n{}", outcome.wrong[0]);
        assert_eq!(outcome.refused(), 0, "{name}: {outcome}");
        tiles += outcome.by_template("matmul");
    }
    assert!(tiles > 0, "no product was computed in tiles");
}
