//! The files without a name that a model's weights lie in while it is worked with: the model's, where it is large, and a
//! copy of each large tensor that it stores elsewhere. Nobody else can change them, and the system takes their memory back
//! while nobody reads them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hone_driver::{Backing, Bytes};
use hone_runtime::MappedFile;

/// Tensors of fewer bytes are not worth a file, and memory of fewer is not worth a call of the system.
const LARGE: usize = 1 << 18;

/// Bytes that are copied at once.
const PART: usize = 1 << 20;

/// The files, mapped.
#[derive(Debug)]
pub struct ModelFiles {
    /// Where their bytes lie.
    folder: PathBuf,
    files: Mutex<Vec<Arc<MappedFile>>>,
    /// Copies of parts of other files: a model is imported several times where its sizes differ.
    copies: Mutex<HashMap<PartOfFile, Bytes>>,
}

/// A part of a file as it was when it was copied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PartOfFile {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    offset: u64,
    length: usize,
}

impl PartOfFile {
    fn of(file: &File, offset: u64, length: usize) -> io::Result<Self> {
        let facts = file.metadata()?;
        let modified = (facts.mtime(), facts.mtime_nsec());
        Ok(Self { device: facts.dev(), inode: facts.ino(), modified, offset, length })
    }
}

/// One of them, as what keeps bytes alive.
struct Kept(Arc<MappedFile>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl ModelFiles {
    /// None yet; they will lie in `folder`.
    pub fn new(folder: &Path) -> Self {
        let (files, copies) = (Mutex::default(), Mutex::default());
        Self { folder: folder.to_path_buf(), files, copies }
    }

    /// The bytes of a file without a name, which is mapped; nothing where the system refuses that.
    pub(super) fn add(&self, file: &File) -> Option<Bytes> {
        let mapped = Arc::new(MappedFile::of_unnamed(file).ok()?);
        // Without the lock's content the bytes are right all the same, and stay in memory for longer.
        if let Ok(mut files) = self.files.lock() {
            files.push(mapped.clone());
        }
        Some(Bytes::from_owner(Kept(mapped)))
    }

    /// A copy of a part of a file.
    fn copied(&self, file: &File, offset: u64, length: usize) -> Option<Bytes> {
        let mut copy = tempfile::tempfile_in(&self.folder).ok()?;
        let mut part = vec![0; PART];
        for begin in (0..length).step_by(PART) {
            let part = &mut part[..PART.min(length - begin)];
            file.read_exact_at(part, offset.checked_add(begin as u64)?).ok()?;
            copy.write_all(part).ok()?;
        }
        self.add(&copy)
    }
}

impl Backing for ModelFiles {
    fn keep(&self, file: &File, offset: u64, length: usize) -> Option<Bytes> {
        if length < LARGE {
            return None;
        }
        let part = PartOfFile::of(file, offset, length).ok()?;
        let mut copies = self.copies.lock().ok()?;
        if let Some(copy) = copies.get(&part) {
            return Some(copy.clone());
        }
        let copy = self.copied(file, offset, length)?;
        copies.insert(part, copy.clone());
        Some(copy)
    }

    fn release(&self, bytes: &[u8]) {
        let Ok(files) = self.files.lock() else { return };
        if bytes.len() >= LARGE {
            // Each ignores what is no part of it.
            files.iter().for_each(|file| file.release(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_of_files_are_kept_whole_and_can_be_read_after_they_were_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        let bytes: Vec<u8> = (0..2 * PART + LARGE).map(|place| (place % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let files = ModelFiles::new(folder.path());
        let kept = files.keep(&file, 100, bytes.len() - 100).unwrap();
        let again = files.keep(&file, 100, bytes.len() - 100).unwrap();
        assert_eq!(again.as_ptr(), kept.as_ptr());
        // What becomes of the file itself changes nothing.
        std::fs::write(&path, b"").unwrap();
        assert!(kept == bytes[100..]);
        files.release(&kept[..LARGE]);
        files.release(&bytes);
        assert!(kept == bytes[100..]);
        assert!(files.keep(&file, 0, LARGE).is_none() && files.keep(&file, 0, 10).is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(ModelFiles::new(Path::new("/nowhere")).keep(&file, 0, LARGE).is_none());
    }
}
