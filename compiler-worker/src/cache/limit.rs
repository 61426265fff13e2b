//! How much the cache holds: what was used longest ago goes first.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What was used within this time stays, whatever the limit: another process may be about to open it.
const RECENT: Duration = Duration::from_secs(600);

/// One entry's file.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Removes entries of `folder` until they take at most `limit` bytes, the one that was used longest ago first.
///
/// Files that are no entries are neither counted nor removed. What cannot be read or removed is passed over, as
/// another process may be doing the same.
pub(super) fn shrink(folder: &Path, limit: u64) {
    shrink_at(folder, limit, SystemTime::now());
}

fn shrink_at(folder: &Path, limit: u64, now: SystemTime) {
    let mut entries = entries(folder);
    let mut held: u64 = entries.iter().map(|entry| entry.bytes).sum();
    entries.sort_by_key(|entry| entry.used);
    for entry in entries {
        let is_recent = now.duration_since(entry.used).map_or(true, |age| age < RECENT);
        if held <= limit || is_recent {
            return;
        }
        if fs::remove_file(&entry.path).is_ok() {
            held -= entry.bytes;
        }
    }
}

/// Notes that an entry was used.
pub(super) fn touch(path: &Path) {
    // The cache of another user can be read and not written; its entries are then as old as they are.
    if let Ok(file) = fs::File::options().append(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

fn entries(folder: &Path) -> Vec<Entry> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let entry = |file: fs::DirEntry| {
        let path = file.path();
        let metadata = file.metadata().ok()?;
        let used = metadata.modified().ok()?;
        (metadata.is_file() && is_entry(&path)).then_some(Entry {
            path,
            bytes: metadata.len(),
            used,
        })
    };
    files.filter_map(|file| entry(file.ok()?)).collect()
}

/// Whether a file is named as an artifact or a result of the cache: a digest in hexadecimal digits.
fn is_entry(path: &Path) -> bool {
    let text =
        |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).map(str::to_owned);
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    let is_digest = |stem: &String| {
        stem.len() == 2 * blake3::OUT_LEN && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    stem.as_ref().is_some_and(is_digest)
        && extension.is_some_and(|extension| ["hone", "json"].contains(&extension.as_str()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A file of 100 bytes that was used some minutes before `now`.
    fn file(folder: &Path, name: &str, now: SystemTime, minutes: u64) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, [7; 100]).unwrap();
        let used = now - Duration::from_secs(60 * minutes);
        fs::File::options().append(true).open(&path).unwrap().set_modified(used).unwrap();
        path
    }

    fn digest(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let place = folder.path();
        let oldest = file(place, &format!("{}.hone", digest('a')), now, 50);
        let older = file(place, &format!("{}.json", digest('b')), now, 40);
        let newer = file(place, &format!("{}.hone", digest('c')), now, 30);
        shrink_at(place, 300, now);
        assert!(oldest.exists() && older.exists() && newer.exists());
        touch(&oldest);
        shrink_at(place, 200, now);
        assert!(oldest.exists() && !older.exists() && newer.exists());
        shrink_at(place, 100, now);
        assert!(oldest.exists() && !newer.exists());
    }

    #[test]
    fn what_was_just_used_and_what_is_no_entry_stays() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let place = folder.path();
        let recent = file(place, &format!("{}.hone", digest('a')), now, 9);
        let foreign = file(place, "model.hone", now, 90);
        let log = file(place, &format!("{}.log", digest('b')), now, 90);
        let folder_of_records = place.join(digest('c') + ".json");
        fs::create_dir(&folder_of_records).unwrap();
        shrink_at(place, 0, now);
        assert!(recent.exists() && foreign.exists() && log.exists() && folder_of_records.exists());
        shrink_at(place, 0, now + RECENT);
        assert!(!recent.exists() && foreign.exists());
    }
}
