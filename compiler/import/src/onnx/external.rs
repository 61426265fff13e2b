//! Tensors stored in files beside the model.
//!
//! The path comes from the model and is not trusted. It must be relative, without `..`, and is opened
//! one component after the other from the folder, each without following links; what is opened must
//! be a regular file with one name, since a second name may lie outside the folder. Nothing is checked
//! by path and then opened by path, so a file exchanged in between changes nothing.

use super::proto::StringStringEntryProto;
use crate::{ImportError, ImportOptions};
use bytes::Bytes;
use hone_types::Backing;
use rustix::fs::{self, Mode, OFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Files beside the model, opened when first read.
#[derive(Debug)]
pub(super) struct ExternalFiles {
    folder: Option<PathBuf>,
    open: HashMap<String, (File, u64)>,
    backing: Option<Arc<dyn Backing>>,
    /// Bytes that may yet be read.
    left: usize,
    limit: usize,
}

/// Why a location is refused, with the system's words where it has some.
type Refusal = (String, Option<io::Error>);

impl ExternalFiles {
    /// Files in the folder of `options`, none of which is read before it is asked for.
    pub fn new(options: &ImportOptions) -> Self {
        let limit = options.limits.constant_bytes;
        Self {
            folder: options.folder.clone(),
            open: HashMap::new(),
            backing: options.backing.clone(),
            left: limit,
            limit,
        }
    }

    /// The bytes of tensor `name`, which needs `bytes` of them, from where `entries` says.
    pub fn read(
        &mut self,
        name: &str,
        entries: &[StringStringEntryProto],
        bytes: usize,
    ) -> Result<Bytes, ImportError> {
        let entry = |key: &str| {
            let found = entries.iter().find(|entry| entry.key.as_deref() == Some(key));
            found.and_then(|entry| entry.value.as_deref())
        };
        let location = entry("location").unwrap_or_default().to_string();
        let range = Range { offset: entry("offset"), length: entry("length"), bytes };
        self.read_range(&location, range).map_err(|(reason, source)| ImportError::External {
            name: name.to_string(),
            location,
            reason,
            source,
        })
    }

    fn read_range(&mut self, location: &str, range: Range<'_>) -> Result<Bytes, Refusal> {
        let (offset, bytes) = range.check()?;
        if bytes > self.left {
            return Err(refusal(format!("all constants take more than {} bytes", self.limit)));
        }
        let backing = self.backing.clone();
        let (file, size) = self.file(location)?;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > *size) {
            return Err(refusal(format!(
                "bytes {offset} to {offset} + {bytes} are asked for, the file has {size}; fetch it again"
            )));
        }
        let read = match backing.and_then(|backing| backing.keep(file, offset, bytes)) {
            Some(kept) => kept,
            None => {
                let mut buffer = vec![0; bytes];
                file.read_exact_at(&mut buffer, offset)
                    .map_err(|error| ("it cannot be read".to_string(), Some(error)))?;
                buffer.into()
            }
        };
        self.left -= bytes;
        Ok(read)
    }

    fn file(&mut self, location: &str) -> Result<&(File, u64), Refusal> {
        if !self.open.contains_key(location) {
            let opened = open_inside(self.folder.as_deref(), location)?;
            self.open.insert(location.to_string(), opened);
        }
        self.open.get(location).ok_or_else(|| refusal("it is not open"))
    }
}

/// Where in a file a tensor lies, as the model says.
struct Range<'a> {
    offset: Option<&'a str>,
    length: Option<&'a str>,
    bytes: usize,
}

impl Range<'_> {
    /// Offset and length in bytes.
    fn check(&self) -> Result<(u64, usize), Refusal> {
        let number = |what: &str, text: &str| {
            text.trim()
                .parse::<u64>()
                .map_err(|_| refusal(format!("its {what} '{text}' is no number")))
        };
        let offset = self.offset.map_or(Ok(0), |text| number("offset", text))?;
        if let Some(length) = self.length {
            let length = number("length", length)?;
            if length != self.bytes as u64 {
                let needed = self.bytes;
                return Err(refusal(format!("{length} bytes are stored, {needed} are needed")));
            }
        }
        Ok((offset, self.bytes))
    }
}

fn refusal(reason: impl Into<String>) -> Refusal {
    (reason.into(), None)
}

/// Opens a regular file below `folder`; see the head of this file.
fn open_inside(folder: Option<&Path>, location: &str) -> Result<(File, u64), Refusal> {
    let folder = folder.ok_or_else(|| {
        refusal("the model was given without a folder; put both files into one folder")
    })?;
    let names = components(location)?;
    let Some((last, folders)) = names.split_last() else {
        return Err(refusal("it names no file"));
    };
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = fs::open(folder, directory, Mode::empty())
        .map_err(|error| system("the model's folder cannot be opened", error))?;
    for name in folders {
        here = fs::openat(&here, *name, directory | OFlags::NOFOLLOW, Mode::empty()).map_err(
            |error| system("a folder on its path cannot be opened, or is a link", error),
        )?;
    }
    // Not blocking: opening a pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(&here, *last, flags, Mode::empty()).map_err(|error| {
        system("it cannot be opened, or is a link; put the file itself there", error)
    })?;
    let file = File::from(file);
    let facts =
        file.metadata().map_err(|error| ("it cannot be examined".to_string(), Some(error)))?;
    if !facts.is_file() {
        return Err(refusal("it is not a regular file"));
    }
    if facts.nlink() > 1 {
        return Err(refusal(
            "it has more than one name (hard links), so it may lie outside the folder; copy it",
        ));
    }
    Ok((file, facts.len()))
}

fn system(what: &str, error: rustix::io::Errno) -> Refusal {
    (what.to_string(), Some(error.into()))
}

fn components(location: &str) -> Result<Vec<&std::ffi::OsStr>, Refusal> {
    if location.contains(['\0', '\\']) {
        return Err(refusal("the path has characters that are not allowed"));
    }
    let mut names = Vec::new();
    for component in Path::new(location).components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => {
                return Err(refusal(
                    "the path leaves the model's folder; it must be relative and without '..'",
                ));
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Limits;
    use std::os::unix::fs::symlink;

    fn options(folder: Option<&Path>, constant_bytes: usize) -> ImportOptions {
        let limits = Limits { constant_bytes, ..Limits::default() };
        ImportOptions { folder: folder.map(Path::to_path_buf), limits, ..ImportOptions::default() }
    }

    fn entries(location: &str, offset: &str) -> Vec<StringStringEntryProto> {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value.into()),
        };
        vec![entry("location", location), entry("offset", offset)]
    }

    #[test]
    fn reads_only_inside_the_folder() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("model");
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(outer.path().join("secret"), [7; 64]).unwrap();
        std::fs::write(folder.join("sub/weights"), (0..64).collect::<Vec<u8>>()).unwrap();
        std::fs::write(folder.join("twice"), [1; 64]).unwrap();
        std::fs::hard_link(folder.join("twice"), folder.join("second")).unwrap();
        symlink("../secret", folder.join("link")).unwrap();
        symlink("..", folder.join("up")).unwrap();
        symlink("sub/weights", folder.join("inner")).unwrap();
        let mut files = ExternalFiles::new(&options(Some(&folder), usize::MAX));
        let good = files.read("w", &entries("./sub/weights", "8"), 4).unwrap();
        assert_eq!(good[..], [8, 9, 10, 11]);
        let absolute = outer.path().join("secret");
        let refused = [
            "../secret",
            "sub/../../secret",
            "link",
            "up/secret",
            "inner",
            "second",
            "sub",
            "none",
            "",
            "sub\\weights",
            "a\0b",
            absolute.to_str().unwrap(),
        ];
        for location in refused {
            let error = files.read("w", &entries(location, "0"), 4).unwrap_err();
            assert!(matches!(error, ImportError::External { .. }), "{location}: {error}");
        }
        for offset in ["61", "18446744073709551615", "-1", "x"] {
            assert!(files.read("w", &entries("sub/weights", offset), 4).is_err(), "{offset}");
        }
        let mut nowhere = ExternalFiles::new(&options(None, usize::MAX));
        assert!(nowhere.read("w", &entries("sub/weights", "0"), 4).is_err());
    }

    #[test]
    fn all_reads_together_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w"), [0; 64]).unwrap();
        let mut files = ExternalFiles::new(&options(Some(folder.path()), 100));
        assert!(files.read("a", &entries("w", "0"), 64).is_ok());
        assert!(files.read("b", &entries("w", "0"), 64).is_err());
    }
}
