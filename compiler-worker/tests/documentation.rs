//! What the documentation shows is so: the table of exit codes, and what commands print.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write;

use common::{Place, repository};
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

/// The commands of a page's console blocks, each with what it prints.
fn examples(page: &str) -> Vec<(String, String)> {
    let mut examples: Vec<(String, String)> = Vec::new();
    let mut shown = false;
    for line in page.lines() {
        match (line, line.strip_prefix("$ ")) {
            ("```console", _) => shown = true,
            ("```", _) => shown = false,
            // What needs a cluster is run by the suites of `tests/cluster`.
            (_, Some(command)) if shown && !command.starts_with("hone ") => shown = false,
            (_, Some(command)) if shown => examples.push((command.to_owned(), String::new())),
            _ if shown => {
                if let Some((_, output)) = examples.last_mut() {
                    output.push_str(line);
                    output.push('\n');
                }
            }
            _ => {}
        }
    }
    examples
}

/// Text without what differs from machine to machine: numbers with their units, digests, widths, folders.
fn masked(text: &str) -> String {
    let rules = [
        (r"(\S*/)(out/)", "$2"),
        (r"\b[0-9a-f]{16,64}\b", "#"),
        (r"-?\d+(\.\d+)?(e-?\d+)?( (ns|µs|us|ms|s|KiB|MiB|[MGT]FLOP/s)\b)?", "#"),
        (r"─+", "─"),
        (r"[ \t]+", " "),
        (r" *\n *", "\n"),
    ];
    let masked = rules.iter().fold(text.to_owned(), |text, (pattern, with)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned()
    });
    masked.trim().to_owned()
}

#[test]
fn the_first_model_of_the_readme_goes_as_shown() {
    let place = Place::new();
    for name in ["digits.onnx", "test-images.npz"] {
        place.write(name, std::fs::read(repository("examples/digits").join(name)).unwrap());
    }
    let readme = std::fs::read_to_string(repository("README.md")).unwrap();
    let examples = examples(&readme);
    assert!(examples.len() >= 3, "{examples:?}");
    for (command, shown) in examples {
        let arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
        let ended = place.hone(&arguments);
        assert_eq!(ended.code, 0, "{command}: {}", ended.err);
        assert_eq!(masked(&ended.out), masked(&shown), "{command}");
    }
}
