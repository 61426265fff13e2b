//! What templates for devices make of sizes that use all of a block, and the programs of the schedule cases, in the
//! interpreter of PTX.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Assembly, all_architectures, run_bound};
use hone_codegen::nvptx::Architecture;
use hone_device_tests::{
    compare, count, product, schedule_cases, sixteen_bits, sums, whole_inputs,
};
use hone_schedule::Schedule;
use hone_tensor::{Program, interpret};
use hone_tune::schedule_for_device;
use hone_types::{DataType, Tensor};

/// Runs a program, which the named template has to take; the text.
fn check(
    template: &str,
    (plain, inputs): (Program, Vec<Tensor>),
    architecture: Architecture,
) -> String {
    let scheduled = schedule_for_device(plain.clone(), &architecture.limits()).unwrap();
    assert_eq!(scheduled.template, template, "{}", scheduled.schedule.program());
    let expected = interpret(&plain, &inputs).unwrap();
    let (module, results) = run_bound(scheduled.schedule.program(), architecture, &inputs).unwrap();
    assert_eq!(results, expected, "{}", module.text);
    module.text
}

#[test]
fn templates_compute_the_same_for_every_architecture() {
    let (mut right, mut assembly) = (0, Assembly::default());
    for architecture in all_architectures() {
        for sizes in [[1, 64, 64, 32], [1, 128, 64, 48], [3, 32, 96, 24], [1, 16, 48, 8]] {
            for dtype in [DataType::F32, DataType::F16, DataType::BF16] {
                let text = check("matmul", product(dtype, sizes), architecture);
                assembly.add(&[&text], architecture);
                right += 1;
            }
        }
        for [rows, columns] in [[3, 1024], [1, 5000], [40, 777]] {
            let text = check("sums", sums(rows, columns), architecture);
            assembly.add(&[&text], architecture);
            right += 1;
        }
    }
    println!("PTX of templates: {assembly}");
    count(right, "kernel runs of PTX right");
    assembly.count();
    assert!(assembly.spills.is_empty(), "{:?}", assembly.spills);
}

#[test]
fn every_number_of_sixteen_bits_is_converted() {
    for dtype in [DataType::F16, DataType::BF16] {
        let (plain, inputs) = sixteen_bits(dtype);
        let architecture = Architecture::Sm80;
        let bound = schedule_for_device(plain.clone(), &architecture.limits()).unwrap().schedule;
        let (_, results) = run_bound(bound.program(), architecture, &inputs).unwrap();
        let expected = interpret(&plain, &inputs).unwrap();
        for (result, expected) in results.iter().zip(&expected) {
            for (index, (a, b)) in result.to_f64().iter().zip(expected.to_f64()).enumerate() {
                assert!(*a == b || (a.is_nan() && b.is_nan()), "{dtype} {index:#x}: {a}, not {b}");
            }
        }
    }
}

#[test]
fn schedule_cases_compute_the_same() {
    let architecture = Architecture::Sm80;
    let (mut right, mut bound) = (0, 0);
    for (name, plain, trace) in schedule_cases() {
        let inputs = whole_inputs(&plain);
        let expected = interpret(&plain, &inputs).unwrap();
        let check = |program: &Program| {
            let results = run_bound(program, architecture, &inputs);
            let (_, results) = results.unwrap_or_else(|error| panic!("{name}: {error:#}"));
            compare(program, &results, &expected).unwrap_or_else(|error| panic!("{name}: {error}"));
        };
        let scheduled = schedule_for_device(plain.clone(), &architecture.limits()).unwrap();
        check(scheduled.schedule.program());
        right += 1;
        // What the case's own steps bind.
        let Some(trace) = trace else { continue };
        let replayed = Schedule::replay(plain.clone(), &trace).unwrap();
        if replayed.program().is_bound() && replayed.verify_for(&architecture.limits()).is_ok() {
            check(replayed.program());
            bound += 1;
        }
    }
    println!("PTX of schedule cases: {right} right, and {bound} cases that bind");
    count(right + bound, "kernel runs of PTX right");
    assert!(right > 80 && bound >= 5, "{right}, {bound}");
}
