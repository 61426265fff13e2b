//! Faults put into PTX: the interpreter has to notice each, by an error or by another result.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{changed, moved};
use hone_codegen::nvptx::{Architecture, Module, emit};
use hone_device_tests::{count, product, sums};
use hone_ptx_tests::{parse, run};
use hone_tensor::{Program, interpret};
use hone_tune::schedule_for_device;
use hone_types::{DataType, Tensor};

/// A program with shared memory, its code and what it computes.
struct Case {
    bound: Program,
    module: Module,
    inputs: Vec<Tensor>,
    expected: Vec<Tensor>,
}

fn cases() -> Vec<Case> {
    let products = [[1, 32, 32, 16], [2, 16, 32, 40]].map(|sizes| product(DataType::F32, sizes));
    let halves = product(DataType::F16, [1, 32, 16, 24]);
    let all = products.into_iter().chain([halves, sums(2, 1024), sums(3, 777)]);
    let architecture = Architecture::Sm80;
    all.map(|(plain, inputs)| {
        let scheduled = schedule_for_device(plain.clone(), &architecture.limits()).unwrap();
        assert_ne!(scheduled.template, "flat");
        let bound = scheduled.schedule.into_program();
        let module = emit(&bound, architecture, &architecture.limits(), "k").unwrap();
        let expected = interpret(&plain, &inputs).unwrap();
        Case { bound, module, inputs, expected }
    })
    .collect()
}

/// What gives the fault away: the beginning of an error, or `other results`.
fn noticed(case: &Case, text: &str) -> Option<String> {
    let text = match parse(text) {
        Ok(text) => text,
        Err(error) => return Some(format!("{error:#}")),
    };
    match run(&text, &case.bound, &case.module.steps, &case.inputs) {
        Err(error) => Some(error.root_cause().to_string()),
        Ok(results) => (results != case.expected).then(|| "other results".to_string()),
    }
}

#[test]
fn texts_without_a_fault_compute_what_is_expected() {
    for case in cases() {
        assert_eq!(noticed(&case, &case.module.text), None, "{}", case.module.text);
    }
}

#[test]
fn every_removed_barrier_is_noticed() {
    let mut faults = 0;
    for case in cases() {
        let removed = |line: &str| line.contains("bar.sync").then(String::new);
        for text in changed(&case.module.text, &removed) {
            let reason =
                noticed(&case, &text).unwrap_or_else(|| panic!("a barrier is missing: {text}"));
            assert!(reason.starts_with("race: "), "{reason}");
            faults += 1;
        }
    }
    println!("PTX: barriers removed");
    count(faults, "faults in PTX noticed");
    assert!(faults >= 7, "only {faults} barriers");
}

/// Accesses to memory that lanes share.
const ACCESSES: [&str; 4] = ["ld.shared", "st.shared", "ld.global", "st.global"];

#[test]
fn every_moved_access_is_noticed() {
    let mut faults = 0;
    for case in cases() {
        let bytes = if case.module.text.contains(".u16") { 2 } else { 4 };
        for by in [bytes, -bytes] {
            for text in changed(&case.module.text, &|line| moved(line, &ACCESSES, by)) {
                let found = noticed(&case, &text);
                assert!(found.is_some(), "an access is moved by {by}: {text}");
                faults += 1;
            }
        }
    }
    println!("PTX: accesses moved by one element");
    count(faults, "faults in PTX noticed");
    assert!(faults >= 100, "only {faults} accesses");
}

#[test]
fn every_barrier_for_some_lanes_only_is_noticed() {
    let mut faults = 0;
    for case in cases() {
        let some = |line: &str| {
            let barrier = line.contains("bar.sync");
            let lane =
                "mov.u32 %r90000, %tid.x;\nsetp.lt.u32 %p90000, %r90000, 3;\n@%p90000 bar.sync 0;";
            barrier.then(|| lane.to_string())
        };
        for text in changed(&case.module.text, &some) {
            let reason =
                noticed(&case, &text).unwrap_or_else(|| panic!("lanes wait apart: {text}"));
            let expected = reason.starts_with("divergent barrier") || reason.starts_with("race: ");
            assert!(expected, "{reason}");
            faults += 1;
        }
    }
    println!("PTX: barriers for three lanes");
    count(faults, "faults in PTX noticed");
    assert!(faults >= 7, "only {faults} barriers");
}
