//! The official operator cases as PTX, kernel by kernel: every kernel in the interpreter of PTX is held against the
//! interpreter of loop programs on the same inputs, and `ptxas` assembles all of them. With `HONE_PTX=all` in the
//! environment this is done for every architecture, else for one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Assembly, Interpreter, all_architectures};
use hone_codegen::nvptx::Architecture;
use hone_device_tests::{Collector, Device, Job, compare, count};
use hone_onnx_tests::{folder, load, run};

#[test]
fn official_cases_compute_the_same_in_the_interpreter() {
    let device = Interpreter(Architecture::Sm80);
    let collector = Collector::new(&device);
    let report = run(&collector, &load(&folder()).unwrap(), |_| true);
    assert!(report.is_good(), "{report}");
    let (outcome, jobs) = collector.run_all();
    println!("{report}\nPTX for {}: {outcome}", device.0);
    assert!(outcome.wrong.is_empty(), "{outcome}, the first:\n{}", outcome.wrong[0]);
    assert_eq!(outcome.refused(), 0, "{outcome}");
    assert!(outcome.by_template("flat") > 1000, "are all cases there? {outcome}");
    let (mut runs, mut assembly) = (outcome.right, Assembly::default());
    let texts: Vec<&str> = jobs.iter().map(|job| job.code.text.as_str()).collect();
    assembly.add(&texts, device.0);
    for architecture in all_architectures().into_iter().filter(|other| *other != device.0) {
        let (texts, more) = again(&jobs, Interpreter(architecture));
        runs += more;
        assembly.add(&texts.iter().map(String::as_str).collect::<Vec<_>>(), architecture);
    }
    println!("PTX of operator cases: {} programs, {assembly}", jobs.len());
    count(runs, "kernel runs of PTX right");
    assembly.count();
}

/// The texts of all programs for another architecture, and how many runs were right.
fn again(jobs: &[Job<<Interpreter as Device>::Code>], device: Interpreter) -> (Vec<String>, usize) {
    let (mut texts, mut runs) = (Vec::new(), 0);
    for (number, job) in jobs.iter().enumerate() {
        let code = device.emit(&job.bound, &format!("k{number}")).unwrap();
        let text = hone_ptx_tests::parse(&code.text).unwrap();
        for one in &job.runs {
            let result = hone_ptx_tests::run(&text, &job.bound, &code.steps, &one.inputs);
            let result = result.and_then(|result| compare(&job.bound, &result, &one.expected));
            result.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", one.name, code.text));
            runs += 1;
        }
        texts.push(code.text);
    }
    (texts, runs)
}
