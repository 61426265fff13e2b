//! The official operator cases on an OpenCL device, kernel by kernel: every kernel is held against the interpreter
//! of loop programs on the same inputs, and every case against the outputs it states.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::OpenCl;
use hone_device_tests::{Collector, count};
use hone_onnx_tests::{folder, load, run};
use hone_opencl_tests::device_of_tests;

#[test]
fn official_cases_compute_the_same_on_a_device() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let opencl = OpenCl(device);
    let collector = Collector::new(&opencl);
    let report = run(&collector, &load(&folder()).unwrap(), |_| true);
    assert!(report.is_good(), "{report}");
    let (outcome, _) = collector.run_all();
    println!("{report}\non {}: {outcome}", device.name());
    count(outcome.right, "kernel runs of OpenCL C right");
    assert!(outcome.wrong.is_empty(), "{outcome}, the first:\n{}", outcome.wrong[0]);
    assert_eq!(outcome.refused(), 0, "{outcome}");
    assert!(outcome.by_template("flat") > 1000, "are all cases there? {outcome}");
}
