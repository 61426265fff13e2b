//! Where records lie, and which of them a compilation uses.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hone_artifact::exit_code::Reason;
use hone_driver::{Prescription, Target};
use hone_search::{Record, RecordsError, Skipped, Winners, read_folder};

use super::board::Board;
use crate::device;
use crate::failure::{Failure, Result};
use crate::storage::sha256;

/// Schedules of programs by digest, as the compiler takes them.
pub type Recorded = Arc<BTreeMap<String, Prescription>>;

/// Records of schedules, and those of decisions about graphs.
pub fn schedules_apart(records: &Recorded) -> (Recorded, Recorded) {
    let (decisions, schedules) =
        records
            .iter()
            .map(|(key, record)| (key.clone(), record.clone()))
            .partition::<BTreeMap<_, _>, _>(|(_, record)| hone_driver::is_graph_decision(record));
    (Arc::new(schedules), Arc::new(decisions))
}

/// All records of a folder; says on standard error what was passed over.
///
/// # Errors
/// A folder that cannot be read.
pub fn read(folder: &Path) -> Result<Vec<Record>> {
    let (records, skipped) = read_folder(folder).map_err(failed)?;
    tell_skipped(&skipped);
    Ok(records)
}

/// Says which lines were passed over, the first of each file and reason.
pub fn tell_skipped(skipped: &[Skipped]) {
    let mut told: Vec<(&Path, &str)> = Vec::new();
    for own in skipped {
        let key = (own.path.as_path(), own.reason.as_str());
        if !told.contains(&key) {
            told.push(key);
            let alike =
                skipped.iter().filter(|other| (other.path.as_path(), other.reason.as_str()) == key);
            let more = match alike.count() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more lines)"),
            };
            eprintln!(
                "note: {}:{} is left out: {}{more}",
                own.path.display(),
                own.line,
                own.reason
            );
        }
    }
}

/// The schedules that compilations for a target use.
pub fn winners(records: &[Record], target: &Target) -> Winners {
    winners_of(records, target, &machine_key())
}

/// The same, those of another machine before those of others.
pub fn winners_of(records: &[Record], target: &Target, machine: &str) -> Winners {
    Winners::of(records, &target_key(target), machine)
}

/// What records call a target: its triple and processor, and a digest of the features switched on and off.
pub fn target_key(target: &Target) -> String {
    let features = blake3::hash(target.features.join(",").as_bytes()).to_hex();
    format!("{} {} {}", target.triple, target.cpu, &features[..16])
}

/// What records call this machine.
pub fn machine_key() -> String {
    device::fingerprint(&device::Facts::here())
}

/// What records call the machine that candidates run on: a board by its kind, or this one.
pub fn measured_on(board: Option<&Board>) -> String {
    board.map_or_else(machine_key, |board| sha256(format!("board {}", board.kind).as_bytes()))
}

/// The file in a folder of records that a search writes whose sessions alone measure: on what is known when they answer.
pub const SESSIONS_FILE: &str = "sessions.jsonl";

/// The file in a folder of records that a search writes, which measures on a machine of this name.
pub fn file_name(machine: &str) -> String {
    let name: String = machine.trim_start_matches("sha256:").chars().take(16).collect();
    format!("{name}.jsonl")
}

/// A failure of records with its reason.
pub fn failed(error: RecordsError) -> Failure {
    let reason = match &error {
        RecordsError::File { source, .. } => crate::failure::io_reason(source),
        RecordsError::Busy { .. } => Reason::InvalidInput,
    };
    Failure::because(reason, "tuning records cannot be used", error)
}
