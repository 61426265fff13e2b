//! Tuning from end to end: a small network, few trials, a killed run, a rebuild from records, and bad input.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Ended, Place, repository};
use serde_json::Value;

/// A folder with the digits network in it.
fn place() -> Place {
    let place = Place::new();
    let model = std::fs::read(repository("examples/digits/digits.onnx")).unwrap();
    place.write("digits.onnx", model);
    place
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn succeed(ended: Ended) -> String {
    assert_eq!(ended.code, 0, "{}", ended.err);
    ended.out
}

/// The lines of all record files.
fn lines(place: &Place) -> Vec<String> {
    let names = place.names("records");
    let files = names.iter().filter(|name| name.ends_with(".jsonl"));
    let texts =
        files.map(|name| std::fs::read_to_string(place.path(&format!("records/{name}"))).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

const TUNE: [&str; 7] =
    ["tune", "digits.onnx", "--records", "records", "--seconds", "0.01", "--json"];

#[test]
fn a_killed_search_goes_on_and_records_rebuild_the_same_bytes() {
    let place = place();
    // Killed once some trials are kept.
    let mut killed = place.command();
    killed.args(TUNE).args(["--trials", "100000", "--strategy", "random"]);
    killed.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = killed.spawn().unwrap();
    let begin = Instant::now();
    while lines(&place).len() < 24 {
        assert!(begin.elapsed() < Duration::from_secs(300), "no trial was kept");
        assert!(child.try_wait().unwrap().is_none(), "the search ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = lines(&place).len();
    // Going on takes every whole line over.
    let resumed = json(&succeed(place.hone(&[&TUNE[..], &["--trials", "16"]].concat())));
    let taken = resumed["resumed"].as_u64().unwrap() as usize;
    assert!(taken + 1 >= kept && taken <= kept, "{taken} of {kept} lines");
    assert_eq!(resumed["trials"], 16);
    // Every other algorithm of every convolution was measured once, by the killed run.
    let decisions = resumed["decisions"].as_array().unwrap();
    assert!(!decisions.is_empty(), "the network has convolutions of 3 × 3 elements");
    for decision in decisions {
        let ratios = decision["ratios"].as_object().unwrap();
        assert!(ratios.len() == 2 && !ratios.contains_key(&decision["analytic"].to_string()));
        let structure = &decision["structure"];
        let is_about_it = |line: &&String| {
            let record = json(line);
            record["program"] == *structure && record["kind"] == "decision"
        };
        assert_eq!(lines(&place).iter().filter(is_about_it).count(), 2, "{structure}");
    }
    let curve: Vec<f64> = resumed["curve"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point[1].as_f64().unwrap())
        .collect();
    assert!(curve.windows(2).all(|pair| pair[1] <= pair[0]), "the incumbent got worse: {curve:?}");
    // Every line is of this schema and says what became of the candidate.
    for line in lines(&place) {
        let record = json(&line);
        assert_eq!(record["schema"], 3, "{line}");
        assert!(record["class"] == "Ok" || record["cause"].is_string(), "{line}");
    }
    // Whoever has the records makes the same artifact.
    let build = |out: &str, cache: &str| {
        let compile = ["compile", "digits.onnx", "--records", "records", "--out", out];
        let arguments = [&compile[..], &["--cache", cache, "--no-measure", "--no-verify"]].concat();
        succeed(place.hone(&arguments));
        std::fs::read(place.only(out, "hone")).unwrap()
    };
    assert!(build("one", "cache1") == build("two", "cache2"), "two builds differ");
}

/// A winner of a record is what is compiled; a record that does not fit counts as none.
#[test]
fn compilations_use_the_records_that_fit() {
    let place = place();
    let compile = |records: &str, out: &str| {
        let arguments =
            ["compile", "digits.onnx", "--records", records, "--out", out, "--no-measure"];
        succeed(place.hone(&arguments));
        std::fs::read(place.only(out, "hone")).unwrap()
    };
    let untuned = compile("nothing", "untuned");
    succeed(place.hone(&[&TUNE[..], &["--trials", "32", "--strategy", "random"]].concat()));
    // Any measured candidate, said to have won, changes the code; whether it is faster is not the point.
    let slowest = lines(&place)
        .into_iter()
        .map(|line| json(&line))
        .filter(|record| record["kind"] == "trial" && record["class"] == "Ok")
        .max_by(|a, b| a["ratio"].as_f64().unwrap().total_cmp(&b["ratio"].as_f64().unwrap()));
    let mut winner = slowest.unwrap();
    winner["kind"] = "winner".into();
    place.write("chosen/a.jsonl", format!("{winner}\n"));
    let tuned = compile("chosen", "tuned");
    assert!(tuned != untuned, "the record was not used");
    let shown = succeed(place.hone(&["records", "best", "--records", "chosen", "--json"]));
    assert_eq!(json(&shown).as_object().unwrap().len(), 1);
    // The same from the log of a tuning run, which a file names.
    let from_log = |log: &str, out: &str| {
        let text = format!(
            "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {{name: digits}}\nspec:\n  \
             model: {{uri: file://./digits.onnx}}\n  targets:\n  \
             - {{name: host, platform: {{os: linux, arch: {}, cpu: host}}}}\n  \
             tuning: {{policy: Never, records: {{uri: file://./{log}}}}}\n  output: {{uri: file://./{out}}}\n",
            arch()
        );
        place.write("compile.yaml", text);
        let records = format!("{out}-records");
        place.hone(&["compile", "-f", "compile.yaml", "--records", &records, "--no-measure"])
    };
    place.write("log/segments/00000001.jsonl", format!("{winner}\n"));
    succeed(from_log("log", "logged"));
    assert!(std::fs::read(place.only("logged", "hone")).unwrap() == tuned);
    let records = |out: &str| {
        let report = std::fs::read_to_string(place.only(out, "json")).unwrap();
        json(&report)["records"].as_str().map(str::to_owned)
    };
    assert!(records("logged").is_some_and(|digest| digest.starts_with("sha256:")));
    assert_eq!((records("logged"), records("untuned")), (records("tuned"), None));
    place.write("other-log/segments/00000001.jsonl", "not a record\n");
    for (log, reason) in [("empty-log", "has no segments"), ("other-log", "spec.tuning.records")] {
        std::fs::create_dir_all(place.path(log)).unwrap();
        let refused = from_log(log, "refused");
        assert!(refused.code != 0 && refused.err.contains(reason), "{}", refused.err);
    }
    winner["decisions"][0][1] = (-7).into();
    place.write("misfit/a.jsonl", format!("{winner}\n"));
    assert!(compile("misfit", "misfit-out") == untuned, "a record of another template was used");
    winner["target"] = "aarch64-unknown-linux-gnu cortex-a76 0".into();
    place.write("foreign/a.jsonl", format!("{winner}\n"));
    assert!(compile("foreign", "foreign-out") == untuned, "a record of another target was used");
}

#[test]
fn records_are_listed_merged_exported_and_imported() {
    let place = place();
    succeed(place.hone(&[&TUNE[..], &["--trials", "4", "--strategy", "random"]].concat()));
    let listed = succeed(place.hone(&["records", "list", "--records", "records", "--json"]));
    let trials = |listed: &str| -> u64 {
        json(listed).as_array().unwrap().iter().map(|own| own["trials"].as_u64().unwrap()).sum()
    };
    assert_eq!(trials(&listed), 4);
    // Besides those, what other algorithms of convolutions took.
    let count = lines(&place).len();
    assert!(count > 4, "no decision about the graph was measured");
    succeed(place.hone(&["records", "export", "all.jsonl", "--trials", "--records", "records"]));
    for new in [count, 0] {
        let out = succeed(place.hone(&["records", "import", "all.jsonl", "--records", "other"]));
        assert!(out.starts_with(&format!("{new} new")), "{out}");
    }
    let out = succeed(place.hone(&["records", "merge", "m.jsonl", "all.jsonl", "all.jsonl"]));
    assert!(out.starts_with(&format!("{count} records")), "{out}");
    // Records of the schema before, in which no other name is changed than that of one decision.
    let text = std::fs::read_to_string(place.path("all.jsonl")).unwrap();
    let older = text.replace("\"schema\":3", "\"schema\":1");
    std::fs::create_dir(place.path("older")).unwrap();
    let older = older.replace("unrolled points", "written out points");
    std::fs::write(place.path("older/all.jsonl"), older).unwrap();
    for changed in [count, 0] {
        let out = succeed(place.hone(&["records", "migrate", "--records", "older"]));
        assert!(out.starts_with(&format!("{changed} of {count} records")), "{out}");
        assert_eq!(std::fs::read_to_string(place.path("older/all.jsonl")).unwrap(), text);
    }
    let again = place.hone(&["records", "merge", "m.jsonl", "all.jsonl"]);
    assert!(again.code == 18 && again.err.contains("there already"), "{}", again.err);
}

#[test]
fn the_cost_model_is_judged_by_what_it_did_not_learn_from() {
    let place = place();
    // Enough for halves that are judged of each of four tasks; the processor decides how many there are.
    let search = ["--trials", "136", "--strategy", "random"];
    succeed(place.hone(&[&TUNE[..], &search].concat()));
    // The other model learns from these records, and proposes from there.
    let neural = ["--trials", "16", "--cost-model", "neural"];
    let tuned = json(&succeed(place.hone(&[&TUNE[..], &neural].concat())));
    assert_eq!(tuned["trials"], 16);
    let judged =
        json(&succeed(place.hone(&["records", "accuracy", "--records", "records", "--json"])));
    let judged = judged.as_array().unwrap();
    assert_eq!(judged[0]["judge"], "chance");
    assert_eq!(judged[0]["pairwise"], 0.5);
    for model in ["trees", "neural"] {
        let name = format!("{model}, from the first halves");
        assert!(judged.iter().any(|one| one["judge"] == name.as_str()), "{name}: {judged:?}");
    }
    for one in judged {
        let number = |value: &Value| value.as_f64().unwrap();
        let peaks = ["1", "5", "10"].map(|k| number(&one["peak"][k]));
        assert!(peaks.is_sorted() && peaks[0] > 0.0 && peaks[2] <= 1.0, "{one}");
        assert!((0.0..=1.0).contains(&number(&one["pairwise"])), "{one}");
    }
    let table = succeed(place.hone(&["records", "accuracy", "--records", "records"]));
    assert!(table.contains("analytic prediction") && table.contains("peak@5"), "{table}");
}

/// What a log of AutoTVM says is kept apart from schedules, and what does not fit is counted.
#[test]
fn a_log_of_autotvm_is_taken_over_once() {
    let place = place();
    let line = |task: &str, ow: usize| {
        format!(
            r#"{{"input": ["llvm", "{task}", [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"], {{}}], "config": {{"index": 0, "code_hash": null, "entity": [["tile_ow", "sp", [-1, {ow}]]]}}, "result": [[0.001], 0, 1.0, 1.0], "version": 0.2, "tvm_version": "0.8.0"}}"#
        )
    };
    let lines = [line("conv2d_NCHWc.x86", 7), line("conv2d_NCHWc.x86", 8), line("conv2d.cuda", 7)];
    place.write("tvm.log", lines.join("\n"));
    let import = ["records", "import", "tvm.log", "--records", "records"];
    for new in [2, 0] {
        let out = succeed(place.hone(&import));
        assert!(out.starts_with(&format!("{new} new records of 3 lines of AutoTVM")), "{out}");
        assert!(
            out.contains("1 lines are left out: no template here is like 'conv2d.cuda'"),
            "{out}"
        );
    }
    // No compilation takes them for schedules, and no model learns from them.
    let best = succeed(place.hone(&["records", "best", "--records", "records", "--json"]));
    assert_eq!(json(&best).as_object().unwrap().len(), 0);
    let refused = place.hone(&["records", "accuracy", "--records", "records"]);
    assert_eq!(refused.code, 18, "{}", refused.err);
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let place = place();
    place.write("old.jsonl", "{\"schema\":0}\n");
    place.write("tvm.jsonl", "{\"input\": [\"llvm\", \"conv2d\"], \"version\": 0.2}\n");
    let artifact = place.write("a.hone", "no artifact");
    for (arguments, code, word) in [
        (vec!["records", "import", "old.jsonl"], 18, "schema 0"),
        (vec!["records", "import", "tvm.jsonl"], 18, "no record of Hone"),
        (vec!["records", "import", "missing.jsonl"], 19, "missing.jsonl"),
        (vec!["records", "export", "x.jsonl", "--records", "none"], 19, "tune first"),
        (vec!["records", "accuracy", "--records", "none"], 18, "tune with --strategy random"),
        (vec!["records", "accuracy", "tvm.jsonl"], 18, "no record of Hone"),
        (vec!["tune", "missing.onnx"], 19, "missing.onnx"),
        (vec!["tune", artifact.to_str().unwrap()], 2, "is an artifact"),
        (vec!["tune", "digits.onnx", "--trials", "0"], 2, "at least 1"),
        (vec!["tune", "digits.onnx", "--budget", "10"], 2, "has the unit"),
        (vec!["tune", "digits.onnx", "--strategy", "luck"], 2, "there are learned"),
        (vec!["tune", "digits.onnx", "--cost-model", "luck"], 2, "there are trees, neural"),
        (vec!["measure"], 2, "started by 'hone tune'"),
    ] {
        let ended = place.hone(&arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(word), "{arguments:?}: {}", ended.err);
    }
    // Lines of another schema are named, and the rest is used.
    std::fs::create_dir(place.path("records")).unwrap();
    std::fs::copy(place.path("old.jsonl"), place.path("records/old.jsonl")).unwrap();
    let listed = place.hone(&["records", "list", "--records", "records"]);
    assert!(listed.code == 0 && listed.err.contains("schema 0"), "{}", listed.err);
}

#[test]
fn two_searches_do_not_write_one_file() {
    let place = place();
    let mut first = place.command();
    first.args(TUNE).args(["--trials", "100000", "--strategy", "random"]);
    first.stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = first.spawn().unwrap();
    let begin = Instant::now();
    while lines(&place).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(300), "no trial was kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = place.hone(&[&TUNE[..], &["--trials", "1"]].concat());
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.code, 18, "{}", second.err);
    assert!(second.err.contains("written by another run"), "{}", second.err);
}

#[test]
fn a_file_can_ask_for_tuning() {
    let place = place();
    let compile = |policy: &str| {
        let text = format!(
            "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {{name: digits}}\nspec:\n  \
             model: {{uri: file://./digits.onnx}}\n  targets:\n  \
             - {{name: here, platform: {{os: linux, arch: amd64, cpu: host}}}}\n  \
             tuning: {{policy: {policy}, maxTrials: 3}}\n  output: {{uri: file://./out}}\n"
        );
        place.write("compile.yaml", text.replace("amd64", arch()));
        let options = ["--records", "records", "--no-measure", "--no-verify", "--json"];
        let arguments = [&["compile", "-f", "compile.yaml"], &options[..]].concat();
        let report = json(&succeed(place.hone(&arguments)));
        report["targets"][0]["details"]["tuning"].clone()
    };
    let trials = || lines(&place).iter().filter(|line| line.contains("\"trial\"")).count();
    let first = compile("IfNotCached");
    assert_eq!((&first["trials"], trials()), (&3.into(), 3));
    assert!(first["curve"].as_array().unwrap().len() > 1, "{first}");
    // What was searched for before is not searched for again, unless that is asked for.
    compile("IfNotCached");
    assert_eq!(trials(), 3);
    compile("Always");
    assert_eq!(trials(), 6);
}

/// This machine's architecture, as Kubernetes names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
