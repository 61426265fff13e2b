//! Whole networks as WGSL, kernel by kernel, with random weights: every kernel against the interpreter of loop
//! programs, and the network's answers against the reference.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::WebGpu;
use hone_device_tests::network_outcomes;
use hone_webgpu_tests::device_of_tests;

#[test]
fn networks_compute_the_same_as_wgsl() {
    let webgpu = WebGpu::new(device_of_tests().unwrap());
    let mut tiles = 0;
    for (name, outcome) in network_outcomes(&webgpu).unwrap() {
        webgpu.judge(name, &outcome);
        assert_eq!(outcome.refused(), 0, "{name}: {outcome}");
        tiles += outcome.by_template("matmul");
    }
    assert!(tiles > 0, "no product was computed in tiles");
}
