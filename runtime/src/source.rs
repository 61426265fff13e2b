//! The bytes of an artifact while a model of it lives.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::{Advice, Mmap};

/// Where an artifact's bytes are.
#[derive(Debug)]
pub(crate) enum Source {
    /// A mapped file.
    Map(Mmap),
    /// Bytes that the caller gave.
    Memory(Cow<'static, [u8]>),
}

/// A file in memory for as long as this lives. Its pages are the system's: they come in as they are read, and go where
/// memory is short.
#[derive(Debug)]
pub struct MappedFile(Source);

impl MappedFile {
    /// Maps an artifact, or another file that is written whole and renamed into place, never changed where it lies.
    ///
    /// # Errors
    /// What the file system refuses; a file that is not a regular one.
    pub fn open(path: &Path) -> io::Result<Self> {
        Source::open(path, false).map(Self)
    }

    /// Maps what has just been written to a file without a name, which nobody else has open.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn of_unnamed(file: &File) -> io::Result<Self> {
        // SAFETY: the caller's file has no name, so nobody truncates or changes it.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(Source::Map(map)))
    }

    /// Gives the memory of `bytes` back, which come from the file again when they are read. Bytes that are no part of it are
    /// ignored.
    pub fn release(&self, bytes: &[u8]) {
        let offset = bytes.as_ptr().addr().wrapping_sub(self.as_ptr().addr());
        if offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len()) {
            self.0.forget(offset, bytes.len());
        }
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Source {
    /// Maps a file for reading. With `all` its pages are brought in at once rather than one by one.
    pub(crate) fn open(path: &Path, all: bool) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        // SAFETY: artifacts are written whole and renamed into place, never changed where they lie.
        // Who truncates one under us breaks this process as they would break a shared library.
        let map = unsafe { Mmap::map(&file)? };
        if all {
            // Only advice: where the system does not know it, pages come in as they are touched.
            let _ = map.advise(Advice::PopulateRead);
        }
        Ok(Self::Map(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Memory(bytes) => bytes,
        }
    }

    /// Gives the memory of a range back that has been copied elsewhere; a mapped file stays readable.
    pub(crate) fn forget(&self, offset: usize, length: usize) {
        if let Self::Map(map) = self {
            // SAFETY: a private, read-only file mapping: dropped pages come back from the file.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, length)
            };
        }
    }
}
