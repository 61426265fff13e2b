//! The bytes of an artifact while a model of it lives.

use std::borrow::Cow;
use std::fs::File;
use std::io;
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
