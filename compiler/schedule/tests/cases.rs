//! Runs the cases under `tests/schedules`: a program, steps, and what comes of them.
//!
//! A case has three parts, each behind a line `--- steps`, then `--- program` or `--- refused`. In
//! the first case the program after all steps is compared, and both programs must compute the same;
//! in the second the message of the last step. With `HONE_UPDATE_EXPECT=1` in the environment the
//! last part is written anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_schedule::{Entry, Schedule, Trace};
use hone_tensor::{Program, Role, interpret, parse, verify};
use hone_types::Tensor;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/schedules");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|own| own == "txt")).collect();
    files.sort();
    files
}

/// What the steps give: the kind of the last part, and the part.
fn outcome(program: &Program, steps: &[Entry]) -> Result<(&'static str, String), String> {
    let mut schedule = Schedule::new(program.clone());
    for (place, entry) in steps.iter().enumerate() {
        match schedule.apply(&entry.step) {
            Ok(results) if results == entry.results => {}
            Ok(results) => return Err(format!("{entry}: it made {results:?}")),
            Err(error) if place + 1 < steps.len() => return Err(format!("{entry}: {error}")),
            Err(error) => return Ok(("refused", format!("{error}\n"))),
        }
    }
    same_results(program, schedule.program());
    let again = Schedule::replay(program.clone(), schedule.trace()).unwrap();
    assert_eq!(again.program(), schedule.program());
    let text = schedule.program().to_string();
    assert_eq!(&parse(&text).unwrap(), schedule.program(), "the text form does not parse back");
    Ok(("program", text))
}

fn same_results(plain: &Program, scheduled: &Program) {
    let parameters = plain.parameters().into_iter();
    let inputs: Vec<Tensor> = parameters
        .filter(|buffer| matches!(plain.buffers[*buffer].role, Role::Input(_)))
        .map(|buffer| {
            let own = &plain.buffers[buffer];
            let values: Vec<f64> = (0..own.elements())
                .map(|place| ((place * 31 + place / 5) % 7) as f64 - 3.0)
                .collect();
            Tensor::from_f64(own.dtype, own.shape.clone(), &values).unwrap()
        })
        .collect();
    let results = interpret(scheduled, &inputs);
    let results = results.unwrap_or_else(|error| panic!("{error}\n{scheduled}"));
    assert_eq!(interpret(plain, &inputs).unwrap(), results);
}

fn run(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).unwrap();
    let (program, rest) = text.split_once("--- steps\n").ok_or("it has no '--- steps'")?;
    let (steps, expected) = rest.split_once("--- ").ok_or("it has no third part")?;
    let (kind, expected) = expected.split_once('\n').ok_or("its third part is empty")?;
    let plain = parse(program).map_err(|error| error.to_string())?;
    verify(&plain).map_err(|error| error.to_string())?;
    let trace: Trace = steps.parse().map_err(|error| format!("{error}"))?;
    let (actual_kind, actual) = outcome(&plain, &trace.entries)?;
    if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
        let renewed = format!("{program}--- steps\n{steps}--- {actual_kind}\n{actual}");
        std::fs::write(path, renewed).unwrap();
        return Ok(());
    }
    match (kind == actual_kind, expected == actual) {
        (true, true) => Ok(()),
        _ => Err(format!("expected {kind}:\n{expected}\ngot {actual_kind}:\n{actual}")),
    }
}

#[test]
fn every_case_comes_out_as_written() {
    let cases = cases();
    assert!(!cases.is_empty(), "there are no cases");
    let mut failures = String::new();
    for path in cases {
        if let Err(reason) = run(&path) {
            writeln!(failures, "{}: {reason}", path.display()).unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
}
