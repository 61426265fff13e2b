//! The official operator cases as WGSL, kernel by kernel: every text is validated, and where there is a device every
//! kernel is held against the interpreter of loop programs on the same inputs.
//!
//! One case of several is taken; with `HONE_ALL_CASES` in the environment all are.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::WebGpu;
use hone_device_tests::Collector;
use hone_onnx_tests::{Case, folder, load, run};
use hone_webgpu_tests::device_of_tests;

/// Of this many cases one is taken.
const SAMPLE: u64 = 16;

#[test]
fn official_cases_compute_the_same_as_wgsl() {
    let webgpu = WebGpu::new(device_of_tests().unwrap());
    let all = std::env::var_os("HONE_ALL_CASES").is_some();
    let collector = Collector::new(&webgpu);
    let chosen = |case: &Case| all || case.is_in_sample(SAMPLE);
    let report = run(&collector, &load(&folder()).unwrap(), chosen);
    assert!(report.is_good(), "{report}");
    let (outcome, _) = collector.run_all();
    println!("{report}");
    webgpu.judge("official cases", &outcome);
    let least = if all { 1000 } else { 1000 / SAMPLE as usize };
    assert!(outcome.by_template("flat") > least, "are all cases there? {outcome}");
}
