//! Runs the cases in `tests/specs`: `accepted/*.yaml` must be read, `refused/*.yaml` must be
//! refused with the message that follows the object.
//!
//! A refused case is the object, then a line `# refused:` and the expected message, each line
//! behind `# `. A case of an update has the old object first, then a line `--- # becomes`.
//! `HONE_UPDATE_EXPECT=1` rewrites the expected messages.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use hone_crds::{DevicePool, ModelCompilation, SpecError, TuningRun, parse};

const MARK: &str = "# refused:\n";
const BECOMES: &str = "--- # becomes\n";

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/specs").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 5, "few cases in {}", folder.display());
    paths
}

fn read(text: &str) -> Result<(), SpecError> {
    let (old, new) = match text.split_once(BECOMES) {
        Some((old, new)) => (Some(old), new),
        None => (None, text),
    };
    let is = |kind: &str| new.contains(&format!("kind: {kind}\n"));
    match old {
        Some(old) if is("TuningRun") => parse::check_update::<TuningRun>(old, new).map(drop),
        Some(old) if is("DevicePool") => parse::check_update::<DevicePool>(old, new).map(drop),
        Some(old) => parse::check_update::<ModelCompilation>(old, new).map(drop),
        None if is("TuningRun") => TuningRun::from_yaml(new).map(drop),
        None if is("DevicePool") => DevicePool::from_yaml(new).map(drop),
        None => ModelCompilation::from_yaml(new).map(drop),
    }
}

/// An error and its causes, a line each.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!("\ncaused by: {inner}"));
        cause = inner.source();
    }
    text
}

#[test]
fn accepted() {
    for path in cases("accepted") {
        let text = std::fs::read_to_string(&path).unwrap();
        if let Err(error) = read(&text) {
            panic!("{} is refused: {}", path.display(), chain(&error));
        }
    }
}

#[test]
fn refused() {
    let update = std::env::var_os("HONE_UPDATE_EXPECT").is_some();
    for path in cases("refused") {
        let text = std::fs::read_to_string(&path).unwrap();
        let (object, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        let Err(error) = read(object) else {
            panic!("{} is accepted", path.display());
        };
        let got: String = chain(&error).lines().map(|l| format!("# {l}\n")).collect();
        if update {
            std::fs::write(&path, format!("{object}{MARK}{got}")).unwrap();
        } else {
            assert_eq!(got, expected, "{}", path.display());
        }
    }
}

/// Every rule and every pattern of the schemas is met by a refused case: its message is in one.
#[test]
fn every_rule_has_a_refused_case() {
    let all: String =
        cases("refused").iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut missing = Vec::new();
    for schema in [
        hone_crds::generate::schema_of::<ModelCompilation>(),
        hone_crds::generate::schema_of::<TuningRun>(),
        hone_crds::generate::schema_of::<DevicePool>(),
    ] {
        collect(&schema["properties"]["spec"], &mut |message| {
            if !all.contains(message) {
                missing.push(message.to_owned());
            }
        });
    }
    assert!(missing.is_empty(), "rules without a refused case: {missing:#?}");
}

/// Calls `see` with the message of every CEL rule below `schema`.
fn collect(schema: &serde_json::Value, see: &mut dyn FnMut(&str)) {
    match schema {
        serde_json::Value::Object(map) => {
            for (name, value) in map {
                if name == "x-kubernetes-validations" {
                    for rule in value.as_array().unwrap() {
                        see(rule["message"].as_str().expect("every rule has a message"));
                    }
                } else {
                    collect(value, see);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, see)),
        _ => {}
    }
}

/// What the documentation shows may be applied as it stands.
#[test]
fn the_examples_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubernetes");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut kinds = std::collections::BTreeSet::new();
    for path in paths.filter(|path| path.extension().is_some_and(|own| own == "yaml")) {
        for text in std::fs::read_to_string(&path).unwrap().split("\n---\n") {
            let text = format!("{text}\n");
            if let Err(error) = read(&text) {
                panic!("{} is refused: {}", path.display(), chain(&error));
            }
            kinds.extend(
                text.lines().find_map(|line| line.strip_prefix("kind: ")).map(str::to_owned),
            );
        }
    }
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["DevicePool", "ModelCompilation", "TuningRun"]
    );
}
