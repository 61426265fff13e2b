//! Whole networks as PTX, kernel by kernel, with random weights: every kernel in the interpreter of PTX against the
//! interpreter of loop programs, and the networks' answers against the reference.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Interpreter;
use hone_codegen::nvptx::Architecture;
use hone_device_tests::{count, network_outcomes};

#[test]
fn networks_compute_the_same_in_the_interpreter() {
    let mut tiles = 0;
    for (name, outcome) in network_outcomes(&Interpreter(Architecture::Sm80)).unwrap() {
        println!("{name}: {outcome}");
        count(outcome.right, "kernel runs of PTX right");
        assert!(outcome.wrong.is_empty(), "{name}: {outcome}\n{}", outcome.wrong[0]);
        assert_eq!(outcome.refused(), 0, "{name}: {outcome}");
        tiles += outcome.by_template("matmul");
    }
    assert!(tiles > 0, "no product was computed in tiles");
}
