//! The program from end to end, with what cannot be written down as text.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{Place, npz, onnx, repository};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Copies an example, so that its output lands in the test's folder.
fn example(place: &Place, name: &str) {
    for entry in std::fs::read_dir(repository(&format!("examples/{name}"))).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            place.write(path.file_name().unwrap().to_str().unwrap(), std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn what_is_proposed_for_open_dimensions_works_when_pasted() {
    let place = Place::new();
    let port = |name: &str| onnx::port(name, &["batch", "sequence", "the width"]);
    let node = onnx::node("sum", "Add", &["x", "mask"], &["y"]);
    let model = onnx::model(&[node], &[], &[port("x"), port("mask")], &[port("y")]);
    place.write("it's open.onnx", model);
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(place.path(""));
        place.ended(command.env("HONE_CACHE", place.path(".cache")).output().unwrap())
    };
    let calls =
        [r"compile 'it'\''s open.onnx' --no-measure", r#"bench "it's open.onnx" --seconds 0.01"#];
    for call in calls {
        let refused = shell(&format!("{} {call}", env!("CARGO_BIN_EXE_hone")));
        assert_eq!(refused.code, 13, "{}", refused.err);
        let (_, proposed) = refused.err.split_once("or on the command line:\n").unwrap();
        assert!(proposed.contains("--shape 'the width=224'"), "{proposed}");
        let ended = shell(proposed.trim());
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
}

#[test]
fn sizes_are_proposed_that_the_model_takes() {
    let place = Place::new();
    // A table that is cut to both dimensions, which are called as if they could be 128.
    let nodes = [
        onnx::node("shape", "Shape", &["x"], &["extents"]),
        onnx::node("cut", "Slice", &["table", "starts", "extents"], &["part"]),
        onnx::node("sum", "Add", &["x", "part"], &["y"]),
    ];
    let [x, y] = ["x", "y"].map(|name| onnx::port(name, &["sequence", "time"]));
    let inputs = [x, onnx::port("table", &["66", "66"])];
    let stored = [onnx::integers("starts", &[0, 0])];
    place.write("table.onnx", onnx::model(&nodes, &stored, &inputs, &[y]));
    let refused = place.hone(&["compile", "table.onnx", "--no-measure"]);
    assert_eq!(refused.code, 13, "{}", refused.err);
    let (_, proposed) = refused.err.split_once("or on the command line:\n").unwrap();
    let arguments: Vec<&str> = proposed.split_whitespace().skip(1).collect();
    assert!(arguments.iter().any(|argument| argument.ends_with("=64")), "{proposed}");
    let ended = place.hone(&arguments);
    assert_eq!(ended.code, 0, "{}", ended.err);
}

#[test]
fn arrays_bind_open_dimensions_for_runs_and_measurements() {
    let place = Place::new();
    place.write("open.onnx", onnx::unary("Relu", &["batch", "8"]));
    for batch in [1, 3] {
        place.write("x.npz", npz::f32s(&[("x", &[batch, 8])]));
        let ran = place.hone(&["run", "open.onnx", "--inputs", "x.npz", "--outputs", "y.npz"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let measured =
            place.hone(&["bench", "open.onnx", "--inputs", "x.npz", "--seconds", "0.01", "--json"]);
        assert_eq!(measured.code, 0, "{}", measured.err);
        assert!(json(&measured.out)["latency"]["p50"].as_u64().unwrap() > 0);
    }
}

#[test]
fn the_digits_go_from_yaml_to_answers_and_from_the_cache_the_second_time() {
    let place = Place::new();
    example(&place, "digits");
    // Two artifacts are loaded side by side: ours and the one of naive schedules.
    let first = place.hone(&["compile", "-f", "compile.yaml", "--json", "--baseline"]);
    assert_eq!(first.code, 0, "{}", first.err);
    let first = json(&first.out);
    let report = &first["targets"][0]["report"];
    assert_eq!(report["correctness"]["passed"], true);
    assert_eq!(report["cacheHit"], false);
    let latency = |name: &str| report["latency"][name].as_u64().unwrap();
    assert!(latency("p50") > 0 && latency("untuned") > latency("p50"), "{report}");
    let artifact = std::fs::read(place.only("out", "hone")).unwrap();
    let names = place.names("out");
    assert_eq!(names.len(), 3, "artifact, report and page: {names:?}");

    let begin = Instant::now();
    let second =
        place.hone(&["compile", "-f", "compile.yaml", "--json", "--baseline", "--out", "again"]);
    let took = begin.elapsed();
    assert_eq!(second.code, 0, "{}", second.err);
    let second = json(&second.out);
    assert_eq!(second["targets"][0]["report"]["cacheHit"], true);
    assert_eq!(second["targets"][0]["report"]["latency"], report["latency"]);
    assert!(took < Duration::from_secs(5), "{took:?} from the cache");
    assert_eq!(std::fs::read(place.only("again", "hone")).unwrap(), artifact);

    // Compiled again from nothing it is the same to the bit.
    let third = place.hone(&[
        "compile",
        "-f",
        "compile.yaml",
        "--force",
        "--out",
        "forced",
        "--no-measure",
        "--no-verify",
    ]);
    assert_eq!(third.code, 0, "{}", third.err);
    assert_eq!(std::fs::read(place.only("forced", "hone")).unwrap(), artifact);
}

#[test]
fn narrower_arithmetic_is_used_only_within_its_bound() {
    let place = Place::new();
    example(&place, "digits");
    let spec = std::fs::read_to_string(place.path("compile.yaml")).unwrap();
    for (name, bound) in [("tight", "1e-9"), ("loose", "0.5")] {
        let precision =
            format!("spec:\n  precision: {{allow: [f32, bf16], maxRelativeError: \"{bound}\"}}");
        place.write("narrow.yaml", spec.replacen("spec:", &precision, 1));
        let compile = |out: &str| {
            let ended = place.hone(&["compile", "-f", "narrow.yaml", "--json", "--out", out]);
            assert_eq!(ended.code, 0, "{}", ended.err);
            json(&ended.out)["targets"][0].clone()
        };
        let first = compile(name);
        let chosen = first["report"]["precision"].as_str().unwrap();
        let share = first["details"]["maxFraction"].as_f64().unwrap();
        let note = first["details"]["notes"].to_string();
        match chosen {
            "bf16" => {
                assert!(
                    name == "loose" && share <= 0.5 && note.contains("bf16 is kept"),
                    "{first}"
                );
            }
            _ => assert!(chosen == "f32" && note.contains("bf16 is not used"), "{first}"),
        }
        // What was measured once decides from then on.
        let again = format!("{name}-again");
        let second = compile(&again);
        assert_eq!(second["report"]["cacheHit"], true);
        assert_eq!(second["report"]["precision"], first["report"]["precision"]);
        let bytes = |folder: &str| std::fs::read(place.only(folder, "hone")).unwrap();
        assert_eq!(bytes(name), bytes(&again));
    }
}

/// The elements of a file's one array, which is not compressed.
fn scores(place: &Place, name: &str) -> Vec<f32> {
    let bytes = std::fs::read(place.path(name)).unwrap();
    let start = bytes.windows(6).position(|window| window == b"\x93NUMPY").unwrap();
    let data = &bytes[start + 128..start + 128 + 360 * 10 * 4];
    data.chunks_exact(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect()
}

#[test]
fn run_gives_what_the_reference_gives() {
    let place = Place::new();
    example(&place, "digits");
    for (file, extra) in [("ours.npz", None), ("reference.npz", Some("--reference"))] {
        let mut arguments =
            vec!["run", "digits.onnx", "--inputs", "test-images.npz", "--outputs", file];
        arguments.extend(extra);
        let ended = place.hone(&arguments);
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    let (ours, reference) = (scores(&place, "ours.npz"), scores(&place, "reference.npz"));
    assert_eq!(ours.len(), 360 * 10);
    for (ours, reference) in ours.iter().zip(&reference) {
        assert!((ours - reference).abs() <= 1e-4 + 1e-3 * reference.abs(), "{ours} {reference}");
    }
    assert!(reference.iter().any(|score| score.abs() > 1.0));
}

#[test]
fn a_model_that_gives_no_number_is_told_apart_from_a_wrong_answer() {
    let place = Place::new();
    place.write("nan.onnx", onnx::unary("Sqrt", &["1", "8"]));
    let ended = place.hone(&["compile", "nan.onnx"]);
    assert_eq!(ended.code, 31, "{}", ended.err);
    assert!(ended.err.contains("error[NonFiniteOutput]: model 'nan.onnx' gives no finite answer"));
    assert!(ended.err.contains("output 'y', element"));
    assert_eq!(place.names("out"), Vec::<String>::new());
}

#[test]
fn verifying_again_lists_the_worst_kernels_and_says_what_holds() {
    let place = Place::new();
    place.write("tanh.onnx", onnx::unary("Tanh", &["1", "8"]));
    let compiled = place.hone(&["compile", "tanh.onnx", "--json", "--no-measure"]);
    assert_eq!(compiled.code, 0, "{}", compiled.err);
    let compiled = json(&compiled.out);
    let correctness = &compiled["targets"][0]["report"]["correctness"];
    assert_eq!(correctness["kernels"]["checked"], 1, "{correctness}");
    assert_eq!(correctness["passes"], "f32");
    assert_eq!(correctness["samples"].as_array().unwrap().len(), 4, "{correctness}");
    let artifact = place.only("out", "hone");
    let artifact = artifact.to_str().unwrap();
    let ended = place.hone(&["verify", artifact, "--model", "tanh.onnx", "--kernels"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    for words in ["of its bound", "right", "kernels: 1 kernel calls", "weights: ", "passes: "] {
        assert!(ended.out.contains(words), "'{words}' is missing: {}", ended.out);
    }
    let once = place.hone(&["verify", artifact, "--model", "tanh.onnx", "--seed", "5"]);
    assert!(once.out.contains("samples: seed 0x5, edge values, seed 0x5"), "{}", once.out);
}

#[test]
fn a_missed_goal_keeps_the_artifact() {
    let place = Place::new();
    place.write("relu.onnx", onnx::unary("Relu", &["1", "8"]));
    place.write(
        "goal.yaml",
        "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {name: relu}\nspec:\n  model: {uri: file://./relu.onnx}\n  targets: [{name: here, pool: any}]\n  goals: [{metric: latency-p50, max: 1ns}]\n  output: {uri: file://./out}\n",
    );
    let ended = place.hone(&["compile", "-f", "goal.yaml", "--status"]);
    assert_eq!(ended.code, 32, "{}", ended.err);
    assert!(ended.err.contains("note: target 'here': pool 'any' is a cluster's"));
    assert!(ended.out.contains("phase: Failed"), "{}", ended.out);
    assert!(ended.out.contains("reason: GoalMissed"), "{}", ended.out);
    assert!(place.only("out", "hone").is_file());
}

/// A limit on the size of files stands for the full disk.
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let place = Place::new();
    example(&place, "digits");
    let script =
        r#"trap "" XFSZ; ulimit -f 100; exec "$0" compile digits.onnx --no-measure --no-verify"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(env!("CARGO_BIN_EXE_hone"));
    command.current_dir(place.path("")).env("HONE_CACHE", place.path(".cache"));
    let ended = place.ended(command.output().unwrap());
    assert_eq!(ended.code, 42, "{}", ended.err);
    assert!(ended.err.contains("error[DiskFull]"), "{}", ended.err);
    assert!(ended.err.contains("no room for"), "{}", ended.err);
    for folder in ["out", ".cache"] {
        let left = place.names(folder);
        assert!(
            left.iter().all(|name| !name.contains("partial") && !name.ends_with(".hone")),
            "{left:?}"
        );
    }
}

#[test]
fn bench_serves_the_peers_protocol() {
    use std::io::{BufRead, BufReader, Write};
    let place = Place::new();
    example(&place, "digits");
    let mut command = place.command();
    command.args(["bench", "--serve", "digits.onnx", "test-images.npz", "1"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut requests = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answer = || json(&answers.next().unwrap().unwrap());
    assert!(answer()["compile_ms"].as_f64().unwrap() > 0.0);
    writeln!(requests, "run 3").unwrap();
    assert_eq!(answer().as_array().unwrap().len(), 3);
    writeln!(requests, "outputs {}", place.path("scores.npz").display()).unwrap();
    assert_eq!(answer(), serde_json::json!({}));
    drop(requests);
    assert!(child.wait().unwrap().success());
    assert!(place.path("scores.npz").is_file());
}

#[test]
fn a_worker_does_one_request_and_leaves_its_message() {
    let place = Place::new();
    place.write("models/relu.onnx", onnx::unary("Relu", &["1", "8"]));
    let root = place.path("models");
    let request = serde_json::json!({
        "version": 1,
        "subject": {"namespace": "team", "name": "relu", "uid": "1"},
        "work": {
            "kind": "compile",
            "model": {"uri": format!("file://{}/relu.onnx", root.display())},
            "target": {"name": "amx", "os": "linux", "arch": "", "cpu": "host"},
            "precision": ["f32"],
            "tuning": {"policy": "Never"},
            "correctness": {"rtol": 1e-3, "atol": 1e-4},
            "output": {"uri": format!("file://{}/out", root.display())},
        },
    });
    let worker = |request: &Value, root: &std::path::Path| {
        let mut command = place.command();
        command
            .args(["worker", "--termination", "message"])
            .env("HONE_REQUEST", request.to_string());
        command.env("HONE_FILE_ROOT", root).env("HONE_SCRATCH", place.path("scratch"));
        std::fs::create_dir_all(place.path("scratch")).unwrap();
        let ended = place.ended(command.output().unwrap());
        let message = std::fs::read_to_string(place.path("message")).unwrap();
        assert!(message.len() <= 4000);
        (ended, json(&message))
    };
    let (ended, message) = worker(&request, &root);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let uri = message["artifact"]["uri"].as_str().unwrap().to_owned();
    let digest = message["artifact"]["digest"].as_str().unwrap();
    assert!(uri.contains(&digest["sha256:".len()..][..]), "{uri}");
    assert_eq!(message["correctness"]["passed"], true);
    // The artifact, two reports, and whose it is.
    assert_eq!(place.names("models/out").len(), 5);

    // The same request stores nothing twice, and the same bytes.
    let (ended, again) = worker(&request, &root);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(again["artifact"], message["artifact"]);
    assert_eq!(place.names("models/out").len(), 5);

    // Another compilation with equal bytes shares the artifact, and leaves its own reports beside it.
    let mut other = request.clone();
    other["subject"]["uid"] = "2".into();
    let (ended, shared) = worker(&other, &root);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(shared["artifact"]["uri"], message["artifact"]["uri"]);
    assert_eq!(place.names("models/out").len(), 7);

    // What somebody else put under the artifact's name is not taken for it.
    let stored = std::path::PathBuf::from(uri.strip_prefix("file://").unwrap());
    let bytes = std::fs::read(&stored).unwrap();
    std::fs::write(&stored, b"other code").unwrap();
    let (ended, refused) = worker(&request, &root);
    assert_eq!((ended.code, &refused["failure"]["reason"]), (23, &"ArtifactConflict".into()));
    std::fs::write(&stored, bytes).unwrap();

    // Outside of the mounted volume nothing is read.
    let (ended, refused) = worker(&request, &place.path("scratch"));
    assert_eq!(ended.code, 21, "{}", ended.err);
    assert_eq!(refused["failure"]["reason"], "SourceForbidden");
    assert_eq!(refused["failure"]["class"], "User");

    // The last owner's artifact goes, without its being named: it is found by its owner. What is left is the folder
    // `.owners` with the lock, and who has gone.
    let folder = format!("file://{}/out", root.display());
    for (uid, uris, left) in [("1", vec![&uri], 5), ("1", vec![&uri], 5), ("2", vec![], 1)] {
        let delete = serde_json::json!({
            "version": 1, "subject": {"name": "relu", "uid": uid},
            "work": {"kind": "delete", "uris": uris, "folder": folder},
        });
        let (ended, _) = worker(&delete, &root);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert_eq!(place.names("models/out").len(), left);
    }
    let (ended, refused) = worker(&serde_json::json!({"version": 99}), &root);
    assert_eq!((ended.code, &refused["failure"]["reason"]), (10, &Value::from("InvalidSpec")));
}

#[test]
fn this_machine_has_one_fingerprint() {
    let place = Place::new();
    let fingerprint = || {
        let ended = place.hone(&["devices", "--json", "--no-probe"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        json(&ended.out)["fingerprint"].as_str().unwrap().to_owned()
    };
    assert!(fingerprint().starts_with("sha256:"));
    assert_eq!(fingerprint(), fingerprint());
}

/// Another compilation comes to own an artifact that is there, so that its first owner does not take it along; what is not
/// there, or is something else, stays as it is.
#[test]
fn a_worker_adopts_what_is_there_and_nothing_else() {
    let place = Place::new();
    let root = place.path("models");
    let name = format!("cpu-{}.hone", "0".repeat(64));
    let uri = format!("file://{}/out/{name}", root.display());
    let run = |uid: &str, work: Value| {
        let request =
            serde_json::json!({"version": 1, "subject": {"name": "x", "uid": uid}, "work": work});
        let mut command = place.command();
        command
            .args(["worker", "--termination", "message"])
            .env("HONE_REQUEST", request.to_string());
        command.env("HONE_FILE_ROOT", &root);
        let ended = place.ended(command.output().unwrap());
        let message = json(&std::fs::read_to_string(place.path("message")).unwrap());
        (ended.code, message["failure"]["reason"].clone())
    };
    let adopt =
        |uid: &str| run(uid, serde_json::json!({"kind": "adopt", "uri": uri, "sizeBytes": 5}));
    let delete = |uid: &str| {
        let folder = format!("file://{}/out", root.display());
        run(uid, serde_json::json!({"kind": "delete", "uris": [uri], "folder": folder}))
    };
    std::fs::create_dir_all(&root).unwrap();
    let missing = (i32::from(hone_artifact::exit_code::Reason::NotFound.code()), "NotFound".into());
    assert_eq!(adopt("1"), missing);
    place.write(&format!("models/out/{name}"), b"other bytes");
    assert_eq!(adopt("1"), missing);
    assert_eq!(place.names("models/out"), [name.as_str()]);

    place.write(&format!("models/out/{name}"), b"bytes");
    for uid in ["1", "2", "2"] {
        assert_eq!(adopt(uid).0, 0);
    }
    assert_eq!(delete("1").0, 0);
    assert!(place.names("models/out").contains(&name), "owned by 2");
    assert_eq!(delete("2").0, 0);
    assert!(!place.names("models/out").contains(&name));
}
