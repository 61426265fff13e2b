//! Devices of a search beyond its own machine: sessions (`hone session`) that wait at a folder or an object store for
//! candidates to measure. The tuner and its sessions meet there only, never directly, so no port is opened anywhere.
//!
//! What lies there:
//!
//! - `sessions/ID.json`, an [`Announcement`]: the session is there, said again every second with a higher beat;
//! - `work/ID/RUN-NUMBER.json`, an [`Order`]: a round of candidates, or two artifacts to be compared, for that session,
//!   which removes it when it has answered;
//! - `results/ID/RUN-NUMBER.json`, an [`Answered`]: what became of them, which the tuner removes when it has taken it;
//! - `artifacts/RUN-DIGEST.hone`, an artifact that an order names, which the tuner removes when no order does any more.
//!
//! What a search or a session leaves there that is killed, the next search removes after a day (`leftovers.rs`).
//!
//! Invariants: an object has one writer and but for announcements is written once; nothing there is the only copy of
//! anything, because a trial counts only once it is in the tuner's records. So a session that is lost costs the rounds
//! that lay with it, which another one measures, and what a session answers after it was given up is read by nobody.

mod answers;
mod artifacts;
mod leftovers;
mod remote;
mod seen;
mod serve;
mod trust;
#[cfg(test)]
mod trust_tests;
mod tuner;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hone_artifact::exit_code::Reason;
use hone_artifact::progress::LONGEST_SILENCE;
use hone_artifact::request;
use hone_driver::Target;
use serde::{Deserialize, Serialize};

use super::protocol::{Compared, Measured, Trials};
use crate::failure::{Failure, Result};
use crate::storage::{Access, Destination};

pub(super) use remote::Remotes;
pub use serve::{Served, Serving};
pub use trust::DRIFT;
pub use tuner::{Fleet, Search, Tell};

const SESSIONS: &str = "sessions";
const WORK: &str = "work";
const RESULTS: &str = "results";

/// Time between two beats of a session.
const BEAT: Duration = Duration::from_secs(1);
/// Time without a beat after which a session counts as lost.
const SILENCE: Duration = Duration::from_secs(LONGEST_SILENCE);
/// Longest time without a session that answers, where a search measures nothing itself and nothing says.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Longest time that a session may take for one order, where nothing says: candidates that end or hang are tried again apart.
pub const ANSWER: Duration = Duration::from_secs(900);
/// Shortest and longest time between two looks at the store.
const POLL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// Times in a row that the store may fail.
const FAULTS: usize = 5;
/// Most bytes of an object.
const LARGEST: u64 = 64 << 20;

/// A session says that it is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Announcement {
    /// Its name, which names its folders.
    pub session: String,
    /// Tells it from others of its name, before and after it.
    pub instance: String,
    /// The machine's fingerprint, as records have it.
    pub machine: String,
    /// What it runs code for, as records have it.
    pub target: String,
    /// The kind of machine in a word: that of a board, else the processor. Earlier versions say none.
    #[serde(default)]
    pub kind: String,
    /// Whether it compares artifacts, too. Earlier versions do not.
    #[serde(default)]
    pub compares: bool,
    /// The order that it does; empty where it has none.
    #[serde(default)]
    pub doing: String,
    /// Grows while it is there.
    pub beat: u64,
}

/// What a session is asked to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Order {
    /// What code is made for, as records have it.
    target: String,
    /// Threads to measure on; 0 for all.
    threads: usize,
    /// Longest time of a candidate.
    timeout_milliseconds: Option<u64>,
    /// The work itself.
    #[serde(flatten)]
    asked: Asked,
}

/// The work of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Asked {
    /// The candidates of one program.
    Trials(Trials),
    /// Two artifacts of one network.
    Compare(Comparison),
}

/// Two artifacts by their names in `artifacts/`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Comparison {
    /// The one that is judged.
    ours: String,
    /// The one that it is judged against.
    theirs: String,
    /// Seconds of measuring.
    seconds: f64,
}

/// What became of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    /// One for each candidate, in their order.
    measured: Vec<Measured>,
    /// The times of both artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compared: Option<Compared>,
    /// Why nothing was measured.
    refused: Option<String>,
}

/// The folder of a tuning run's sessions inside its log.
const IN_LOG: &str = "fleet";

/// Opens the folder of the sessions of a tuning run.
///
/// # Errors
/// What the store refuses.
pub fn open_in_log(log: &request::Destination, access: &Access) -> Result<Destination> {
    let uri = format!("{}/{IN_LOG}", log.uri.trim_end_matches('/'));
    Destination::open(&uri, log.credentials.as_deref(), access)
}

/// Folder of a store in which the sessions of pools meet with the searches of runs.
const POOLS: &str = "pools";

/// Opens the folder of the sessions of a pool, by the store that the pool names and the pool's name.
///
/// # Errors
/// As for [`open`].
pub fn open_pool(
    store: &str,
    pool: &str,
    credentials: Option<&str>,
    access: &Access,
) -> Result<Destination> {
    open(&format!("{}/{POOLS}/{pool}", store.trim_end_matches('/')), credentials, access)
}

/// Opens a fleet's folder, which a path or a URI names; a local one is made where it is missing.
///
/// # Errors
/// A file where a folder is meant; what the store refuses.
pub fn open(text: &str, credentials: Option<&str>, access: &Access) -> Result<Destination> {
    if text.contains("://") {
        return Destination::open(text, credentials, access);
    }
    let folder = Path::new(text).to_path_buf();
    if folder.exists() && !folder.is_dir() {
        let message =
            format!("'{text}' is no folder: name one, or a store such as s3://bucket/fleet");
        return Err(Failure::new(Reason::Usage, message));
    }
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::io(format!("'{text}' cannot be made"), error))?;
    Ok(Destination::Folder(folder))
}

/// A name that no other process has: nothing needs it to be secret.
fn unique() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let seed = format!("{host} {} {time}", std::process::id());
    blake3::hash(seed.as_bytes()).to_hex()[..12].to_owned()
}

/// Whether a session may have this name: it becomes a part of objects' names.
pub fn is_name(text: &str) -> bool {
    let fits =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(fits)
}

/// The names of the objects in a folder that this version writes.
fn names(store: &Destination, folder: &str) -> Result<Vec<String>> {
    let names = store.list(folder)?.into_iter();
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
    // Files that are being written have names that begin with a dot.
    names.retain(|name| is_name(name));
    names.sort_unstable();
    Ok(names)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Plain data always has a JSON form.
    serde_json::to_vec(value).unwrap_or_default()
}

/// What records call the target of this fleet.
fn key(target: &Target) -> String {
    super::store::target_key(target)
}
