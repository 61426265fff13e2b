//! The official operator cases on compiled code.

#![allow(clippy::unwrap_used)]

use hone_onnx_tests::{Compiled, folder, load, run, shorter_suite};

#[test]
fn cases_of_the_shorter_suite() {
    let operators = shorter_suite();
    let cases = load(&folder()).unwrap();
    let backend = Compiled::for_host().unwrap();
    let report = run(&backend, &cases, |case| operators.contains(&case.operator.as_str()));
    println!("{report}");
    assert!(report.is_good(), "{report}");
}
