//! Records: what was measured, as JSON lines in files that only grow.
//!
//! Invariants: a line is one record and is written by one call, so that a writer that is killed loses at
//! most its last line; what is no line of a schema that is read is skipped and named, never guessed at; a file has
//! one writer at a time. Records say nothing of a model: programs are known by their structure, machines by
//! their fingerprint.

use crate::nest::Nest;
use crate::older::{OLDEST, STEPS, to_current};
use hone_tune::{Choice, Prescription};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Version of the lines that this code writes. It grows when a field or a decision changes its name or its meaning, or
/// when the features of programs do. Older lines are read as what they are in this one.
pub const SCHEMA: u32 = OLDEST + STEPS.len() as u32;

/// Maximum length of a line that is read; lines are a few kilobytes.
pub(crate) const MAX_LINE_BYTES: u64 = 1 << 16;

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// It ran and its answers are right.
    Ok,
    /// No code could be made of it.
    CompileError,
    /// It ran longer than allowed.
    Timeout,
    /// Its answers are not those of the plain program.
    WrongResult,
    /// The process that ran it ended.
    DeviceLost,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A candidate that was measured alone.
    Trial,
    /// A value of a decision about a graph, measured in a network.
    Decision,
    /// What another compiler chose for an equal computation: a search begins with it, and nothing else uses it.
    Foreign,
    /// A schedule, or a value of a decision about a graph, that was faster in a whole network, too: compilations use it.
    Winner,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the line is.
    pub kind: Kind,
    /// Seconds since 1970.
    pub time: u64,
    /// Structural digest of the plain program, or the structure that a decision about a graph is about.
    pub program: String,
    /// Triple, processor and features that code was made for.
    pub target: String,
    /// Fingerprint of the machine that measured.
    pub machine: String,
    /// Threads that it ran on.
    pub threads: usize,
    /// Name of the template, or what is decided about a graph.
    pub template: String,
    /// Its decisions.
    pub decisions: Vec<Choice>,
    /// What became of it.
    pub class: Class,
    /// Median time in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<f64>,
    /// Median of its time over that of the schedule without tuning, run by run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// 95 % confidence interval of the ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Features of the scheduled program, from which cost models learn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<f32>,
    /// Its loop nest, from which the neural one learns.
    #[serde(default, skip_serializing_if = "Nest::is_empty")]
    pub nest: Nest,
    /// Names of the nodes that it was measured for; for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nodes: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// Why records cannot be read or written.
#[derive(Debug, Error)]
pub enum RecordsError {
    /// The file system refuses.
    #[error("records '{path}' cannot be {action}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Another run writes the file.
    #[error(
        "records '{path}' are written by another run: wait for its end, or choose another folder with --records"
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

/// A line that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// Its line, counted from 1.
    pub line: usize,
    /// Why.
    pub reason: String,
}

pub(crate) fn file_error(
    path: &Path,
    action: &'static str,
) -> impl FnOnce(std::io::Error) -> RecordsError {
    let path = path.to_path_buf();
    move |source| RecordsError::File { path, action, source }
}

/// The record of a line.
///
/// # Errors
/// In words, where the line is none of a schema that is read.
pub fn parse(line: &str) -> Result<Record, String> {
    /// Only the version, which is looked at before anything else.
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let version: Version =
        serde_json::from_str(line).map_err(|_| "it is no record of Hone".to_owned())?;
    let record: serde_json::Result<Record> = match version.schema {
        SCHEMA => serde_json::from_str(line),
        older @ OLDEST..SCHEMA => serde_json::from_str(line)
            .map(|value| to_current(value, older))
            .and_then(serde_json::from_value),
        other => {
            return Err(format!(
                "it has schema {other}, this program reads schemas {OLDEST} to {SCHEMA}: use the version of Hone that wrote it, or tune again"
            ));
        }
    };
    let record = record.map_err(|error| error.to_string())?;
    let finite = [record.nanoseconds, record.ratio].into_iter().flatten().all(|value| value > 0.0);
    match finite && record.features.iter().all(|feature| feature.is_finite()) {
        true => Ok(record),
        false => Err("its times are not positive numbers".to_owned()),
    }
}

/// The records of a file in its order, and what was passed over.
///
/// # Errors
/// A file that cannot be read.
pub fn read_file(path: &Path) -> Result<(Vec<Record>, Vec<Skipped>), RecordsError> {
    let file = File::open(path).map_err(file_error(path, "read"))?;
    let mut reader = BufReader::new(file);
    let (mut records, mut skipped) = (Vec::new(), Vec::new());
    for line in 1.. {
        let mut text = Vec::new();
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text);
        if read.map_err(file_error(path, "read"))? == 0 {
            break;
        }
        let too_long = text.len() as u64 == MAX_LINE_BYTES && text.last() != Some(&b'\n');
        if too_long {
            reader.skip_until(b'\n').map_err(file_error(path, "read"))?;
        }
        let text = String::from_utf8_lossy(&text);
        if text.trim().is_empty() {
            continue;
        }
        match parse(text.trim()) {
            Ok(record) => records.push(record),
            Err(reason) => skipped.push(Skipped { path: path.to_path_buf(), line, reason }),
        }
    }
    Ok((records, skipped))
}

/// The names of all `.jsonl` files of a folder, sorted; none where there is no folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn file_names(folder: &Path) -> Result<Vec<String>, RecordsError> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(file_error(folder, "read"))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(file_error(folder, "read"))?.file_name();
        if let Some(name) = name.to_str().filter(|name| name.ends_with(".jsonl")) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The records of all `.jsonl` files of a folder, by file name; none where there is no folder.
///
/// # Errors
/// A folder or file that cannot be read.
pub fn read_folder(folder: &Path) -> Result<(Vec<Record>, Vec<Skipped>), RecordsError> {
    let (mut records, mut skipped) = (Vec::new(), Vec::new());
    for name in file_names(folder)? {
        let (more, passed) = read_file(&folder.join(name))?;
        records.extend(more);
        skipped.extend(passed);
    }
    Ok((records, skipped))
}

/// A file that this process alone writes.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Opens a file of a folder for appending, and makes both where they are missing.
    ///
    /// # Errors
    /// What the file system refuses; another writer.
    pub fn open(folder: &Path, name: &str) -> Result<Self, RecordsError> {
        std::fs::create_dir_all(folder).map_err(file_error(folder, "made"))?;
        let path = folder.join(name);
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut file = file.map_err(file_error(&path, "written"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RecordsError::Busy { path }),
            Err(TryLockError::Error(source)) => return Err(file_error(&path, "locked")(source)),
        }
        // A file that was migrated between both calls is no longer the one at this path.
        if !is_at(&file, &path).map_err(file_error(&path, "read"))? {
            return Err(RecordsError::Busy { path });
        }
        // What a killed writer left of a line must not run into the next.
        let length = file.seek(SeekFrom::End(0)).map_err(file_error(&path, "read"))?;
        if length > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))
                .and_then(|_| file.read_exact(&mut last))
                .map_err(file_error(&path, "read"))?;
            if last != *b"\n" {
                file.write_all(b"\n").map_err(file_error(&path, "written"))?;
            }
        }
        Ok(Self { path, file })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// A full disk, and what else the file system refuses.
    pub fn append(&mut self, record: &Record) -> Result<(), RecordsError> {
        // Plain data always has a JSON form.
        let mut line = serde_json::to_string(record).unwrap_or_default();
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(file_error(&self.path, "written"))
    }

    /// Waits until everything is on the disk.
    ///
    /// # Errors
    /// As for [`Log::append`].
    pub fn sync(&self) -> Result<(), RecordsError> {
        self.file.sync_data().map_err(file_error(&self.path, "written"))
    }
}

/// Whether a path still names an open file.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let (open, there) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
}

/// The schedules that compilations for one target use, by program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Winners {
    /// Template and decisions by structural digest.
    pub by_program: BTreeMap<String, Prescription>,
}

impl Winners {
    /// The winners for a target: the latest of each program, those of the machine itself before those of
    /// others.
    pub fn of(records: &[Record], target: &str, machine: &str) -> Self {
        let mut latest: BTreeMap<&str, &Record> = BTreeMap::new();
        let fits = |record: &&Record| record.kind == Kind::Winner && record.target == target;
        for record in records.iter().filter(fits) {
            let rank = |record: &Record| (record.machine == machine, record.time);
            let known = latest.entry(&record.program).or_insert(record);
            if rank(record) >= rank(known) {
                *known = record;
            }
        }
        let by_program = latest.into_iter().map(|(program, record)| {
            let Record { template, decisions, .. } = record.clone();
            (program.to_owned(), Prescription { template, choices: decisions })
        });
        Self { by_program: by_program.collect() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(program: &str, time: u64) -> Record {
        Record {
            schema: SCHEMA,
            kind: Kind::Winner,
            time,
            program: program.to_owned(),
            target: "t".to_owned(),
            machine: "m".to_owned(),
            threads: 1,
            template: "rows".to_owned(),
            decisions: vec![Choice("tasks".to_owned(), time as i64)],
            class: Class::Ok,
            nanoseconds: Some(1000.0),
            ratio: Some(0.9),
            interval: Some((0.88, 0.92)),
            features: vec![1.5],
            nest: Nest::default(),
            nodes: String::new(),
            cause: None,
        }
    }

    #[test]
    fn a_torn_line_is_all_that_a_killed_writer_loses() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(folder.path(), "a.jsonl").unwrap();
        log.append(&record("one", 1)).unwrap();
        drop(log);
        let path = folder.path().join("a.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str(&text.clone()[..40]);
        std::fs::write(&path, text).unwrap();
        let mut log = Log::open(folder.path(), "a.jsonl").unwrap();
        log.append(&record("two", 2)).unwrap();
        let (records, skipped) = read_folder(folder.path()).unwrap();
        assert_eq!(records, [record("one", 1), record("two", 2)]);
        assert_eq!((skipped.len(), skipped[0].line), (1, 2));
    }

    #[test]
    fn a_file_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), "a.jsonl").unwrap();
        let refused = Log::open(folder.path(), "a.jsonl").unwrap_err();
        assert!(matches!(refused, RecordsError::Busy { .. }), "{refused}");
        drop(log);
        Log::open(folder.path(), "a.jsonl").unwrap();
    }

    #[test]
    fn a_replaced_file_is_another_one_than_that_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let log = Log::open(folder.path(), "a.jsonl").unwrap();
        assert!(is_at(&log.file, &path).unwrap());
        std::fs::write(folder.path().join("b"), "").unwrap();
        std::fs::rename(folder.path().join("b"), &path).unwrap();
        assert!(!is_at(&log.file, &path).unwrap());
    }

    #[test]
    fn foreign_lines_are_refused_with_a_reason() {
        let line = serde_json::to_string(&record("one", 1)).unwrap();
        assert!(parse(&line).is_ok());
        for (text, word) in [
            ("{\"input\": [\"llvm\"], \"v\": 0.2}".to_owned(), "no record"),
            ("not json".to_owned(), "no record"),
            (line.replace(&format!("\"schema\":{SCHEMA}"), "\"schema\":99"), "schema 99"),
            (line.replace(&format!("\"schema\":{SCHEMA}"), "\"schema\":0"), "schema 0"),
            (line.replace("\"time\"", "\"moment\""), "unknown field"),
            (line.replace("0.9,", "-0.9,"), "positive"),
        ] {
            assert!(parse(&text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn the_latest_winner_of_this_machine_counts() {
        let elsewhere = Record { machine: "other".to_owned(), ..record("one", 9) };
        let trial = Record { kind: Kind::Trial, ..record("one", 8) };
        let other_target = Record { target: "u".to_owned(), ..record("one", 7) };
        let all = [record("one", 2), elsewhere, record("one", 1), trial, other_target];
        let winners = Winners::of(&all, "t", "m");
        assert_eq!(winners.by_program["one"].choices[0].1, 2);
        assert_eq!(Winners::of(&all, "t", "x").by_program["one"].choices[0].1, 9);
        assert!(Winners::of(&all, "none", "m").by_program.is_empty());
    }
}
