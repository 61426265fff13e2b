//! `file://`: relative paths stay inside a folder, absolute ones inside the roots, where there are any.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hone_artifact::exit_code::Reason;
use hone_runtime::MappedFile;

use super::{Fetched, Incoming};
use crate::failure::{Failure, Result};

/// Where local files may lie.
#[derive(Clone, Debug)]
pub struct Places {
    /// What relative paths start at, and stay inside of.
    pub folder: PathBuf,
    /// What absolute paths stay inside of; `None` where a person at this machine chose them.
    pub roots: Option<Vec<PathBuf>>,
}

impl Places {
    /// Relative paths from `folder`, absolute ones anywhere.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), roots: None }
    }

    /// The file of a `file://` URI, links resolved.
    ///
    /// # Errors
    /// `NotFound`; `SourceForbidden` for what lies outside.
    pub fn existing(&self, uri: &str) -> Result<PathBuf> {
        let (path, inside) = self.path(uri);
        let real = path.canonicalize().map_err(|error| {
            Failure::io(format!("file '{}' cannot be opened", path.display()), error)
        })?;
        self.confine(uri, &real, inside)?;
        Ok(real)
    }

    /// The folder of a `file://` URI, made where it is missing.
    ///
    /// # Errors
    /// As for [`Places::existing`], and what the file system refuses.
    pub fn folder(&self, uri: &str) -> Result<PathBuf> {
        let (path, inside) = self.path(uri);
        // What exists of the path decides where it leads; the rest may not climb.
        let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
        let mut there = path.as_path();
        while !there.exists() {
            there = there.parent().unwrap_or(Path::new("."));
        }
        let real = there.canonicalize();
        let real = real.map_err(|error| Failure::io(format!("'{uri}' cannot be opened"), error))?;
        if climbs && inside.is_some() {
            return Err(outside(uri, "it climbs with '..'"));
        }
        self.confine(uri, &real, inside)?;
        let made = std::fs::create_dir_all(&path);
        made.map_err(|error| {
            Failure::io(format!("folder '{}' of '{uri}' cannot be made", path.display()), error)
        })?;
        Ok(path)
    }

    /// The path of a URI, and the folder that it must stay in, if only one.
    fn path(&self, uri: &str) -> (PathBuf, Option<&Path>) {
        let text = uri.strip_prefix("file://").unwrap_or(uri);
        match text.starts_with('/') {
            true => (PathBuf::from(text), None),
            false => (self.folder.join(text), Some(&self.folder)),
        }
    }

    fn confine(&self, uri: &str, real: &Path, inside: Option<&Path>) -> Result<()> {
        let roots: Vec<&Path> = match (inside, &self.roots) {
            (Some(folder), _) => vec![folder],
            (None, Some(roots)) => roots.iter().map(PathBuf::as_path).collect(),
            (None, None) => return Ok(()),
        };
        let held = |root: &&Path| root.canonicalize().is_ok_and(|root| real.starts_with(root));
        if roots.iter().any(held) {
            return Ok(());
        }
        let shown: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        Err(outside(uri, &format!("it leads outside of '{}'", shown.join("', '"))))
    }
}

fn outside(uri: &str, why: &str) -> Failure {
    let message = format!("'{uri}' is refused: {why}; put the file inside, or name it absolutely");
    Failure::new(Reason::SourceForbidden, message)
}

/// All bytes of a regular file of at most `limit` bytes.
///
/// # Errors
/// `NotFound` and the like; `TooLarge`; `InvalidInput` for what is no regular file.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let cannot = |error| cannot_be_read(path, error);
    let (file, length) = open(path)?;
    if length > limit {
        return Err(too_large(&path.display().to_string(), length, limit));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(cannot)?;
    match bytes.len() as u64 > limit {
        true => Err(too_large(&path.display().to_string(), bytes.len() as u64, limit)),
        false => Ok(bytes),
    }
}

/// Bytes that are read at once into what takes them as they come.
const PART: usize = 1 << 20;

/// All bytes of a regular file, taken part by part.
///
/// # Errors
/// As for [`read`].
pub fn read_into(path: &Path, incoming: &mut Incoming<'_>) -> Result<()> {
    let (mut file, length) = open(path)?;
    incoming.expect(length)?;
    loop {
        let mut part = vec![0; PART.min(length as usize).max(1)];
        match file.read(&mut part).map_err(|error| cannot_be_read(path, error))? {
            0 => return Ok(()),
            count => {
                part.truncate(count);
                incoming.add(&part.into())?;
            }
        }
    }
}

/// A regular file as what is fetched: where it is large, a copy in a file without a name in `folder`.
///
/// # Errors
/// As for [`read`], without a limit.
pub fn fetch(path: &Path, folder: &Path) -> Result<Fetched> {
    let shown = path.display().to_string();
    let mut incoming = Incoming::new(&shown, u64::MAX, folder);
    read_into(path, &mut incoming)?;
    incoming.finish()
}

/// A regular file that is written whole and renamed into place, as artifacts are; its pages come in as they are read.
///
/// # Errors
/// As for [`read`].
pub fn map(path: &Path) -> Result<MappedFile> {
    open(path)?;
    MappedFile::open(path).map_err(|error| cannot_be_read(path, error))
}

/// Whether a regular file holds these bytes and no others; it is not in memory as a whole.
///
/// # Errors
/// As for [`read`].
pub fn holds(path: &Path, bytes: &[u8]) -> Result<bool> {
    let (mut file, length) = open(path)?;
    if length != bytes.len() as u64 {
        return Ok(false);
    }
    let mut part = vec![0; COMPARED.min(bytes.len())];
    for wanted in bytes.chunks(COMPARED) {
        let part = &mut part[..wanted.len()];
        file.read_exact(part).map_err(|error| cannot_be_read(path, error))?;
        if part != wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes that are compared at once.
const COMPARED: usize = 1 << 20;

/// A regular file, and its length in bytes.
fn open(path: &Path) -> Result<(File, u64)> {
    let cannot = |error| cannot_be_read(path, error);
    // Opening a pipe would wait for ever, so the kind is looked at first.
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    if !metadata.is_file() {
        let message = format!("'{}' is not a regular file: name the file itself", path.display());
        return Err(Failure::new(Reason::InvalidInput, message));
    }
    Ok((File::open(path).map_err(cannot)?, metadata.len()))
}

fn cannot_be_read(path: &Path, error: std::io::Error) -> Failure {
    Failure::io(format!("file '{}' cannot be read", path.display()), error)
}

/// The refusal of something larger than allowed.
pub fn too_large(name: &str, found: u64, limit: u64) -> Failure {
    let message = format!(
        "'{name}' has {found} bytes or more, the limit is {limit}: raise it with --max-bytes if it is trusted"
    );
    Failure::new(Reason::TooLarge, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_compared_part_by_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..2 * COMPARED + 3).map(|place| (place % 253) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert!(holds(&path, &bytes).unwrap());
        let mut other = bytes.clone();
        other[2 * COMPARED + 2] ^= 1;
        assert!(!holds(&path, &other).unwrap());
        assert!(!holds(&path, &bytes[1..]).unwrap());
        std::fs::write(&path, b"").unwrap();
        assert!(holds(&path, b"").unwrap());
        assert_eq!(holds(folder.path(), b"").unwrap_err().reason, Reason::InvalidInput);
        let missing = folder.path().join("none");
        assert_eq!(holds(&missing, b"").unwrap_err().reason, Reason::NotFound);
    }

    #[test]
    fn relative_paths_stay_inside_links_included() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("in");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(outer.path().join("secret"), b"x").unwrap();
        std::fs::write(folder.join("model"), b"x").unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), folder.join("link")).unwrap();
        let places = Places::at(&folder);
        assert!(places.existing("file://./model").is_ok());
        assert!(places.existing("file://model").is_ok());
        for uri in ["file://../secret", "file://./link", "file://./../in/../secret"] {
            assert_eq!(places.existing(uri).unwrap_err().reason, Reason::SourceForbidden, "{uri}");
        }
        assert_eq!(places.existing("file://nothing").unwrap_err().reason, Reason::NotFound);
        let absolute = format!("file://{}/secret", outer.path().display());
        assert!(places.existing(&absolute).is_ok());
        let rooted = Places { roots: Some(vec![folder.clone()]), ..Places::at(&folder) };
        assert_eq!(rooted.existing(&absolute).unwrap_err().reason, Reason::SourceForbidden);
        assert_eq!(places.folder("file://./../out").unwrap_err().reason, Reason::SourceForbidden);
        assert!(places.folder("file://./a/b").unwrap().is_dir());
    }
}
