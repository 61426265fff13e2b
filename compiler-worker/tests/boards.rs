//! A search whose candidates run on a board of another architecture: code is made here, and the runner of the board, here under
//! QEMU, holds memory, calls and times. Boards that end, that answer wrong, and that are not there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Place, board, onnx};
use serde_json::{Value, json};

const TARGET: &str = "linux/arm64:cortex-a72";

/// An emulator as a board of a kind. QEMU ignores what follows the runner, but shows it: `mark` tells boards apart, each of which
/// has one user.
fn board(kind: &str, mark: &str) -> String {
    format!("{kind}=qemu-aarch64 -cpu max {{runner}} {mark}-{}", std::process::id())
}

/// A folder with a product and a softmax in it: an emulator is slow.
fn folder() -> Place {
    let folder = Place::new();
    let nodes = [
        onnx::node("product", "MatMul", &["a", "b"], &["c"]),
        onnx::node("shares", "Softmax", &["c"], &["y"]),
    ];
    let inputs = [onnx::port("a", &["16", "48"]), onnx::port("b", &["48", "32"])];
    let outputs = [onnx::port("y", &["16", "32"])];
    folder.write("model.onnx", onnx::model(&nodes, &[], &inputs, &outputs));
    folder
}

/// `hone tune` of so many trials on a board.
fn tune(folder: &Place, board: &str, trials: usize, more: &[&str]) -> Child {
    let mut command = folder.command();
    command.args(["tune", "model.onnx", "--records", "records", "--json", "--strategy", "random"]);
    command.args(["--seconds", "0.02", "--target", TARGET, "--board", board]);
    command.args(["--trials", &trials.to_string()]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The records of all files of one kind.
fn records(folder: &Place, kind: &str) -> Vec<Value> {
    let names = folder.names("records").into_iter();
    let names = names.filter(|name| name.ends_with(".jsonl"));
    let texts =
        names.map(|name| std::fs::read_to_string(folder.path(&format!("records/{name}"))).unwrap());
    let lines = texts.flat_map(|text| {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    });
    lines.filter(|record| record["kind"] == kind).collect()
}

/// Every candidate was measured once, well, on a machine that is not this one.
fn once_each(folder: &Place, trials: usize) {
    let found = records(folder, "trial");
    let candidates: Vec<String> = found
        .iter()
        .map(|r| json!([r["program"], r["template"], r["decisions"]]).to_string())
        .collect();
    let once: BTreeSet<&String> = candidates.iter().collect();
    assert_eq!((candidates.len(), once.len()), (trials, trials));
    let machines: BTreeSet<&str> = found.iter().map(|r| r["machine"].as_str().unwrap()).collect();
    assert_eq!(machines.len(), 1, "{machines:?}");
    for record in &found {
        assert!(record["target"].as_str().unwrap().contains("aarch64"), "{record}");
        let time = record["nanoseconds"].as_f64();
        assert!(time.map_or(record["cause"].is_string(), |time| time > 0.0), "{record}");
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(240), "{what}: not within four minutes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes that run a program whose words contain `word`: QEMU names its runner's file among them.
fn runners(word: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|own| own.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| {
        let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.starts_with("qemu-aarch64") && words.contains(word)
    })
    .collect()
}

#[test]
fn a_board_that_ends_costs_no_trial_and_none_counts_twice() {
    let folder = folder();
    let (board, mark) = (board("a72", "ends"), format!("ends-{}", std::process::id()));
    let trials = 32;
    let mut search = tune(&folder, &board, trials, &[]);
    // Its runner is killed again and again while it measures, and comes again.
    let mut killed = 0;
    eventually("trials while the board ends now and then", || {
        let measured = records(&folder, "trial").len();
        if killed < 3 && measured >= 4 * (killed + 1) {
            for id in runners(&mark) {
                let id = rustix::process::Pid::from_raw(id).unwrap();
                if rustix::process::kill_process(id, rustix::process::Signal::KILL).is_ok() {
                    killed += 1;
                }
            }
        }
        killed >= 3 || search.try_wait().unwrap().is_some()
    });
    let done = folder.ended(search.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(report["trials"], trials, "{}", done.out);
    assert!(report["failed"]["DeviceLost"].is_null(), "{}", done.out);
    assert!(killed > 0, "no runner was seen");
    once_each(&folder, trials);

    // Another call goes on from the records.
    let more = folder.ended(tune(&folder, &board, 8, &[]).wait_with_output().unwrap());
    assert_eq!(more.code, 0, "{}", more.err);
    once_each(&folder, trials + 8);
    // What was measured there is of no use for code of this machine.
    let here = folder.hone(&["records", "best", "--target", "host", "--records", "records"]);
    assert!(!here.out.contains("aarch64"), "{}", here.out);
}

#[test]
fn a_killed_search_goes_on_from_what_was_measured() {
    let folder = folder();
    let board = board("a72", "goes-on");
    let mut search = tune(&folder, &board, 400, &[]);
    eventually("some trials", || records(&folder, "trial").len() >= 16);
    search.kill().unwrap();
    search.wait().unwrap();
    let before = records(&folder, "trial").len();
    let done = folder.ended(tune(&folder, &board, 8, &[]).wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    once_each(&folder, before + 8);
}

#[test]
fn wrong_answers_of_a_board_are_kept_out() {
    let folder = folder();
    folder.write("liar.py", board::SCRIPT);
    folder.write("liar.mode", "wrong 2");
    let liar = format!("liar=python3 liar.py liar.mode {{runner}} {}", std::process::id());
    let done = folder.ended(tune(&folder, &liar, 16, &[]).wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    // Two of each round are right: the plain program, with which nothing is compared before, and the schedule without tuning.
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert!(report["failed"]["WrongResult"].as_u64() >= Some(12), "{}", done.out);
    let trials = records(&folder, "trial");
    let wrong = trials
        .iter()
        .filter(|own| own["cause"].as_str().is_some_and(|own| own.contains("output 0")));
    assert!(wrong.clone().count() >= 12, "{trials:?}");
    wrong.for_each(|record| assert!(record["nanoseconds"].is_null(), "{record}"));
}

#[test]
fn boards_that_cannot_measure_are_refused_with_a_reason() {
    let folder = folder();
    for (arguments, code, word) in [
        (vec!["--target", TARGET], 2, "--board KIND=COMMAND"),
        (vec!["--board", "qemu-aarch64"], 2, "give KIND=COMMAND"),
        (vec!["--board", "A72=qemu-aarch64 {runner}"], 2, "lower-case letters"),
        (vec!["--target", "linux/z80", "--board", "a72=qemu-aarch64 {runner}"], 16, "z80"),
        (
            vec!["--target", TARGET, "--board", "gone=./no-such-program"],
            43,
            "board 'gone' does not answer",
        ),
    ] {
        let ended =
            folder.hone(&[&["tune", "model.onnx", "--trials", "1"], &arguments[..]].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(word), "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn sessions_with_boards_measure_for_a_search_with_one_of_their_kind() {
    let folder = folder();
    let session = |name: &str, board: &str| {
        let mut command = folder.command();
        command.args(["session", "--fleet", "fleet", "--name", name, "--idle", "10m"]);
        command.args(["--target", TARGET, "--board", board]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let (mut same, mut other) =
        (session("same", &board("a72", "same")), session("other", &board("m4", "other")));
    let done = tune(&folder, &board("a72", "searches"), 96, &["--fleet", "fleet"])
        .wait_with_output()
        .unwrap();
    let done = folder.ended(done);
    for session in [&mut same, &mut other] {
        session.kill().unwrap();
        session.wait().unwrap();
    }
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("session 'other' is on another kind of machine"), "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert!(report["devices"]["same"].as_u64() > Some(0), "{}", done.err);
    once_each(&folder, 96);
}
