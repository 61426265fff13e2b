//! The log of a tuning run in a store: records in numbered segments, each written once and never changed, so that a
//! worker that is killed loses at most what it had not written yet, and the next one goes on with everything else.
//!
//! A segment is `segments/00000001.jsonl` and so on, lines of records as any other file of them. Beside them
//! `progress.json` says how far the run is; it is written over, and everything in it but the time spent can be found
//! again from the segments.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;
use hone_artifact::report::TuningReport;
use hone_artifact::write_atomically;
use hone_search::{Class, Kind, Record, read_folder};

use super::outcome::Outcome;
use super::run_progress::{RunProgress, Spent};
use super::store;
use crate::failure::{Failure, Result};
use crate::storage::{Destination, local, sha256};

/// The folder of segments inside the log's.
const SEGMENTS: &str = "segments";
/// How far the run is.
const PROGRESS: &str = "progress.json";
/// Records after which a segment is written.
const RECORDS: u64 = 64;
/// Longest time until a record is written.
const PAUSE: Duration = Duration::from_secs(10);
/// Segments that are fetched at once.
const AT_ONCE: usize = 8;
/// Times in a row that a store may fail before the run does.
const FAULTS: usize = 3;

/// The log while a worker adds to it. All of it may be used from several threads.
#[derive(Debug)]
pub struct RunLog {
    place: Destination,
    /// The file that the search appends records to.
    file: PathBuf,
    /// What earlier workers spent.
    earlier: Spent,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes of the file that are in segments.
    written: u64,
    /// Number of the next segment.
    next: u64,
    /// When a segment was written last.
    last: Instant,
    /// Failures of the store in a row.
    faults: usize,
    /// What was in the log when this worker began; unknown until the model's programs are.
    logged: Option<(u64, u64)>,
    /// How often this worker's search kept schedules before its end.
    revisions: usize,
    /// What this worker wrote: records with a time, and without.
    own: (u64, u64),
    progress: RunProgress,
}

impl State {
    /// Brings the counters up to date.
    fn count(&mut self) {
        let (measured, failed) = self.logged.unwrap_or_default();
        self.progress.report.measured = measured + self.own.0;
        self.progress.report.failed = failed + self.own.1;
    }
}

impl RunLog {
    /// Opens a log: brings its segments into `folder`, which must be empty. The search is to append its own records
    /// to the folder's file `name`. A segment may have `limit` bytes, and so may all together.
    ///
    /// # Errors
    /// What the store refuses; `InvalidInput` where there are segments and none of their lines can be used.
    pub fn open(place: Destination, folder: &Path, name: &str, limit: u64) -> Result<Self> {
        let cannot = |error| Failure::io("the log's folder cannot be made", error);
        std::fs::create_dir_all(folder).map_err(cannot)?;
        let bytes = place.read(PROGRESS, limit)?.unwrap_or_default();
        let mut progress = RunProgress::read(&bytes);
        let numbers = numbers(&place)?;
        fetch(&place, &numbers, folder, limit, &local_name)?;
        if let Some(last) = numbers.last() {
            let path = folder.join(local_name(*last));
            let bytes = std::fs::read(&path).map_err(cannot)?;
            progress.report.segment = Some(*last);
            progress.report.digest = Some(sha256(&bytes));
        }
        refuse_useless(folder, &place, "spec.log.uri")?;
        let state = State {
            written: 0,
            next: numbers.last().map_or(1, |last| last + 1),
            last: Instant::now(),
            faults: 0,
            logged: None,
            revisions: 0,
            own: (0, 0),
            progress: progress.clone(),
        };
        let file = folder.join(name);
        Ok(Self { place, file, earlier: progress.spent.clone(), state: Mutex::new(state) })
    }

    /// For how long earlier workers searched.
    pub fn earlier(&self) -> Duration {
        // Somebody else may have written what the store says.
        Duration::from_secs_f64(self.earlier.seconds.clamp(0.0, 1e9))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the run stands.
    pub fn report(&self) -> TuningReport {
        self.state().progress.report.clone()
    }

    /// A round of the search is over: its records are written where there are enough of them or the last ones were
    /// written long ago.
    ///
    /// # Errors
    /// Another writer of the log; a store that fails time after time.
    pub fn round(&self, outcome: &Outcome) -> Result<()> {
        let mut state = self.state();
        let (measured, failed) = outcome.logged;
        state.logged = Some((measured as u64, failed as u64));
        state.count();
        state.progress.note(outcome, &self.earlier);
        let own = state.own.0 + state.own.1;
        let unwritten = (outcome.trials as u64).saturating_sub(own);
        let revised = outcome.revisions > state.revisions;
        if revised {
            note_whole(&mut state.progress.report, outcome);
        }
        // The first round is written at once: a worker that lives as long as one brings the run on. So is what others use.
        if !revised && own > 0 && unwritten < RECORDS && state.last.elapsed() < PAUSE {
            return Ok(());
        }
        match self.write(&mut state) {
            Ok(()) => (state.faults, state.revisions) = (0, outcome.revisions),
            Err(Unwritten::Conflict(failure)) => return Err(failure),
            Err(Unwritten::Fault(failure)) => {
                state.faults += 1;
                if state.faults >= FAULTS {
                    return Err(failure);
                }
                eprintln!("warning: {}; it is tried again", failure.chain());
            }
        }
        Ok(())
    }

    /// Writes what is there, at the end of a worker.
    ///
    /// # Errors
    /// As for [`RunLog::round`], the first time that the store fails.
    pub fn flush(&self) -> Result<()> {
        let mut state = self.state();
        self.write(&mut state).map_err(|unwritten| match unwritten {
            Unwritten::Conflict(failure) | Unwritten::Fault(failure) => failure,
        })
    }

    /// The search is over: everything is written, with what came out.
    ///
    /// # Errors
    /// As for [`RunLog::flush`].
    pub fn finish(&self, outcome: &Outcome) -> Result<()> {
        let mut state = self.state();
        note_whole(&mut state.progress.report, outcome);
        let report = &mut state.progress.report;
        report.ended = Some(outcome.ended.to_owned());
        drop(state);
        self.flush()?;
        let state = self.state();
        self.keep_progress(&state)
    }

    /// Writes the whole lines that are in no segment yet as the next one.
    fn write(&self, state: &mut State) -> std::result::Result<(), Unwritten> {
        let lines = self.unwritten(state.written).map_err(Unwritten::Fault)?;
        if lines.is_empty() {
            return Ok(());
        }
        let mut number = state.next;
        let mut conflict = None;
        if !self.place.write_once(&segment_name(number), &lines).map_err(Unwritten::Fault)? {
            conflict = Some(number);
            // What was measured is not given up for that: it goes behind everything that is there.
            let numbers = numbers(&self.place).map_err(Unwritten::Fault)?;
            number = numbers.last().map_or(number, |last| *last) + 1;
            let name = segment_name(number);
            if !self.place.write_once(&name, &lines).map_err(Unwritten::Fault)? {
                return Err(Unwritten::Conflict(self.conflict(number)));
            }
        }
        state.written += lines.len() as u64;
        state.next = number + 1;
        state.last = Instant::now();
        let (measured, failed) = count(&lines);
        state.own = (state.own.0 + measured, state.own.1 + failed);
        state.count();
        let report = &mut state.progress.report;
        report.segment = Some(number);
        report.digest = Some(sha256(&lines));
        eprintln!(
            "segment {number}: {} trials measured, {} failed, {:.0} s",
            report.measured, report.failed, state.progress.spent.seconds
        );
        if let Some(number) = conflict {
            return Err(Unwritten::Conflict(self.conflict(number)));
        }
        self.keep_progress(state).map_err(Unwritten::Fault)
    }

    fn keep_progress(&self, state: &State) -> Result<()> {
        // Plain data always has a JSON form.
        let bytes = serde_json::to_vec(&state.progress).unwrap_or_default();
        self.place.overwrite(PROGRESS, &bytes)
    }

    /// The whole lines of the file from a place on.
    fn unwritten(&self, from: u64) -> Result<Vec<u8>> {
        let cannot =
            |error| Failure::io(format!("records '{}' cannot be read", self.file.display()), error);
        let mut file = match std::fs::File::open(&self.file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file.map_err(cannot)?,
        };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from)).map_err(cannot)?;
        file.read_to_end(&mut bytes).map_err(cannot)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
        Ok(bytes)
    }

    /// Somebody else wrote a segment. Tried again, the next worker takes up what both wrote.
    fn conflict(&self, number: u64) -> Failure {
        let message = format!(
            "'{}' was written by somebody else meanwhile: give each TuningRun a log of its own, unless it was a pod of this run that was taken for dead",
            self.place.uri(&segment_name(number))
        );
        Failure::new(Reason::StorageFault, message)
    }
}

/// Takes down how fast the network is with the schedules that are kept.
fn note_whole(report: &mut TuningReport, outcome: &Outcome) {
    report.untuned = outcome.whole.as_ref().map(|own| own.before);
    // Where nothing won both are one artifact, and a difference of their times would be noise.
    report.best = match outcome.tuned {
        0 => report.untuned,
        _ => outcome.whole.as_ref().map(|own| own.after),
    };
    report.winners = outcome.tuned as u64;
}

/// Brings the records of another run's log into a folder of records; how many segments there are. `field` names the
/// log in messages.
///
/// # Errors
/// What the store refuses; a log without segments; more than `limit` bytes; a log of another version.
pub fn take(place: &Destination, folder: &Path, limit: u64, field: &str) -> Result<usize> {
    let numbers = numbers(place)?;
    if numbers.is_empty() {
        let message = format!(
            "{field}: log '{}' has no segments: wait until its TuningRun has measured, or name another",
            place.uri(SEGMENTS)
        );
        return Err(Failure::new(Reason::NotFound, message));
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::io(format!("'{}' cannot be made", folder.display()), error))?;
    // Several logs may be taken into one folder.
    let log = sha256(place.uri(SEGMENTS).as_bytes());
    let digits: String = log.chars().rev().take(8).collect();
    fetch(place, &numbers, folder, limit, &|number| format!("log-{digits}-{number:08}.jsonl"))?;
    refuse_useless(folder, place, field)?;
    Ok(numbers.len())
}

/// Why records are in no segment yet, or not in the one where they belong.
enum Unwritten {
    /// Another writes the log.
    Conflict(Failure),
    /// The store, or the file of records.
    Fault(Failure),
}

/// Brings segments into a folder, several at once, since a long run has thousands. They may have `limit` bytes together.
fn fetch(
    place: &Destination,
    numbers: &[u64],
    folder: &Path,
    limit: u64,
    name_here: &(dyn Fn(u64) -> String + Sync),
) -> Result<()> {
    let (next, left) = (AtomicUsize::new(0), AtomicU64::new(limit));
    let some = || -> Result<()> {
        while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = segment_name(*number);
            let bytes = place.read(&name, left.load(Ordering::Relaxed))?.unwrap_or_default();
            let size = bytes.len() as u64;
            let taken = left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(size));
            if taken.is_err() {
                return Err(local::too_large(&place.uri(SEGMENTS), limit + 1, limit));
            }
            let path = folder.join(name_here(*number));
            write_atomically(&path, std::iter::once(bytes.as_slice()))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..AT_ONCE.min(numbers.len())).map(|_| scope.spawn(some)).collect();
        let ended = || Failure::internal("a thread that fetches segments ended");
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err(ended())))
    })
}

/// A segment in the folder of records: names in the order of numbers.
fn local_name(number: u64) -> String {
    format!("segment-{number:08}.jsonl")
}

fn segment_name(number: u64) -> String {
    format!("{SEGMENTS}/{number:08}.jsonl")
}

/// The numbers of the segments that there are, in order.
fn numbers(place: &Destination) -> Result<Vec<u64>> {
    let names = place.list(SEGMENTS)?;
    let number = |name: &String| name.strip_suffix(".jsonl")?.parse().ok();
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Trials in lines of records: those with a time, and those without.
fn count(lines: &[u8]) -> (u64, u64) {
    let records = lines.split(|byte| *byte == b'\n');
    let records = records.filter_map(|line| serde_json::from_slice::<Record>(line).ok());
    let trials = records.filter(|record| record.kind == Kind::Trial);
    trials.fold((0, 0), |(measured, failed), record| match record.class {
        Class::Ok => (measured + 1, failed),
        _ => (measured, failed + 1),
    })
}

/// Refuses a log of which nothing can be used: it is of another version, or no log at all.
fn refuse_useless(folder: &Path, place: &Destination, field: &str) -> Result<()> {
    let (records, skipped) = read_folder(folder).map_err(store::failed)?;
    store::tell_skipped(&skipped);
    match skipped.first().filter(|_| records.is_empty()) {
        None => Ok(()),
        Some(first) => {
            let message = format!(
                "log '{}' holds nothing that can be used: {}; choose another folder for {field}",
                place.uri(SEGMENTS),
                first.reason
            );
            Err(Failure::new(Reason::InvalidInput, message))
        }
    }
}

#[cfg(test)]
#[path = "run_log_tests.rs"]
mod tests;
