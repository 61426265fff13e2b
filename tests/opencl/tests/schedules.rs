//! The programs of the schedule cases, scheduled for a device, on an OpenCL device: they compute what the
//! interpreter of loop programs computes of the plain ones. Whole numbers keep sums exact.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{OpenClC, emit, source};
use hone_opencl_tests::{Device, device_of_tests, run};
use hone_schedule::{Schedule, Trace};
use hone_tensor::{Limits, Program, Role, interpret, parse};
use hone_tune::schedule_for_device;
use hone_types::Tensor;
use std::collections::BTreeMap;
use std::path::Path;

/// Name, plain program, and its steps where the case accepts them.
fn cases() -> Vec<(String, Program, Option<Trace>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schedules");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let Some((program, rest)) = text.split_once("--- steps\n") else { continue };
        let (steps, outcome) = rest.split_once("--- ").unwrap();
        let trace = outcome.starts_with("program").then(|| steps.parse().unwrap());
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        cases.push((name, parse(program).unwrap(), trace));
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

fn inputs(program: &Program) -> Vec<Tensor> {
    let buffers = program.parameters().into_iter().map(|own| &program.buffers[own]);
    let given = buffers.filter(|own| matches!(own.role, Role::Input(_)));
    given
        .map(|own| {
            let values: Vec<f64> = (0..own.elements())
                .map(|place| ((place * 31 + place / 5) % 7) as f64 - 3.0)
                .collect();
            Tensor::from_f64(own.dtype, own.shape.clone(), &values).unwrap()
        })
        .collect()
}

fn check(device: &Device, name: &str, plain: &Program, bound: &Program) -> String {
    let inputs = inputs(plain);
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
    for (name, plain, trace) in cases() {
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
