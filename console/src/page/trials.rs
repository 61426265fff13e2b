//! The trials of a tuning run, a segment of its log at a time: what of a record is shown, in bounded texts.
//!
//! Records are lines of JSON that a pod wrote (`docs/tuning.md`); of each the page gets what people look at, and never the
//! numbers that a cost model learns from.

use std::fmt::Write;

use hone_crds::conditions::bounded;
use serde_json::{Value, json};

/// Most trials of a segment that are shown; workers write about 64.
const MOST: usize = 1000;
/// Most bytes of a text.
const TEXT_BYTES: usize = 300;

/// Where a segment of a run's log lies.
pub fn segment_uri(log: &str, number: u64) -> String {
    format!("{}/segments/{number:08}.jsonl", log.trim_end_matches('/'))
}

/// The trials of a segment, in the order in which they were measured, and how many more it has than are shown.
pub fn of(segment: &[u8]) -> Value {
    let text = String::from_utf8_lossy(segment);
    let mut trials = text.lines().filter_map(trial);
    let shown: Vec<Value> = trials.by_ref().take(MOST).collect();
    json!({"trials": shown, "more": trials.count()})
}

/// What is shown of a line; nothing of one that is no trial.
fn trial(line: &str) -> Option<Value> {
    let record: Value = serde_json::from_str(line).ok()?;
    if record["kind"] != "trial" {
        return None;
    }
    let text = |key: &str| bounded(record[key].as_str().unwrap_or_default(), TEXT_BYTES).to_owned();
    let number = |key: &str| record[key].as_f64().filter(|value| value.is_finite());
    // Programs that nobody named are told apart by their digest.
    let program = match text("nodes") {
        nodes if nodes.is_empty() => text("program"),
        nodes => nodes,
    };
    Some(json!({
        "program": program,
        "template": text("template"),
        "decisions": decisions(&record["decisions"]),
        "class": text("class"),
        "nanoseconds": number("nanoseconds"),
        "ratio": number("ratio"),
        "cause": text("cause"),
    }))
}

/// Decisions in words, each its knob and value.
fn decisions(all: &Value) -> String {
    let mut words = String::new();
    for choice in all.as_array().into_iter().flatten() {
        let (Some(knob), Some(value)) = (choice[0].as_str(), choice[1].as_i64()) else { continue };
        let comma = if words.is_empty() { "" } else { ", " };
        let _ = write!(words, "{comma}{knob} {value}");
    }
    bounded(&words, TEXT_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_shown_without_what_models_learn_from() {
        let line = json!({"schema": 3, "kind": "trial", "program": "abc", "template": "contraction",
            "decisions": [["rows", 6], ["vectors", 2]], "class": "Ok", "nanoseconds": 1250.5, "ratio": 0.8,
            "features": [1.0, 2.0], "nest": [[0, 0, 1, 2, 3, 4, 5]], "nodes": "conv1, relu1"});
        let found = of(format!("{line}\n").as_bytes());
        let expected = json!({"program": "conv1, relu1", "template": "contraction",
            "decisions": "rows 6, vectors 2", "class": "Ok", "nanoseconds": 1250.5, "ratio": 0.8, "cause": ""});
        assert_eq!(found, json!({"trials": [expected], "more": 0}));
    }

    #[test]
    fn what_is_no_trial_and_what_is_too_much_is_left_out() {
        let trial = json!({"kind": "trial", "program": "p", "class": "Timeout", "cause": "x".repeat(900),
            "decisions": [["rows"], 7, ["k".repeat(900), 1]], "nanoseconds": "soon"});
        let winner = json!({"kind": "winner", "program": "p"});
        let lines = [winner.to_string(), "not json".to_owned(), "[1]".to_owned()];
        let mut text = lines.join("\n");
        for _ in 0..MOST + 3 {
            text.push_str(&format!("\n{trial}"));
        }
        text.push_str("\n{\"kind\": \"tri");
        let found = of(text.as_bytes());
        let shown = found["trials"].as_array().map_or(0, Vec::len);
        assert_eq!((shown, found["more"].as_u64()), (MOST, Some(3)));
        let first = &found["trials"][0];
        assert_eq!((first["program"].as_str(), &first["nanoseconds"]), (Some("p"), &Value::Null));
        for key in ["cause", "decisions"] {
            assert!(first[key].as_str().is_some_and(|text| text.len() <= TEXT_BYTES), "{first}");
        }
    }

    #[test]
    fn segments_are_where_workers_write_them() {
        let expected = "s3://b/tuning/digits/segments/00000012.jsonl";
        assert_eq!(segment_uri("s3://b/tuning/digits/", 12), expected);
    }
}
