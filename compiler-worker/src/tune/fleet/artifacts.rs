//! Artifacts on their way to a session: under names that hold their digest, checked when they arrive.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use hone_artifact::exit_code::Reason;

use super::is_name;
use crate::failure::{Failure, Result};
use crate::storage::Destination;

/// Where they lie at a store.
pub(super) const ARTIFACTS: &str = "artifacts";
/// Artifacts of a search that lie at the store, and that a session keeps: of a comparison both, and those of the one before.
const KEPT: usize = 4;

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn object(name: &str) -> String {
    format!("{ARTIFACTS}/{name}.hone")
}

/// Those that a search has put at the store, the latest last.
#[derive(Debug, Default)]
pub(super) struct Sent(VecDeque<String>);

impl Sent {
    /// Puts the artifact of a file at the store unless it is there; its name.
    ///
    /// # Errors
    /// A file that cannot be read; what the store refuses.
    pub(super) fn send(&mut self, store: &Destination, run: &str, path: &Path) -> Result<String> {
        let bytes = std::fs::read(path)
            .map_err(|error| Failure::io(format!("'{}' cannot be read", path.display()), error))?;
        let name = format!("{run}-{}", &digest(&bytes)[..32]);
        match self.0.iter().position(|own| *own == name) {
            Some(place) => drop(self.0.remove(place)),
            None => drop(store.write_once(&object(&name), &bytes)?),
        }
        self.0.push_back(name.clone());
        while self.0.len() > KEPT {
            if let Some(old) = self.0.pop_front() {
                // What cannot be removed harms nobody.
                let _ = store.remove(&object(&old));
            }
        }
        Ok(name)
    }

    /// Removes all of them from the store.
    pub(super) fn clear(&mut self, store: &Destination) {
        for name in self.0.drain(..) {
            let _ = store.remove(&object(&name));
        }
    }
}

/// Those that a session has fetched, the latest last.
pub(super) struct Fetched {
    folder: tempfile::TempDir,
    names: VecDeque<String>,
    limit: u64,
}

impl Fetched {
    /// Nothing yet; files of up to `limit` bytes will be fetched.
    ///
    /// # Errors
    /// No temporary folder can be made.
    pub(super) fn new(limit: u64) -> Result<Self> {
        let folder = tempfile::tempdir()
            .map_err(|error| Failure::io("a temporary folder cannot be made", error))?;
        Ok(Self { folder, names: VecDeque::new(), limit })
    }

    /// The file of an artifact, fetched where it is not here.
    ///
    /// # Errors
    /// A name that is none; an artifact that is not there, or is another than its name says.
    pub(super) fn file(&mut self, store: &Destination, name: &str) -> Result<PathBuf> {
        let refuse =
            |reason, what: &str| Err(Failure::new(reason, format!("artifact '{name}' {what}")));
        let Some((_, wanted)) = name.rsplit_once('-').filter(|_| is_name(name)) else {
            return refuse(Reason::InvalidInput, "has no name that an order may have");
        };
        let path = self.folder.path().join(name);
        if let Some(place) = self.names.iter().position(|own| own == name) {
            self.names.remove(place);
            self.names.push_back(name.to_owned());
            return Ok(path);
        }
        let Some(bytes) = store.read(&object(name), self.limit)? else {
            return refuse(Reason::NotFound, "is not at the store");
        };
        if !digest(&bytes).starts_with(wanted) || wanted.len() != 32 {
            return refuse(Reason::DigestMismatch, "is another one than its name says");
        }
        std::fs::write(&path, &bytes).map_err(|error| {
            Failure::io(format!("'{}' cannot be written", path.display()), error)
        })?;
        self.names.push_back(name.to_owned());
        while self.names.len() > KEPT {
            if let Some(old) = self.names.pop_front() {
                let _ = std::fs::remove_file(self.folder.path().join(old));
            }
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn artifacts_arrive_as_they_were_sent_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let store = Destination::Folder(place.path().to_path_buf());
        let file = place.path().join("made");
        let (mut sent, mut fetched) = (Sent::default(), Fetched::new(1000).unwrap());
        let mut names = Vec::new();
        for content in ["a", "b", "c", "d", "e"] {
            std::fs::write(&file, content).unwrap();
            names.push(sent.send(&store, "run", &file).unwrap());
            let path = fetched.file(&store, &names[names.len() - 1]).unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), content);
        }
        // The first has made room for the last, at the store and at the session.
        assert_eq!(fetched.file(&store, &names[0]).unwrap_err().reason, Reason::NotFound);
        assert!(fetched.file(&store, &names[1]).is_ok(), "it is at hand");
        let altered = place.path().join(object(&names[3]));
        std::fs::write(altered, "x").unwrap();
        let mut other = Fetched::new(1000).unwrap();
        assert_eq!(other.file(&store, &names[3]).unwrap_err().reason, Reason::DigestMismatch);
        for wrong in ["../../etc/passwd", "run", "run-12"] {
            assert!(other.file(&store, wrong).is_err(), "{wrong}");
        }
        sent.clear(&store);
        assert!(store.list(ARTIFACTS).unwrap().is_empty());
    }
}
