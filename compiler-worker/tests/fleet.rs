//! A search whose candidates sessions measure: over a folder, with a session that is killed, one that ends by request,
//! and bad input.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Place, repository};
use serde_json::{Value, json};

/// A folder with the digits network in it.
fn folder() -> Place {
    let folder = Place::new();
    let model = std::fs::read(repository("examples/digits/digits.onnx")).unwrap();
    folder.write("digits.onnx", model);
    folder
}

fn session(folder: &Place, name: &str) -> Child {
    let mut command = folder.command();
    command.args(["session", "--fleet", "fleet", "--name", name]);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(120), "{what}: not within two minutes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The records of all files.
fn records(folder: &Place) -> Vec<Value> {
    let names = folder.names("records").into_iter();
    let names = names.filter(|name| name.ends_with(".jsonl"));
    let texts =
        names.map(|name| std::fs::read_to_string(folder.path(&format!("records/{name}"))).unwrap());
    texts
        .flat_map(|text| {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn a_killed_session_costs_no_trial_and_none_counts_twice() {
    let folder = folder();
    let (mut killed, mut ended) = (session(&folder, "killed"), session(&folder, "ended"));
    let trials = 200;
    let mut tune = folder.command();
    tune.args(["tune", "digits.onnx", "--records", "records", "--json", "--strategy", "random"]);
    // Other tests run on the same cores, and what a session measures then is no reason to set it aside.
    tune.args(["--trials", &trials.to_string(), "--fleet", "fleet", "--session-drift", "100"]);
    let tune = tune.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It dies while rounds lie with it.
    eventually("a round for the session", || !folder.names("fleet/work/killed").is_empty());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let done = folder.ended(tune.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("session 'killed' is lost"), "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(report["trials"], trials, "{}", done.out);
    let devices = report["devices"].as_object().unwrap();
    let sum: u64 = devices.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(sum, trials);
    let helped = devices["ended"].as_u64().unwrap();
    assert!(helped > 0 && devices["here"].as_u64().unwrap() > 0, "{devices:?}");

    // Every trial is in the records once.
    let found = records(&folder).into_iter().filter(|record| record["kind"] == "trial");
    let candidates: Vec<String> =
        found.map(|r| json!([r["program"], r["template"], r["decisions"]]).to_string()).collect();
    let once: BTreeSet<&String> = candidates.iter().collect();
    assert_eq!((candidates.len() as u64, once.len() as u64), (trials, trials));

    // The session ends when it is asked to, and leaves nothing.
    let id = rustix::process::Pid::from_child(&ended);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    eventually("the session's end", || ended.try_wait().unwrap().is_some());
    let ended = folder.ended(ended.wait_with_output().unwrap());
    assert_eq!(ended.code, 0);
    // Rounds that were too noisy were measured twice.
    let served = ended.out.split_whitespace().nth(3).and_then(|count| count.parse::<u64>().ok());
    assert!(served.is_some_and(|served| served >= helped), "{}", ended.out);
    for left in ["sessions", "work/killed", "work/ended", "results/ended"] {
        let names = folder.names(&format!("fleet/{left}"));
        assert!(names.is_empty(), "{left}: {names:?}");
    }
}

#[test]
fn a_session_that_does_not_say_what_machine_it_is_on_measures_nothing() {
    let folder = folder();
    let mut right = session(&folder, "right");
    eventually("a session", || folder.names("fleet/sessions") == ["right.json"]);
    let text = std::fs::read(folder.path("fleet/sessions/right.json")).unwrap();
    let mut announcement: Value = serde_json::from_slice(&text).unwrap();
    (announcement["session"], announcement["machine"]) = (json!("other"), json!("sha256:other"));
    let mut tune = folder.command();
    tune.args(["tune", "digits.onnx", "--records", "records", "--json", "--strategy", "random"]);
    tune.args([
        "--trials",
        "32",
        "--seconds",
        "0.05",
        "--fleet",
        "fleet",
        "--session-drift",
        "100",
    ]);
    let mut tune = tune.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It beats as long as the search lasts.
    for beat in 1.. {
        announcement["beat"] = json!(beat);
        let new = folder.write("fleet/sessions/.other", announcement.to_string());
        std::fs::rename(new, folder.path("fleet/sessions/other.json")).unwrap();
        if tune.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let done = folder.ended(tune.wait_with_output().unwrap());
    right.kill().unwrap();
    right.wait().unwrap();
    assert_eq!(done.code, 0, "{}", done.err);
    let why = "session 'other' does not say by a SHA-256 digest what machine it is on";
    assert!(done.err.contains(why), "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    let devices = report["devices"].as_object().unwrap();
    assert!(!devices.contains_key("other"), "{devices:?}");
}

#[test]
fn a_session_without_work_ends_by_itself() {
    let folder = folder();
    let ended = folder.hone(&["session", "--fleet", "fleet", "--idle", "1s"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(ended.out, "0 rounds with 0 candidates were measured\n");
    assert!(folder.names("fleet/sessions").is_empty());
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let folder = folder();
    folder.write("file", "no folder");
    for (arguments, code, word) in [
        (vec!["session", "--fleet", "fleet", "--name", "A b"], 2, "lower-case letters"),
        (vec!["session", "--fleet", "fleet", "--idle", "10"], 2, "has the unit"),
        (vec!["session", "--fleet", "file"], 2, "'file' is no folder"),
        (vec!["session", "--fleet", "ftp://nowhere/fleet"], 10, "use s3, gs, az or file"),
        (vec!["session"], 2, "--fleet"),
        (vec!["tune", "digits.onnx", "--fleet", "file"], 2, "'file' is no folder"),
        (vec!["tune", "digits.onnx", "--fleet-credentials", "folder"], 2, "--fleet"),
    ] {
        let ended = folder.hone(&arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(word), "{arguments:?}: {}", ended.err);
    }
    // Two sessions of one name would measure the same rounds.
    let mut first = session(&folder, "first");
    eventually("the session", || !folder.names("fleet/sessions").is_empty());
    let second = folder.hone(&["session", "--fleet", "fleet", "--name", "first"]);
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.code, 2, "{}", second.err);
    assert!(second.err.contains("is there already"), "{}", second.err);
    // What a dead one left keeps nobody out.
    let third = folder.hone(&["session", "--fleet", "fleet", "--name", "first", "--idle", "1s"]);
    assert_eq!(third.code, 0, "{}", third.err);
}

#[test]
fn orders_that_cannot_be_done_are_answered_with_the_reason() {
    let folder = folder();
    let mut session = session(&folder, "one");
    eventually("the session", || !folder.names("fleet/sessions").is_empty());
    let order = json!({
        "target": "z80-unknown-none generic 0", "threads": 1, "timeoutMilliseconds": null,
        "trials": {"program": "", "digest": "", "candidates": [], "seconds": 0.01},
    });
    for (name, text, why) in [
        ("run-00000001", order.to_string(), "the order is for z80"),
        ("run-00000002", "no order".to_owned(), "not understood"),
    ] {
        folder.write(&format!("fleet/work/one/{name}.json"), text);
        let answer = format!("fleet/results/one/{name}.json");
        eventually("an answer", || folder.path(&answer).exists());
        let answer = std::fs::read_to_string(folder.path(&answer)).unwrap();
        assert!(answer.contains(why), "{answer}");
        assert!(!folder.path(&format!("fleet/work/one/{name}.json")).exists());
    }
    session.kill().unwrap();
    session.wait().unwrap();
}
