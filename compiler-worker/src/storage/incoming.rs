//! Bytes on their way in: in memory while they are few, from a size on in a file without a name, so that the system can
//! take their memory back while nobody reads them. Their digest is made as they pass.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use hone_driver::Bytes;

use super::digest::RunningDigest;
use super::local;
use super::model_files::ModelFiles;
use crate::failure::{Failure, Result};

/// Bytes from which on a file holds them: below, memory is not worth a file.
const MAPPED: usize = 64 << 20;

/// What was fetched, whole.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Its bytes.
    pub bytes: Bytes,
    /// The file that they are in where they are many, and those of what the model stores elsewhere.
    pub files: Arc<ModelFiles>,
    /// `sha256:` and their digest.
    pub digest: String,
}

/// What has come in so far.
#[derive(Debug)]
pub struct Incoming<'a> {
    source: &'a str,
    limit: u64,
    folder: &'a Path,
    digest: RunningDigest,
    length: u64,
    memory: Vec<u8>,
    file: Option<File>,
    may_use_file: bool,
}

impl<'a> Incoming<'a> {
    /// Nothing yet of what messages call `source`, of which at most `limit` bytes may come; a file for them would lie
    /// in `folder`.
    pub fn new(source: &'a str, limit: u64, folder: &'a Path) -> Self {
        let (memory, file) = (Vec::new(), None);
        let digest = RunningDigest::new();
        Self { source, limit, folder, digest, length: 0, memory, file, may_use_file: true }
    }

    /// Learns how many bytes will come, where that is told beforehand.
    ///
    /// # Errors
    /// `TooLarge` past the limit.
    pub fn expect(&mut self, length: u64) -> Result<()> {
        if length > self.limit {
            return Err(local::too_large(self.source, length, self.limit));
        }
        self.memory.reserve(usize::try_from(length).unwrap_or(MAPPED).min(MAPPED));
        Ok(())
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// `TooLarge` past the limit. A file that cannot be written is none: the bytes stay in memory then, unless what it has
    /// cannot be read back.
    pub fn add(&mut self, part: &Bytes) -> Result<()> {
        self.length = self.length.saturating_add(part.len() as u64);
        if self.length > self.limit {
            return Err(local::too_large(self.source, self.length, self.limit));
        }
        if self.may_use_file && self.file.is_none() && self.length >= MAPPED as u64 {
            self.digest.run_beside();
            self.spill();
        }
        self.digest.add(part);
        match &mut self.file {
            None => self.memory.extend_from_slice(part),
            Some(file) => {
                let before = self.length - part.len() as u64;
                if file.write_all(part).is_err() {
                    self.back_to_memory(before)?;
                    self.memory.extend_from_slice(part);
                }
            }
        }
        Ok(())
    }

    /// All of it.
    ///
    /// # Errors
    /// A file that can be neither mapped nor read back.
    pub fn finish(mut self) -> Result<Fetched> {
        let digest = mem::replace(&mut self.digest, RunningDigest::new()).finish();
        let files = Arc::new(ModelFiles::new(self.folder));
        let bytes = match self.file.as_ref().and_then(|file| files.add(file)) {
            Some(mapped) => mapped,
            None => {
                self.back_to_memory(self.length)?;
                self.memory.into()
            }
        };
        Ok(Fetched { bytes, files, digest })
    }

    /// Moves what is in memory to a file, where there is room for one.
    fn spill(&mut self) {
        let moved = tempfile::tempfile_in(self.folder).and_then(|mut file| {
            file.write_all(&self.memory)?;
            Ok(file)
        });
        match moved {
            Ok(file) => {
                self.file = Some(file);
                self.memory = Vec::new();
            }
            Err(_) => self.may_use_file = false,
        }
    }

    /// The first `length` bytes, all that the file holds for sure.
    fn back_to_memory(&mut self, length: u64) -> Result<()> {
        self.may_use_file = false;
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let mut read = || {
            file.rewind()?;
            let mut bytes = Vec::new();
            (&mut file).take(length).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let lost = |error| Failure::io(format!("'{}' cannot be kept", self.source), error);
        self.memory = read().map_err(lost)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::storage::sha256;
    use hone_artifact::exit_code::Reason;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|place| (place % 251) as u8).collect()
    }

    fn received(bytes: &[u8], folder: &Path) -> Fetched {
        let mut incoming = Incoming::new("model", u64::MAX, folder);
        bytes.chunks(1 << 20).for_each(|part| incoming.add(&part.to_vec().into()).unwrap());
        assert_eq!(incoming.file.is_some(), bytes.len() >= MAPPED && folder.is_dir());
        incoming.finish().unwrap()
    }

    #[test]
    fn few_and_many_bytes_come_in_whole_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        for count in [0, 5, MAPPED - 1, MAPPED, MAPPED + 1] {
            let bytes = bytes(count);
            let fetched = received(&bytes, folder.path());
            assert!(fetched.bytes == bytes && fetched.digest == sha256(&bytes), "{count}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_room_for_a_file_they_stay_in_memory() {
        let bytes = bytes(MAPPED + 5);
        assert!(received(&bytes, Path::new("/nowhere")).bytes == bytes);
        // A file that can be read and not written to, as on a disk that is full from here on.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        std::fs::write(&path, &bytes[..MAPPED]).unwrap();
        let mut incoming = Incoming::new("model", u64::MAX, folder.path());
        incoming.file = Some(File::open(&path).unwrap());
        incoming.length = MAPPED as u64;
        incoming.add(&bytes[MAPPED..].to_vec().into()).unwrap();
        assert!(incoming.finish().unwrap().bytes == bytes);
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let mut incoming = Incoming::new("model", 5, Path::new("."));
        incoming.add(&Bytes::from_static(b"1234")).unwrap();
        let failure = incoming.add(&Bytes::from_static(b"56")).unwrap_err();
        assert_eq!(failure.reason, Reason::TooLarge);
    }
}
