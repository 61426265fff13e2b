//! The table of exit codes in `docs/cli.md` is that of the constants.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write;

use common::repository;
use hone_artifact::exit_code::{ErrorClass, Reason};

const BEGIN: &str = "<!-- exit codes:";
const END: &str = "<!-- end of exit codes -->";

/// The documentation of each reason, where it is defined.
fn meaning(source: &str, reason: Reason) -> String {
    let definition = format!("    {reason},\n");
    let (before, _) = source.split_once(&definition).unwrap();
    let line = before.lines().last().unwrap();
    line.trim().strip_prefix("/// ").unwrap().to_owned()
}

fn table() -> String {
    let source = std::fs::read_to_string(repository("artifact/src/exit_code.rs")).unwrap();
    let mut table = String::from("| code | reason | class | meaning |\n|---|---|---|---|\n");
    for reason in Reason::all() {
        let class = match reason.class() {
            None => "",
            Some(ErrorClass::User) => "user",
            Some(ErrorClass::Transient) => "transient",
            Some(ErrorClass::Bug) => "bug",
        };
        let meaning = meaning(&source, reason);
        writeln!(table, "| {} | `{reason}` | {class} | {meaning} |", reason.code()).unwrap();
    }
    table
}

#[test]
fn exit_codes_are_documented() {
    let path = repository("docs/cli.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (comment, rest) = rest.split_once('\n').unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let expected = format!("{before}{BEGIN}{comment}\n{}{END}{after}", table());
    if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert_eq!(text, expected, "run with HONE_UPDATE_EXPECT=1 to write it anew");
    }
}
