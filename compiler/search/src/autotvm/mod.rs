//! Logs of AutoTVM, version 0.2: what its templates for x86 processors chose, as the first candidates of a search.
//!
//! The kernels of both compilers differ, so nothing that was fast there is taken for fast here: a line becomes a record of
//! [`Kind::Foreign`], which no compilation uses, and [`starts`] makes candidates of it that are measured like any others.
//! The form of a line is that of `encode` in TVM's `python/tvm/autotvm/record.py` (protocol `json`); the knobs are those of
//! `python/tvm/topi/x86/conv2d_avx_common.py`, `conv2d_avx_1x1.py`, `depthwise_conv2d.py` and `dense.py`.

mod line;
mod start;
mod workload;

use crate::records::{Class, Kind, MAX_LINE_BYTES, Record, RecordsError, SCHEMA, file_error};
use line::Measured;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

pub use start::starts;
pub use workload::Workload;

/// Most lines of one computation that are kept, the fastest ones: they are candidates to begin with.
const KEPT: usize = 8;

/// What a log gave.
#[derive(Debug, Default)]
pub struct Imported {
    /// The records of lines that templates of this compiler can begin with.
    pub records: Vec<Record>,
    /// All lines.
    pub lines: usize,
    /// How many lines gave none, by why.
    pub left_out: BTreeMap<String, usize>,
}

/// Whether a file is a log of AutoTVM, by its first line that is not empty.
///
/// # Errors
/// A file that cannot be read.
pub fn is_log(path: &Path) -> Result<bool, RecordsError> {
    let mut found = false;
    for_each_line(path, &mut |text| {
        found = line::is_one(text);
        false
    })?;
    Ok(found)
}

/// What a log holds for a search here, at the time of the import in seconds since 1970.
///
/// # Errors
/// A file that cannot be read.
pub fn read_log(path: &Path, time: u64) -> Result<Imported, RecordsError> {
    let mut imported = Imported::default();
    let mut by_workload: BTreeMap<(String, String), Vec<Measured>> = BTreeMap::new();
    for_each_line(path, &mut |text| {
        imported.lines += 1;
        match line::parse(text) {
            Ok(measured) => {
                let key = (measured.workload.to_string(), measured.task.clone());
                by_workload.entry(key).or_default().push(measured);
            }
            Err(why) => *imported.left_out.entry(why).or_default() += 1,
        }
        true
    })?;
    for ((program, task), mut all) in by_workload {
        all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let mut known = Vec::new();
        for measured in all {
            let why = match known.contains(&measured.knobs) {
                true => "another line has the same choices",
                false if known.len() == KEPT => "others of the same computation are faster",
                false => {
                    imported.records.push(record(&program, &task, &measured, time));
                    known.push(measured.knobs);
                    continue;
                }
            };
            *imported.left_out.entry(why.to_owned()).or_default() += 1;
        }
    }
    Ok(imported)
}

/// A line as a record: `program` is the computation in words, `template` AutoTVM's, and so are the decisions.
fn record(program: &str, task: &str, measured: &Measured, time: u64) -> Record {
    Record {
        schema: SCHEMA,
        kind: Kind::Foreign,
        time,
        program: program.to_owned(),
        target: measured.target.clone(),
        machine: "AutoTVM".to_owned(),
        threads: 0,
        template: task.to_owned(),
        decisions: measured.knobs.clone(),
        class: Class::Ok,
        nanoseconds: Some(measured.seconds * 1e9),
        ratio: None,
        interval: None,
        features: Vec::new(),
        nest: crate::Nest::default(),
        nodes: String::new(),
        cause: None,
    }
}

/// Gives the lines of a file that are not empty, until `take` wants no more. Lines that are too long are given in parts, none
/// of which reads as a whole one.
fn for_each_line(path: &Path, take: &mut dyn FnMut(&str) -> bool) -> Result<(), RecordsError> {
    let file = File::open(path).map_err(file_error(path, "read"))?;
    let mut reader = BufReader::new(file);
    loop {
        let mut bytes = Vec::new();
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes);
        if read.map_err(file_error(path, "read"))? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes);
        if !text.trim().is_empty() && !take(text.trim()) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::records::parse;

    /// A line as AutoTVM writes it for a convolution of 3 × 3 elements.
    fn convolution(tile_ow: i64, seconds: f64, error: i64) -> String {
        format!(
            concat!(
                r#"{{"input": ["llvm -keys=cpu -mcpu=skylake-avx512", "conv2d_NCHWc.x86", "#,
                r#"[["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32"], "#,
                r#"[1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"], {{}}], "#,
                r#""config": {{"index": 217, "code_hash": null, "entity": [["tile_ic", "sp", [-1, 16]], "#,
                r#"["tile_oc", "sp", [-1, 32]], ["tile_ow", "sp", [-1, {}]], ["unroll_kw", "ot", true]]}}, "#,
                r#""result": [[{}, {}], {}, 1.9, 1600000000.5], "version": 0.2, "tvm_version": "0.8.0"}}"#
            ),
            tile_ow, seconds, seconds, error
        )
    }

    fn imported(lines: &[String]) -> Imported {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.json");
        std::fs::write(&path, lines.join("\n")).unwrap();
        assert!(is_log(&path).unwrap());
        read_log(&path, 7).unwrap()
    }

    #[test]
    fn the_fastest_lines_of_a_computation_become_records() {
        let lines: Vec<String> = (1..=12).map(|ow| convolution(ow, 1.0 / ow as f64, 0)).collect();
        let again = [&lines[..], &[convolution(12, 9.0, 0)]].concat();
        let found = imported(&again);
        assert_eq!((found.lines, found.records.len()), (13, KEPT));
        let widths: Vec<i64> = found.records.iter().map(|record| record.decisions[2].1).collect();
        assert_eq!(widths, [12, 11, 10, 9, 8, 7, 6, 5]);
        let why: Vec<(&str, usize)> =
            found.left_out.iter().map(|(why, count)| (why.as_str(), *count)).collect();
        let repeated = ("another line has the same choices", 1);
        assert_eq!(why, [repeated, ("others of the same computation are faster", 4)]);
        let first = &found.records[0];
        assert_eq!(first.nanoseconds.map(f64::round), Some((1e9f64 / 12.0).round()));
        assert_eq!((first.kind, first.template.as_str()), (Kind::Foreign, "conv2d_NCHWc.x86"));
        // A line of the records' file says the same again.
        assert_eq!(parse(&serde_json::to_string(first).unwrap()).unwrap(), *first);
    }

    #[test]
    fn what_does_not_match_is_counted_by_reason() {
        let line = convolution(8, 1e-4, 0);
        let other = |from: &str, to: &str| {
            assert!(line.contains(from), "{from}");
            line.replace(from, to)
        };
        let cases = [
            (convolution(8, 1e9, 4), "it failed there with error 4"),
            (other("\"version\": 0.2", "\"version\": 0.1"), "version 0.1"),
            (other("conv2d_NCHWc.x86", "conv2d_nchw.cuda"), "'conv2d_nchw.cuda'"),
            (other("\"float32\"]", "\"int8\"]"), "int8"),
            (other("\"NCHW\", \"NCHW\"", "\"NHWC\", \"NHWC\""), "NHWC"),
            (other("[-1, 32]", "[-1, 0]"), "'tile_oc'"),
            (other("[\"tile_ow\", \"sp\"", "[\"tile_ow\", \"re\""), "'tile_ow'"),
            (other("[64, 64, 3, 3]", "[64, 32, 3, 3]"), "channels"),
            (other("56, 56]", "\"any\", 56]"), "no sizes"),
            (other("56, 56]", "1, 1]").replace("[1, 1, 1, 1]", "[0, 0, 0, 0]"), "no results"),
            (other("[[0.0001", "[[\"x\""), "costs"),
            ("{\"input\": [], \"config\": {}, \"result\": []}".to_owned(), "version"),
        ];
        for (text, word) in cases {
            let found = imported(std::slice::from_ref(&text));
            assert!(found.records.is_empty(), "{text}");
            let why = found.left_out.keys().next().unwrap();
            assert!(why.contains(word), "{why}: {text}");
        }
    }

    #[test]
    fn other_files_are_no_logs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        for text in ["", "\n\n", "not json\n", "{\"schema\":3}\n", "[1]\n"] {
            std::fs::write(&path, text).unwrap();
            assert!(!is_log(&path).unwrap(), "{text}");
        }
        std::fs::write(&path, format!("\n{}\n", convolution(1, 1.0, 0))).unwrap();
        assert!(is_log(&path).unwrap());
    }
}
