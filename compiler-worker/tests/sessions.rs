//! A search that measures nothing itself: sessions alone do, those of a pool among them. Sessions that come late, that are killed,
//! and boards that hang, whose times drift or cannot be, and that compute wrong.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Place, board, onnx};
use serde_json::{Value, json};

const TARGET: &str = "linux/arm64:cortex-a72";

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
    folder.write("board.py", board::SCRIPT);
    folder
}

/// A session of the pool's with a board, which a file of the session's name turns.
fn session(folder: &Place, name: &str) -> Child {
    let board =
        format!("a72=python3 board.py {name}.mode {{runner}} {}", folder.path("").display());
    let mut command = folder.command();
    command.args(["session", "--store", "store", "--pool", "boards", "--name", name]);
    command.args(["--target", TARGET, "--board", &board]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// `hone tune` by the pool's sessions.
fn tune(folder: &Place, trials: usize, more: &[&str]) -> Child {
    let mut command = folder.command();
    command.args(["tune", "model.onnx", "--records", "records", "--json", "--strategy", "random"]);
    command.args(["--seconds", "0.02", "--target", TARGET, "--trials", &trials.to_string()]);
    command.args(["--fleet", "store/pools/boards", "--measure", "sessions"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(240), "{what}: not within four minutes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The trials in the records.
fn trials(folder: &Place) -> Vec<Value> {
    let path = folder.path("records/sessions.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|record| record["kind"] == "trial").collect()
}

/// Every candidate was measured once, on one kind of machine.
fn once_each(found: &[Value], count: usize) {
    let name = |r: &Value| json!([r["program"], r["template"], r["decisions"]]).to_string();
    let once: BTreeSet<String> = found.iter().map(name).collect();
    assert_eq!((found.len(), once.len()), (count, count));
    let machines: BTreeSet<&str> = found.iter().map(|r| r["machine"].as_str().unwrap()).collect();
    assert_eq!(machines.len(), 1, "{machines:?}");
}

#[test]
fn sessions_alone_measure_for_a_search_and_may_come_and_go() {
    let folder = folder();
    let search = tune(&folder, 48, &[]);
    // The search waits for the first; it dies while rounds lie with it, and another one goes on.
    std::thread::sleep(Duration::from_secs(2));
    let first = session(&folder, "first");
    eventually("trials of the first", || trials(&folder).len() >= 8);
    end(first);
    let second = session(&folder, "second");
    let done = folder.ended(search.wait_with_output().unwrap());
    end(second);
    assert_eq!(done.code, 0, "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    let devices = report["devices"].as_object().unwrap();
    assert!(devices["second"].as_u64() > Some(0) && !devices.contains_key("here"), "{devices:?}");
    once_each(&trials(&folder), 48);
    // Nothing of the search stays at the store, artifacts least of all.
    for left in ["work/second", "results/second", "artifacts"] {
        let names = folder.names(&format!("store/pools/boards/{left}"));
        assert!(names.is_empty(), "{left}: {names:?}");
    }
    // What was found is used as if it had been measured here.
    let best = folder.hone(&["records", "list", "--records", "records"]);
    assert_eq!(best.code, 0, "{}", best.err);
}

#[test]
fn a_search_without_a_session_says_so_and_ends() {
    let folder = folder();
    let done = folder.ended(tune(&folder, 8, &["--wait", "5s"]).wait_with_output().unwrap());
    assert_eq!(done.code, 24, "{}", done.err);
    assert!(done.err.contains("note: no session answers at"), "{}", done.err);
    assert!(done.err.contains("start one there with hone session"), "{}", done.err);
    for (arguments, word) in [
        (vec!["tune", "model.onnx", "--measure", "sessions"], "add --fleet"),
        (
            vec!["tune", "model.onnx", "--measure", "sessions", "--fleet", "f", "--board", "a=b"],
            "give --board to hone session",
        ),
        (vec!["session", "--pool", "boards"], "--store"),
        (vec!["session", "--store", "store"], "--pool"),
    ] {
        let ended = folder.hone(&arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(word), "{arguments:?}: {}", ended.err);
    }
    // A store that refuses does so again, however long a search waits.
    for (name, text) in [
        ("AWS_ENDPOINT", "http://127.0.0.1:9"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ] {
        folder.write(&format!("credentials/{name}"), text);
    }
    let store = ["--fleet", "s3://bucket/fleet", "--fleet-credentials", "credentials"];
    let refused =
        folder.hone(&[&["tune", "model.onnx", "--measure", "sessions"][..], &store].concat());
    assert_eq!(refused.code, 21, "{}", refused.err);
    assert!(refused.err.contains("which is a loopback address"), "{}", refused.err);
}

/// A session that was good turns bad while it measures alone, and another one comes, which is good. The trials in the records, and
/// what the search said.
fn turned(mode: &str, more: &[&str]) -> (Vec<Value>, String) {
    let folder = folder();
    let bad = session(&folder, "bad");
    let search = tune(&folder, 48, more);
    eventually("trials while it is good", || trials(&folder).len() >= 8);
    folder.write("bad.mode", mode);
    let good = session(&folder, "good");
    let done = folder.ended(search.wait_with_output().unwrap());
    end(good);
    end(bad);
    assert_eq!(done.code, 0, "{}", done.err);
    once_each(&trials(&folder), 48);
    (trials(&folder), done.err)
}

#[test]
fn a_session_that_hangs_is_set_aside() {
    let (_, said) = turned("hang", &["--session-timeout", "60s"]);
    assert!(said.contains("session 'bad' is set aside: it hangs: no answer within 60 s"), "{said}");
}

#[test]
fn a_session_whose_times_drift_is_set_aside_and_what_it_measured_is_not_used() {
    let (trials, said) = turned("times 1000", &[]);
    assert!(said.contains("session 'bad' is set aside: its times drift"), "{said}");
    let times: Vec<f64> = trials.iter().filter_map(|own| own["nanoseconds"].as_f64()).collect();
    // Nothing here takes more than some milliseconds, under an emulator on a busy machine either.
    assert!(times.iter().all(|time| *time < 3e8), "{times:?}");
}

#[test]
fn a_session_whose_times_cannot_be_is_set_aside() {
    let (trials, said) = turned("times 0.000001", &[]);
    assert!(said.contains("session 'bad' is set aside: its times cannot be"), "{said}");
    let times: Vec<f64> = trials.iter().filter_map(|own| own["nanoseconds"].as_f64()).collect();
    assert!(times.iter().all(|time| *time > 100.0), "{times:?}");
}

#[test]
fn a_session_that_computes_wrong_is_set_aside() {
    let (trials, said) = turned("wrong", &[]);
    assert!(said.contains("session 'bad' is set aside: its answers are wrong"), "{said}");
    // A few in the round under way when it turned may be the candidates' fault as well; most of a round never are.
    let wrong = trials.iter().filter(|own| own["class"] == "WrongResult").count();
    assert!(wrong <= 8, "{trials:?}");
}

#[test]
fn a_board_has_one_user() {
    let folder = folder();
    let first = session(&folder, "first");
    eventually("the session", || !folder.names("store/pools/boards/sessions").is_empty());
    let board = format!("a72=python3 board.py first.mode {{runner}} {}", folder.path("").display());
    let arguments =
        ["session", "--fleet", "other", "--target", TARGET, "--board", &board, "--idle", "1s"];
    let second = folder.hone(&arguments);
    assert_eq!(second.code, 18, "{}", second.err);
    let holder = format!("process {} of this machine", first.id());
    assert!(
        second.err.contains("board 'a72' is in use") && second.err.contains(&holder),
        "{}",
        second.err
    );
    end(first);
    assert_eq!(folder.hone(&arguments).code, 0);
}
