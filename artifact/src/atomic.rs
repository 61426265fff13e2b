//! Files that appear whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ManifestError;

/// Why an artifact was not written. Nothing is left behind in any case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The manifest contradicts itself.
    #[error("artifact not written: its manifest is not valid")]
    Manifest(#[source] ManifestError),
    /// The manifest could not be put into JSON.
    #[error("artifact not written: its manifest has no JSON form")]
    Json(#[source] serde_json::Error),
    /// A variant names a section that was not added.
    #[error(
        "artifact not written: variant {variant} names {kind} section {index}, which was not added"
    )]
    NoSection {
        /// Position of the variant.
        variant: usize,
        /// `code` or `weights`.
        kind: &'static str,
        /// The number it names.
        index: u32,
    },
    /// A variant's weights have another size than it says.
    #[error(
        "artifact not written: variant {variant} says {said} bytes of weights, its section has {found}"
    )]
    WeightsSize {
        /// Position of the variant.
        variant: usize,
        /// Bytes by the manifest.
        said: u64,
        /// Bytes of the section.
        found: u64,
    },
    /// More sections or bytes than the format holds.
    #[error("artifact not written: too many sections or bytes for the file format")]
    TooLarge,
    /// The path names no file.
    #[error("cannot write '{}': the path has no file name", path.display())]
    NoFileName {
        /// The path.
        path: PathBuf,
    },
    /// The disk, or a quota or limit on it, is full.
    #[error("cannot write '{}': no room for {needed} bytes; free space there or write to another folder", path.display())]
    Full {
        /// The file that was to be.
        path: PathBuf,
        /// Its size in bytes.
        needed: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Anything else that the file system refuses.
    #[error("cannot write '{}': {doing} failed", path.display())]
    Io {
        /// The file that was to be.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Removes the temporary file unless it was renamed.
struct Temporary {
    path: PathBuf,
    keep: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes the chunks in order to `path` and gives their length in bytes: into a temporary file in the same
/// folder, which is synced to disk and then renamed, so that a reader or a crash never sees a part.
///
/// # Errors
/// [`WriteError::Full`] where the disk, a quota or a limit is exhausted; else what the system refused.
/// The temporary file is removed and a file that was there before stays as it was.
pub fn write_atomically<'a>(
    path: &Path,
    chunks: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<u64, WriteError> {
    let needed = chunks.clone().map(|chunk| chunk.len() as u64).sum();
    let fault = |doing: &'static str| {
        move |source: io::Error| {
            let path = path.to_path_buf();
            match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => WriteError::Full { path, needed, source },
                _ => WriteError::Io { path, doing, source },
            }
        }
    };
    let name = path.file_name().ok_or_else(|| WriteError::NoFileName { path: path.into() })?;
    let folder = folder_of(path);
    let (mut temporary, mut file) =
        create(folder, name.to_os_string()).map_err(fault("creating a file in its folder"))?;
    for chunk in chunks {
        file.write_all(chunk).map_err(fault("writing"))?;
    }
    file.sync_all().map_err(fault("syncing to disk"))?;
    drop(file);
    fs::rename(&temporary.path, path).map_err(fault("renaming into place"))?;
    temporary.keep = true;
    sync_folder(folder);
    Ok(needed)
}

/// Gives a file that is on disk the further name `path`, which must not be there.
///
/// # Errors
/// What the file system refuses: a name on another file system, one that is there, links where it has none.
pub fn link(file: &Path, path: &Path) -> io::Result<()> {
    fs::hard_link(file, path)?;
    sync_folder(folder_of(path));
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// New names must survive a crash; folders that cannot be synced are no failure of the write.
fn sync_folder(folder: &Path) {
    if let Ok(handle) = File::open(folder) {
        let _ = handle.sync_all();
    }
}

fn create(folder: &Path, name: OsString) -> io::Result<(Temporary, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut hidden = OsString::from(".");
        hidden.push(&name);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        hidden.push(format!(".{}-{number}.partial", std::process::id()));
        let path = folder.join(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((Temporary { path, keep: false }, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
