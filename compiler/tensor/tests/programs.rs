//! Runs the cases under `tests/programs`: a program, and whether the verifier accepts it. With
//! `HONE_UPDATE_EXPECT=1` in the environment the answers are written anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_tensor::{Limits, parse, verify, verify_launches, verify_registers};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).collect();
    files.sort();
    files
}

fn run(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).unwrap();
    let (program, expected) = text.split_once("--- ").ok_or("it has no second part")?;
    let parsed = parse(program).map_err(|error| error.to_string())?;
    let reparsed = parse(&parsed.to_string()).map_err(|error| error.to_string())?;
    assert_eq!(reparsed, parsed, "the text form does not parse back");
    let verified = verify(&parsed)
        .and_then(|()| verify_registers(&parsed))
        .and_then(|()| verify_launches(&parsed, &Limits::PORTABLE));
    let actual = match verified {
        Ok(()) => "accepted\n".to_string(),
        Err(error) => format!("refused\n{error}\n"),
    };
    if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
        std::fs::write(path, format!("{program}--- {actual}")).unwrap();
        return Ok(());
    }
    match expected == actual {
        true => Ok(()),
        false => Err(format!("expected {expected}, got {actual}")),
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
