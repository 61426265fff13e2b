//! The log of a tuning run, as it lies in the store of a cluster of tests: segments of records.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// The segments below the folder of a log, by name; none where there is none yet.
///
/// # Errors
/// What cannot be read.
pub fn segments(log: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let Ok(entries) = fs::read_dir(log.join("segments")) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The store shows an object once all of it is written.
        if path.is_file() && name.ends_with(".jsonl") {
            found.push((name, fs::read(&path)?));
        }
    }
    found.sort();
    Ok(found)
}

/// Trials in the segments, each of which must be there once, and as many as the run's status counts.
///
/// # Errors
/// A trial that is there twice, another number than the status says, a line that is no record.
pub fn judge(segments: &[(String, Vec<u8>)], status: &Value) -> Result<usize> {
    let mut candidates = Vec::new();
    for (_, bytes) in segments {
        for line in std::str::from_utf8(bytes)?.lines() {
            let record: Value = serde_json::from_str(line)?;
            if record["kind"] == "trial" {
                let fields = ["program", "template", "decisions"].map(|field| &record[field]);
                candidates.push(json!(fields).to_string());
            }
        }
    }
    let once: BTreeSet<&String> = candidates.iter().collect();
    let count = |field: &str| status["trials"][field].as_u64().unwrap_or_default() as usize;
    let counted = count("measured") + count("failed");
    ensure!(once.len() == candidates.len(), "{} of {}", once.len(), candidates.len());
    ensure!(counted == once.len(), "{counted} in the status, {} in the log", once.len());
    Ok(counted)
}
