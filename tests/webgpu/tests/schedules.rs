//! The programs of the schedule cases, scheduled for a device, as WGSL: they compute what the interpreter of loop
//! programs computes of the plain ones. Whole numbers keep sums exact.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{Wgsl, emit, source};
use hone_device_tests::{schedule_cases, whole_inputs};
use hone_schedule::Schedule;
use hone_tensor::{Limits, Program, interpret};
use hone_tune::schedule_for_device;
use hone_webgpu_tests::{device_of_tests, run, validate};
use std::collections::BTreeMap;

fn check(name: &str, plain: &Program, bound: &Program) -> String {
    let inputs = whole_inputs(plain);
    let expected = interpret(plain, &inputs).unwrap();
    let module = match emit(bound, &Wgsl::default(), &Limits::PORTABLE, "k") {
        Err(reason) => return format!("refused: {reason}"),
        Ok(module) => module,
    };
    let text = source(&Wgsl::default(), &[&module]);
    validate(&text).unwrap_or_else(|error| panic!("{name}: {error:#}\n{text}"));
    let Some(device) = device_of_tests().unwrap() else { return "valid".to_string() };
    let kernels = device.build(&text, &module.kernels());
    let actual = kernels.and_then(|kernels| run(device, &kernels, bound, &module, &inputs));
    let actual = actual.unwrap_or_else(|error| panic!("{name}: {error:#}\n{text}"));
    assert_eq!(actual, expected, "{name}: {text}");
    "right".to_string()
}

#[test]
fn schedule_cases_compute_the_same_as_wgsl() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut bound = 0;
    for (name, plain, trace) in schedule_cases() {
        let scheduled = schedule_for_device(plain.clone(), &Limits::PORTABLE)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let outcome = check(&name, &plain, scheduled.schedule.program());
        *counts.entry(outcome).or_default() += 1;
        // What the case's own steps bind.
        let Some(trace) = trace else { continue };
        let replayed = Schedule::replay(plain.clone(), &trace).unwrap();
        if replayed.program().is_bound() && replayed.verify_for(&Limits::PORTABLE).is_ok() {
            let outcome = check(&name, &plain, replayed.program());
            assert!(["right", "valid"].contains(&&*outcome), "{name}: {outcome}");
            bound += 1;
        }
    }
    println!("schedule cases: {counts:?}, and {bound} cases that bind");
    let checked = counts.get("right").or(counts.get("valid")).copied().unwrap_or(0);
    assert!(checked > 80 && bound >= 5, "{counts:?}, {bound}");
    assert_eq!(counts.len(), 1, "{counts:?}");
}
