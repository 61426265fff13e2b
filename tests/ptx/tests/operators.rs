//! The official operator cases as PTX, kernel by kernel: every kernel in the interpreter of PTX is held against the
//! interpreter of loop programs on the same inputs, and `ptxas` assembles all of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Interpreter;
use hone_codegen::nvptx::Architecture;
use hone_device_tests::Collector;
use hone_onnx_tests::{folder, load, run};

#[test]
fn official_cases_compute_the_same_in_the_interpreter() {
    let device = Interpreter(Architecture::Sm80);
    let collector = Collector::new(&device);
    let start = std::time::Instant::now();
    let report = run(&collector, &load(&folder()).unwrap(), |_| true);
    println!("emitted {:?}", start.elapsed());
    assert!(report.is_good(), "{report}");
    let outcome = collector.run_all();
    println!("ran {:?}", start.elapsed());
    println!("{report}\nPTX for {}: {outcome}", device.0);
    assert!(outcome.wrong.is_empty(), "{outcome}, the first:\n{}", outcome.wrong[..outcome.wrong.len().min(3)].join("\n\n"));
    assert_eq!(outcome.refused(), 0, "{outcome}");
    assert!(outcome.by_template("flat") > 1000, "are all cases there? {outcome}");
}
