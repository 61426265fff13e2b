//! A tuning run as a pod does it, on a folder as the store: killed at any moment, it goes on from its log, and no
//! trial that was in a segment is lost or counted twice.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Place, repository};
use serde_json::{Value, json};

/// A folder with the digits network in it.
fn place() -> Place {
    let place = Place::new();
    let model = std::fs::read(repository("examples/digits/digits.onnx")).unwrap();
    place.write("digits.onnx", model);
    place
}

/// A request to tune the digits network for this machine.
fn request(stop: &Value) -> Value {
    json!({
        "version": 4, "subject": {"name": "digits", "namespace": "team", "uid": "1"},
        "work": {
            "kind": "tune", "model": {"uri": "file://./digits.onnx"},
            "target": {"name": "digits", "os": "linux", "arch": "", "cpu": "host"},
            "log": {"uri": "file://./log"}, "strategy": "random", "costModel": "trees", "seed": 7,
            "measure": {"seconds": 0.001, "timeoutSeconds": 10.0}, "stop": stop,
        },
    })
}

/// Starts a worker, each with scratch space of its own, as a pod has.
fn start(place: &Place, pod: &str, request: &Value) -> Child {
    start_with(place, pod, request, &[])
}

/// As [`start`], with further environment variables.
fn start_with(place: &Place, pod: &str, request: &Value, set: &[(&str, String)]) -> Child {
    let mut command = place.command();
    command.args(["worker", "--threads", "1", "--file-root", "."]);
    command.args(["--scratch", pod, "--termination", &format!("{pod}.json")]);
    command.env("HONE_REQUEST", request.to_string());
    command.envs(set.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs a worker to its end: its exit code and its termination message.
fn run(place: &Place, pod: &str, request: &Value) -> (i32, Value) {
    let output = start(place, pod, request).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let message = std::fs::read_to_string(place.path(&format!("{pod}.json"))).unwrap_or_default();
    assert!(message.len() < 4096, "{} bytes", message.len());
    let message = serde_json::from_str(&message).unwrap_or_else(|e| panic!("{e}: {said}"));
    (output.status.code().unwrap_or(-1), message)
}

/// The trials of all segments, in their order.
fn trials(place: &Place) -> Vec<String> {
    // A segment is written under another name first.
    let names = place.names("log/segments").into_iter().filter(|name| name.ends_with(".jsonl"));
    let text = names
        .map(|name| std::fs::read_to_string(place.path(&format!("log/segments/{name}"))).unwrap());
    let lines: Vec<String> =
        text.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().filter(|line| line.contains("\"trial\"")).collect()
}

/// What makes a candidate: measured again, it would have another time.
fn candidate(line: &str) -> String {
    let record: Value = serde_json::from_str(line).unwrap();
    json!([record["program"], record["template"], record["decisions"]]).to_string()
}

/// Waits until the log has a trial that was not in it when `before` were; segments before that may hold what was
/// measured about the graph alone.
fn wait_for_trials(place: &Place, before: usize, child: &mut Child) {
    let begin = Instant::now();
    while trials(place).len() <= before {
        assert!(begin.elapsed() < Duration::from_secs(300), "no trial was written");
        assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_run_that_is_killed_again_and_again_loses_nothing() {
    let place = place();
    let endless = request(&json!({"maxTrials": 100_000}));
    for round in 1..=2 {
        let before = trials(&place);
        let mut child = start(&place, &format!("killed-{round}"), &endless);
        wait_for_trials(&place, before.len(), &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(trials(&place).starts_with(&before), "a segment changed");
    }
    // Told to end, it writes what it has measured since the last segment.
    let before = trials(&place);
    let mut child = start(&place, "told", &endless);
    wait_for_trials(&place, before.len(), &mut child);
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let kept = trials(&place);
    assert!(kept.starts_with(&before), "a segment changed");
    let message = std::fs::read_to_string(place.path("told.json")).unwrap();
    let message: Value = serde_json::from_str(&message).unwrap();
    assert_eq!(message["failure"]["reason"], "Terminated");
    let tuning = &message["tuning"];
    let counted = tuning["measured"].as_u64().unwrap() + tuning["failed"].as_u64().unwrap();
    assert_eq!(counted as usize, kept.len(), "{message}");
    // The last worker has only so many left as the limit leaves over.
    let most = kept.len() + 20;
    let (code, message) = run(&place, "last", &request(&json!({"maxTrials": most})));
    assert_eq!(code, 0, "{message}");
    let all = trials(&place);
    assert!(all.starts_with(&kept), "a segment changed");
    assert_eq!(all.len(), most);
    let candidates: BTreeSet<String> = all.iter().map(|line| candidate(line)).collect();
    assert_eq!(candidates.len(), all.len(), "a candidate was measured twice");
    let tuning = &message["tuning"];
    assert_eq!(tuning["ended"], "all trials are done");
    assert!(tuning["best"].as_u64().unwrap() > 0 && tuning["untuned"].as_u64().unwrap() > 0);
    let nothing_won = tuning["winners"] == 0;
    assert!(!nothing_won || tuning["best"] == tuning["untuned"], "{tuning}");
    let last = place.names("log/segments").last().cloned().unwrap();
    let bytes = std::fs::read(place.path(&format!("log/segments/{last}"))).unwrap();
    assert_eq!(tuning["segment"].as_u64().unwrap(), last[..8].parse::<u64>().unwrap());
    assert_eq!(tuning["digest"], sha256(&bytes));
    // Whoever has the segments has the records: a folder of them compiles as the run's own.
    let listed = place.hone(&["records", "list", "--records", "log/segments", "--json"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    format!("sha256:{:x}", Sha256::digest(bytes))
}

#[test]
fn limits_count_over_all_workers_of_a_run() {
    let place = place();
    let stop = json!({"maxTrials": 20});
    let (code, first) = run(&place, "one", &request(&stop));
    assert_eq!((code, trials(&place).len()), (0, 20), "{first}");
    // Nothing is left to measure, and the answer is there all the same.
    let (code, second) = run(&place, "two", &request(&stop));
    assert_eq!((code, trials(&place).len()), (0, 20), "{second}");
    assert_eq!(second["tuning"]["measured"], first["tuning"]["measured"]);
    assert!(second["tuning"]["best"].is_u64() && second["fingerprint"].is_string(), "{second}");
    // A goal that is reached before anything is measured ends the run, and so do trials in vain.
    let stop = json!({"maxTrials": 1000, "goalNanoseconds": 1_000_000_000_000u64});
    let (code, third) = run(&place, "three", &request(&stop));
    assert_eq!((code, trials(&place).len()), (0, 20), "{third}");
    assert_eq!(third["tuning"]["ended"], "the goal is expected to be reached");
    let stop = json!({"maxTrials": 100_000, "noImprovementTrials": 30});
    let (code, fourth) = run(&place, "four", &request(&stop));
    assert_eq!(code, 0, "{fourth}");
    let ended = fourth["tuning"]["ended"].as_str().unwrap();
    assert!(ended.contains("brought nothing") || ended.contains("gain nothing"), "{ended}");
}

#[test]
fn a_run_starts_from_the_logs_of_others() {
    let place = place();
    let (code, message) = run(&place, "first", &request(&json!({"maxTrials": 60})));
    assert_eq!(code, 0, "{message}");
    let first: BTreeSet<String> = trials(&place).iter().map(|line| candidate(line)).collect();
    std::fs::rename(place.path("log"), place.path("earlier")).unwrap();
    place.write("foreign/segments/00000001.jsonl", "{\"schema\": 0}\n");

    // The same seed proposes the same candidates, but for those that another run measured. What cannot be read is said.
    let mut warm = request(&json!({"maxTrials": 40}));
    let logs = ["earlier", "gone", "foreign"].map(|log| json!({"uri": format!("file://./{log}")}));
    warm["work"]["warmStart"] = json!(logs);
    let output = start(&place, "second", &warm).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("segments of 'file://./earlier'"), "{said}");
    for log in ["gone", "foreign"] {
        assert!(said.contains(&format!("warning: no warm start from 'file://./{log}'")), "{said}");
    }
    let second: Vec<String> = trials(&place).iter().map(|line| candidate(line)).collect();
    assert_eq!(second.len(), 40, "the limit counts the run's trials alone");
    assert!(second.iter().all(|candidate| !first.contains(candidate)), "measured twice");
    let message = std::fs::read_to_string(place.path("second.json")).unwrap();
    let message: Value = serde_json::from_str(&message).unwrap();
    let counted = &message["tuning"];
    let counted = counted["measured"].as_u64().unwrap() + counted["failed"].as_u64().unwrap();
    assert_eq!(counted, 40, "{message}");
}

#[test]
fn what_was_fastest_on_other_machines_is_tried_first() {
    let place = place();
    let (code, message) = run(&place, "first", &request(&json!({"maxTrials": 32})));
    assert_eq!(code, 0, "{message}");
    // One candidate of each program, as if it had won by far on another processor.
    let mut far = std::collections::BTreeMap::new();
    for line in trials(&place) {
        let mut record: Value = serde_json::from_str(&line).unwrap();
        if record["class"] == "Ok" {
            record["machine"] = json!("sha256:far");
            record["target"] = json!("another target");
            record["ratio"] = json!(0.5);
            far.entry(record["program"].to_string()).or_insert(record);
        }
    }
    let lines: String = far.values().map(|record| format!("{record}\n")).collect();
    std::fs::remove_dir_all(place.path("log")).unwrap();
    place.write("far/segments/00000001.jsonl", lines);

    let mut warm = request(&json!({"maxTrials": 32}));
    warm["work"]["strategy"] = json!("learned");
    warm["work"]["warmStart"] = json!([{"uri": "file://./far"}]);
    let (code, message) = run(&place, "second", &warm);
    assert_eq!(code, 0, "{message}");
    let tried: BTreeSet<String> = trials(&place).iter().map(|line| candidate(line)).collect();
    let searched =
        |record: &&Value| tried.iter().any(|own| own.contains(&record["program"].to_string()));
    let common: Vec<&Value> = far.values().filter(searched).collect();
    assert!(!common.is_empty(), "the runs have no program in common");
    for record in common {
        assert!(tried.contains(&candidate(&record.to_string())), "{record}");
    }
}

/// Runs a search for 60 trials and, as if all of them had been faster than the schedules without tuning, for 96. Gives after how
/// many trials the network was asked about them, and after how many it had decided and what it kept was in the log.
fn decided(place: &Place, request: impl Fn(&Value) -> Value) -> [usize; 2] {
    let (code, message) = run(place, "first", &request(&json!({"maxTrials": 60})));
    assert_eq!(code, 0, "{message}");
    // Whether a candidate looks faster is up to the machine, so the log says of all of them that they were; the network
    // then says whether they are.
    for name in place.names("log/segments").iter().filter(|name| name.ends_with(".jsonl")) {
        let path = format!("log/segments/{name}");
        let text = std::fs::read_to_string(place.path(&path)).unwrap();
        let faster = |line: &str| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            if record["kind"] == "trial" && record["class"] == "Ok" {
                record["ratio"] = json!(0.5);
                record["interval"] = json!([0.49, 0.51]);
            }
            format!("{record}\n")
        };
        place.write(&path, text.lines().map(faster).collect::<String>());
    }
    let output = start(place, "run", &request(&json!({"maxTrials": 96})));
    let said = output.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{text}");
    let number = |(before, behind): (&str, &str)| -> usize {
        let from = text.split_once(before).expect(&text).1;
        from.split_once(behind).expect(&text).0.trim().parse().expect(&text)
    };
    let asked = number(("after ", "trials the network decides"));
    let answered = number(("the network has decided after", "trials"));
    assert!((64..96).contains(&asked), "{asked}");
    let candidates = trials(place).iter().map(|line| candidate(line)).collect::<BTreeSet<_>>();
    assert_eq!(candidates.len(), 96);
    [asked, answered]
}

#[test]
fn what_a_run_has_found_is_decided_before_its_end() {
    let [asked, answered] = decided(&place(), request);
    // On one machine nothing else is measured meanwhile.
    assert_eq!(asked, answered);
}

/// A request to measure what a run's tuner asks for.
fn session(name: &str, idle_seconds: u64) -> Value {
    let tuner = request(&json!({}));
    json!({
        "version": 3, "subject": tuner["subject"],
        "work": {
            "kind": "session", "name": name, "idleSeconds": idle_seconds,
            "target": tuner["work"]["target"], "log": tuner["work"]["log"],
        },
    })
}

/// A request to tune the digits network by what sessions measure.
fn with_sessions(stop: &Value) -> Value {
    let mut request = request(stop);
    request["version"] = json!(2);
    request["work"]["sessions"] = json!(true);
    request
}

#[test]
fn sessions_alone_go_on_with_rounds_while_the_network_decides() {
    let place = place();
    let mut session = place.command();
    session.args(["session", "--store", "store", "--pool", "boards", "--name", "one"]);
    let mut session = session.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let external = |stop: &Value| {
        let mut request = request(stop);
        // Other tests run beside the session, whose times then drift.
        request["work"]["target"]["noiseBudget"] = json!(1000.0);
        request["work"]["external"] =
            json!({"store": {"uri": "file://./store"}, "pool": "boards", "waitSeconds": 120});
        request
    };
    let [asked, answered] = decided(&place, external);
    session.kill().unwrap();
    session.wait().unwrap();
    assert!(answered > asked, "{answered} trials in place of more than {asked}");
}

#[test]
fn a_session_goes_on_with_the_tuners_next_pod() {
    let place = place();
    let mut session_pod = start(&place, "session", &session("one", 600));
    let mut tuner = start(&place, "killed", &with_sessions(&json!({"maxTrials": 100_000})));
    wait_for_trials(&place, 0, &mut tuner);
    tuner.kill().unwrap();
    tuner.wait().unwrap();
    let kept = trials(&place);
    let most = kept.len() + 100;
    let (code, message) = run(&place, "last", &with_sessions(&json!({"maxTrials": most})));
    assert_eq!(code, 0, "{message}");
    let all = trials(&place);
    assert!(all.starts_with(&kept), "a segment changed");
    let candidates: BTreeSet<String> = all.iter().map(|line| candidate(line)).collect();
    assert_eq!((candidates.len(), all.len()), (most, most), "a candidate was measured twice");

    assert!(session_pod.try_wait().unwrap().is_none(), "the session ended with the first pod");
    let told = Command::new("kill").args(["-TERM", &session_pod.id().to_string()]).status();
    assert!(told.unwrap().success());
    let said = session_pod.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(143));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let candidates = said.split(" candidates were measured").next().unwrap();
    let candidates: u64 = candidates.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(candidates > 0, "the session measured nothing: {said}");
    let message = std::fs::read_to_string(place.path("session.json")).unwrap();
    let message: Value = serde_json::from_str(&message).unwrap();
    assert_eq!(message["failure"]["reason"], "Terminated", "{message}");
    assert!(place.names("log/fleet/sessions").is_empty());
}

#[test]
fn a_session_that_has_nothing_to_do_ends_well() {
    let place = place();
    let (code, message) = run(&place, "idle", &session("one", 1));
    assert_eq!(code, 0, "{message}");
    let (code, message) = run(&place, "unnamed", &session("No Name", 1));
    assert_eq!(code, 10, "{message}");
    assert_eq!(message["failure"]["reason"], "InvalidSpec", "{message}");
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let place = place();
    let with = |path: &str, value: Value| {
        let mut request = request(&json!({"maxTrials": 1}));
        *request.pointer_mut(path).unwrap() = value;
        request
    };
    place.write("foreign/segments/00000001.jsonl", "{\"schema\": 0}\n");
    let cpu = if cfg!(target_arch = "x86_64") { "cortex-a76" } else { "skylake" };
    let arch = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let elsewhere = json!({"name": "far", "os": "linux", "arch": arch, "cpu": cpu});
    for (pod, request, code, word) in [
        ("a", with("/work/model/uri", json!("file://./gone.onnx")), 19, "gone.onnx"),
        ("b", with("/work/target", elsewhere), 16, "cannot run code"),
        ("c", with("/work/log/uri", json!("file://./foreign")), 18, "another folder"),
        ("d", with("/work/log/uri", json!("https://x/y")), 10, "https://x/y"),
        ("e", with("/work/measure/timeoutSeconds", json!(0.0)), 10, "spec.measure"),
        ("f", with("/work/strategy", json!("luck")), 2, "luck"),
        ("g", with("/work/costModel", json!("omen")), 2, "there are trees, neural"),
    ] {
        let (found, message) = run(&place, pod, &request);
        assert_eq!(found, code, "{pod}: {message}");
        let why = message["failure"]["message"].as_str().unwrap_or_default();
        assert!(why.contains(word), "{pod}: {why}");
    }
    assert!(trials(&place).is_empty());
}

/// What a pod posted: its token, and how far it said that it is.
type Posted = Vec<(String, Value)>;

/// Serves the operator's endpoint: every other post is answered by a replica that does not lead.
fn operator(posts: Arc<Mutex<Posted>>) -> String {
    use axum::http::{HeaderMap, StatusCode};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let leads = Arc::new(AtomicBool::new(true));
        let take = move |headers: HeaderMap, body: String| async move {
            if leads.fetch_xor(true, Ordering::SeqCst) {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            let token = headers["authorization"].to_str().unwrap().to_owned();
            posts.lock().unwrap().push((token, serde_json::from_str(&body).unwrap()));
            StatusCode::NO_CONTENT
        };
        let router = axum::Router::new().route("/progress", axum::routing::post(take));
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    format!("http://{address}/progress")
}

#[test]
fn progress_is_posted_while_a_pod_searches_and_nothing_waits_for_it() {
    let place = place();
    place.write("token", "first\n");
    let posts = Arc::new(Mutex::new(Posted::new()));
    let endpoint = operator(Arc::clone(&posts));
    let wait = |count: usize, child: &mut Child| {
        let begin = Instant::now();
        while posts.lock().unwrap().len() < count {
            assert!(begin.elapsed() < Duration::from_secs(300), "nothing was posted");
            assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let set = [
        ("HONE_PROGRESS_ENDPOINT", endpoint),
        ("HONE_PROGRESS_TOKEN_FILE", place.path("token").display().to_string()),
    ];
    let endless = request(&json!({"maxTrials": 100_000, "maxSeconds": 3600}));
    let mut child = start_with(&place, "posts", &endless, &set);
    wait(1, &mut child);
    // A token is renewed while the pod runs.
    place.write("token", "second\n");
    wait(3, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let posted = posts.lock().unwrap().clone();
    assert_eq!(posted[0].0, "Bearer first");
    assert_eq!(posted[2].0, "Bearer second");
    let counted =
        |post: &Value| post["measured"].as_u64().unwrap() + post["failed"].as_u64().unwrap();
    assert!(counted(&posted[2].1) > counted(&posted[0].1), "{posted:?}");
    for (_, post) in &posted {
        let bytes = serde_json::to_vec(post).unwrap();
        let progress = hone_artifact::progress::Progress::from_post(&bytes).expect("no progress");
        assert!(progress.untuned >= progress.expected && progress.expected > 0, "{post}");
    }
    // Whoever does not answer keeps no search waiting.
    let nobody =
        [("HONE_PROGRESS_ENDPOINT", "http://127.0.0.1:9/progress".to_owned()), set[1].clone()];
    let ends = request(&json!({"maxTrials": 20}));
    let output = start_with(&place, "unheard", &ends, &nobody).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("progress is not posted").count(), 1, "{said}");
}
