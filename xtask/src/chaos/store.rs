//! What a folder of the store contains: artifacts, who owns them, and what names an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// One output folder, as it lies in the store.
#[derive(Debug, Default)]
pub struct Folder {
    /// Names of the artifacts.
    pub artifacts: BTreeSet<String>,
    /// The uids in the object of owners of each artifact, which may itself be gone.
    pub owners: BTreeMap<String, BTreeSet<String>>,
    /// The artifacts that are entered for each uid.
    pub entries: BTreeMap<String, BTreeSet<String>>,
    /// Names of the reports, which end in a uid and an extension.
    pub reports: Vec<String>,
}

impl Folder {
    /// What lies in a folder; nothing where there is none. Tuning logs are left out: they stay whatever happens.
    ///
    /// # Errors
    /// What cannot be read, or is not what the suite knows.
    pub fn read(path: &Path) -> Result<Self> {
        let mut folder = Self::default();
        for name in names(path)? {
            let artifact = name.strip_suffix(".owners").filter(|name| name.ends_with(".hone"));
            if let Some(artifact) = artifact {
                if let Some(owners) = owners(&path.join(&name))? {
                    folder.owners.insert(artifact.to_owned(), owners);
                }
            } else if name.ends_with(".hone") {
                folder.artifacts.insert(name);
            } else if name.ends_with(".json") || name.ends_with(".html") {
                folder.reports.push(name);
            }
        }
        let entries = path.join(".owners");
        for uid in names(&entries)? {
            let found = names(&entries.join(&uid))?.into_iter().collect();
            folder.entries.insert(uid, found);
        }
        Ok(folder)
    }

    /// The artifacts that are there and that a uid is an owner of.
    pub fn stored_by(&self, uid: &str) -> Vec<String> {
        let by = |file: &&String| self.owners.get(*file).is_some_and(|owners| owners.contains(uid));
        self.artifacts.iter().filter(by).cloned().collect()
    }

    /// What still names a uid: an owner of an artifact, an entry, a report.
    pub fn traces_of(&self, uid: &str) -> Vec<String> {
        let owned = self.owners.iter().filter(|(_, owners)| owners.contains(uid));
        let owned = owned.map(|(artifact, _)| format!("owner of {artifact}"));
        let entered = self.entries.get(uid).into_iter().flatten();
        let entered = entered.map(|artifact| format!("entry of {artifact}"));
        let reports = self.reports.iter().filter(|name| name.contains(uid)).cloned();
        owned.chain(entered).chain(reports).collect()
    }
}

/// The names in a folder; none where there is no such folder, such as for the object of those that have gone.
fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.with_context(|| format!("cannot list {}", path.display()))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// The uids in an object of owners; none where it went meanwhile.
fn owners(path: &Path) -> Result<Option<BTreeSet<String>>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let value: Value = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is no object of owners", path.display()))?;
    let uids = value["owners"].as_array().into_iter().flatten();
    Ok(Some(uids.filter_map(|uid| uid.as_str().map(str::to_owned)).collect()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn folder() -> Folder {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Folder {
            artifacts: set(&["a.hone", "b.hone"]),
            owners: BTreeMap::from([
                ("a.hone".to_owned(), set(&["1", "2"])),
                ("c.hone".to_owned(), set(&["1"])),
            ]),
            entries: BTreeMap::from([("1".to_owned(), set(&["c.hone"]))]),
            reports: vec!["a.1.json".to_owned()],
        }
    }

    #[test]
    fn an_owner_has_stored_what_is_there() {
        assert_eq!(folder().stored_by("1"), ["a.hone"]);
        assert!(folder().stored_by("3").is_empty());
    }

    #[test]
    fn every_trace_of_an_owner_is_found() {
        let traces = folder().traces_of("1");
        assert_eq!(traces, ["owner of a.hone", "owner of c.hone", "entry of c.hone", "a.1.json"]);
        assert_eq!(folder().traces_of("2"), ["owner of a.hone"]);
    }
}
