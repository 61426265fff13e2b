//! The programs of the schedule cases, scheduled for a device, on an OpenCL device: they compute what the
//! interpreter of loop programs computes of the plain ones. Whole numbers keep sums exact.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{OpenClC, emit, source};
use hone_device_tests::{schedule_cases, whole_inputs};
use hone_opencl_tests::{Device, device_of_tests, run};
use hone_schedule::Schedule;
use hone_tensor::{Limits, Program, interpret};
use hone_tune::schedule_for_device;
use std::collections::BTreeMap;

fn check(device: &Device, name: &str, plain: &Program, bound: &Program) -> String {
    let inputs = whole_inputs(plain);
    let expected = interpret(plain, &inputs).unwrap();
    let lanes =
        interpret(bound, &inputs).unwrap_or_else(|error| panic!("{name}: {error}\n{bound}"));
    assert_eq!(lanes, expected, "{name}: the lanes compute something else\n{bound}");
    match emit(bound, &OpenClC, &Limits::PORTABLE, "k") {
        Err(reason) => format!("refused: {reason}"),
        Ok(module) => {
            let source = source(&OpenClC, &[&module]);
            let actual =
                device.build(&source).and_then(|own| run(device, &own, bound, &module, &inputs));
            let actual = actual.unwrap_or_else(|error| panic!("{name}: {error:#}\n{source}"));
            assert_eq!(actual, expected, "{name}: {source}");
            "right".to_string()
        }
    }
}

#[test]
fn schedule_cases_compute_the_same_on_a_device() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut bound, mut templates) = (0, BTreeMap::<&str, usize>::new());
    for (name, plain, trace) in schedule_cases() {
        let scheduled = schedule_for_device(plain.clone(), &Limits::PORTABLE)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        *templates.entry(scheduled.template).or_default() += 1;
        let outcome = check(device, &name, &plain, scheduled.schedule.program());
        *counts.entry(outcome).or_default() += 1;
        // What the case's own steps bind.
        let Some(trace) = trace else { continue };
        let own = Schedule::replay(plain.clone(), &trace).unwrap();
        if own.program().is_bound() && own.verify_for(&Limits::PORTABLE).is_ok() {
            assert_eq!(check(device, &name, &plain, own.program()), "right", "{name}");
            bound += 1;
        }
    }
    println!("on {}: {counts:?} by {templates:?}, and {bound} cases that bind", device.name());
    assert!(counts["right"] > 80 && bound >= 5, "{counts:?}, {bound}");
    assert_eq!(counts.len(), 1, "{counts:?}");
}
