//! What was compiled and measured before, by content: equal work is done once.
//!
//! An entry is a file named after its key. Keys hold everything that decides the content, this
//! program's own bytes included, so that a new build of the compiler never answers with an old one's
//! code. Entries appear whole or not at all; whoever loses one compiles again. Where the cache has a limit, entries
//! that were used longest ago make room for new ones.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use hone_artifact::{WriteError, Written, write_atomically};
use hone_driver::Target;
use hone_search::Record;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::tune::store::{self, Recorded};

mod limit;

/// The folder of entries.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Whether entries may be taken; they are written in any case.
    answers: bool,
    /// Most bytes of all entries, tuning records aside; none where nothing is ever removed.
    limit: Option<u64>,
    /// Where tuning records lie, where that was said.
    records: Option<PathBuf>,
    /// The records, once they were read.
    read: Arc<OnceLock<Vec<Record>>>,
}

/// The name of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key of a value: equal values have equal keys.
    pub fn of(value: &impl Serialize) -> Self {
        // Plain data always has a JSON form.
        let text = serde_json::to_string(value).unwrap_or_default();
        Self(blake3::hash(text.as_bytes()).to_hex().to_string())
    }

    /// The key of this one and more.
    pub fn with(&self, value: &impl Serialize) -> Self {
        Self::of(&json!([self.0, serde_json::to_value(value).unwrap_or_default()]))
    }
}

impl Cache {
    /// Opens the folder, by default `$HONE_CACHE`, `$XDG_CACHE_HOME/hone` or `~/.cache/hone`. Without
    /// `answers` nothing is taken from it.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn open(folder: Option<&Path>, answers: bool) -> Result<Self> {
        let folder = folder.map_or_else(default_folder, Path::to_path_buf);
        fs::create_dir_all(&folder).map_err(|error| {
            let name = folder.display();
            Failure::io(
                format!("cache '{name}' cannot be made: choose another with --cache"),
                error,
            )
        })?;
        Ok(Self { folder, answers, limit: None, records: None, read: Arc::default() })
    }

    /// The same that holds at most `limit` bytes of entries, or any number for 0: with each new artifact, those that
    /// were used longest ago are removed.
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit: (limit > 0).then_some(limit), ..self }
    }

    /// The folder, in which files without a name may lie, too.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same with tuning records in another folder than `records` beside the entries.
    pub fn with_records(self, folder: Option<&Path>) -> Self {
        let records = folder.filter(|own| !own.as_os_str().is_empty()).map(Path::to_path_buf);
        Self { records, read: Arc::default(), ..self }
    }

    /// The folder of tuning records, which need not be there.
    pub fn records_folder(&self) -> PathBuf {
        self.records.clone().unwrap_or_else(|| self.folder.join("records"))
    }

    /// The schedules that tuning records have for a target, by the structural digest of programs.
    ///
    /// # Errors
    /// Records that cannot be read.
    pub fn recorded(&self, target: &Target) -> Result<Recorded> {
        let records = match self.read.get() {
            Some(records) => records,
            None => {
                let records = store::read(&self.records_folder())?;
                self.read.get_or_init(|| records)
            }
        };
        Ok(Arc::new(store::winners(records, target).by_program))
    }

    /// The file of an artifact, whether or not it is there.
    pub fn artifact_path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{}.hone", key.0))
    }

    /// The file of an artifact that is there and may be taken.
    pub fn artifact(&self, key: &Key) -> Option<PathBuf> {
        let path = self.artifact_path(key);
        let is_there = self.answers && path.is_file();
        is_there.then(|| {
            limit::touch(&path);
            path
        })
    }

    /// Keeps an artifact, which `write` writes whole or not at all, and gives its file and what was written.
    ///
    /// # Errors
    /// What `write` gives: a full disk, and what else the file system refuses.
    pub fn keep_artifact(
        &self,
        key: &Key,
        write: impl FnOnce(&Path) -> std::result::Result<Written, WriteError>,
    ) -> Result<(PathBuf, Written)> {
        let path = self.artifact_path(key);
        let written = write(&path)?;
        if let Some(limit) = self.limit {
            limit::shrink(&self.folder, limit);
        }
        Ok((path, written))
    }

    /// What was kept under `key`, if it may be taken and can be read.
    pub fn result<T: for<'de> Deserialize<'de>>(&self, key: &Key) -> Option<T> {
        if !self.answers {
            return None;
        }
        let path = self.result_path(key);
        let result = serde_json::from_slice(&fs::read(&path).ok()?).ok();
        limit::touch(&path);
        result
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// As for [`Cache::keep_artifact`].
    pub fn keep_result(&self, key: &Key, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(value).unwrap_or_default();
        write_atomically(&self.result_path(key), std::iter::once(bytes.as_slice()))?;
        Ok(())
    }

    fn result_path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{}.json", key.0))
    }
}

/// Where a file without a name may lie for a command that has no cache.
pub fn folder_for_large_files() -> PathBuf {
    Some(default_folder()).filter(|folder| folder.is_dir()).unwrap_or_else(env::temp_dir)
}

fn default_folder() -> PathBuf {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("HONE_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("hone")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/hone")))
        .unwrap_or_else(|| env::temp_dir().join("hone-cache"))
}

/// What this compiler is: its version, and a digest of its own program, because two builds of one
/// version may make different code.
pub fn compiler_identity() -> String {
    let program = env::current_exe().ok().and_then(|path| {
        let mut hasher = blake3::Hasher::new();
        let mut file = fs::File::open(path).ok()?;
        std::io::copy(&mut file, &mut hasher).ok()?;
        Some(hasher.finalize().to_hex().to_string())
    });
    format!("{} {}", env!("CARGO_PKG_VERSION"), program.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What writes these bytes in place of an artifact.
    fn written(bytes: &[u8]) -> impl FnOnce(&Path) -> std::result::Result<Written, WriteError> {
        move |path| {
            let bytes = write_atomically(path, std::iter::once(bytes))?;
            Ok(Written { digest: String::new(), bytes })
        }
    }

    #[test]
    fn entries_are_found_by_content_unless_answers_are_unwanted() {
        let folder = tempfile::tempdir().unwrap();
        let key = Key::of(&json!({"model": 1}));
        assert_ne!(key, Key::of(&json!({"model": 2})));
        let cache = Cache::open(Some(folder.path()), true).unwrap();
        assert!(cache.artifact(&key).is_none());
        let (path, _) = cache.keep_artifact(&key, written(b"code")).unwrap();
        assert_eq!(cache.artifact(&key), Some(path));
        cache.keep_result(&key, &7).unwrap();
        assert_eq!(cache.result(&key), Some(7));
        let silent = Cache::open(Some(folder.path()), false).unwrap();
        assert!(silent.artifact(&key).is_none() && silent.result::<u32>(&key).is_none());
        fs::write(cache.result_path(&key), b"{").unwrap();
        assert_eq!(cache.result::<u32>(&key), None);
    }

    #[test]
    fn a_new_artifact_takes_the_room_of_what_was_used_longest_ago() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(folder.path()), true).unwrap().with_limit(6);
        let age = |key: &Key, minutes: u64| {
            let file = fs::File::options().append(true).open(cache.artifact_path(key)).unwrap();
            let used = std::time::SystemTime::now() - std::time::Duration::from_secs(60 * minutes);
            file.set_modified(used).unwrap();
        };
        let keys = [1, 2, 3].map(|number| Key::of(&number));
        for (key, minutes) in keys.iter().zip([30, 20]) {
            cache.keep_artifact(key, written(b"abc")).unwrap();
            age(key, minutes);
        }
        // Taken once more, the first is newer than the second.
        assert!(cache.artifact(&keys[0]).is_some());
        cache.keep_artifact(&keys[2], written(b"abc")).unwrap();
        let there = keys.each_ref().map(|key| cache.artifact_path(key).exists());
        assert_eq!(there, [true, false, true]);
    }
}
