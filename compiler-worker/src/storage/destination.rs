//! Where results go: a local folder or a folder of an object store.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hone_artifact::exit_code::Reason;
use hone_artifact::{link, write_atomically};
use object_store::UpdateVersion;

use super::object::{Place, Put, conflict};
use super::{Access, local, shared};
use crate::failure::{Failure, Result};

/// An opened folder.
#[derive(Debug)]
pub enum Destination {
    /// On this machine.
    Folder(PathBuf),
    /// In a store: its URI, and the opened folder.
    Store(String, Place),
}

/// What an object held when it was read.
#[derive(Clone, Debug)]
pub enum Version {
    /// As the store tells.
    Store(UpdateVersion),
    /// The bytes themselves.
    Bytes(Vec<u8>),
}

impl Destination {
    /// Opens the folder that `uri` names; a local one is made where it is missing.
    ///
    /// # Errors
    /// A scheme that cannot be written to; what the place refuses.
    pub fn open(uri: &str, credentials: Option<&str>, access: &Access) -> Result<Self> {
        match uri.split_once("://").map(|(scheme, _)| scheme) {
            Some("file") => Ok(Self::Folder(access.places.folder(uri)?)),
            Some("s3" | "gs" | "az") => {
                let place = Place::open(uri, credentials.map(Path::new), &access.guard)?;
                Ok(Self::Store(uri.trim_end_matches('/').to_owned(), place))
            }
            _ => {
                let message =
                    format!("output '{uri}' cannot be written to: use s3, gs, az or file");
                Err(Failure::new(Reason::InvalidSpec, message))
            }
        }
    }

    /// The URI of `name` in this folder.
    pub fn uri(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => {
                let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                format!("file://{}", folder.join(name).display())
            }
            Self::Store(uri, _) => format!("{uri}/{name}"),
        }
    }

    /// Stores what is named after its content, the `bytes` of the file `source`, which is never changed where it lies: where
    /// the same bytes are there already they are not written again. A folder on the file system of `source` gets another name
    /// of that file and no copy.
    ///
    /// # Errors
    /// `ArtifactConflict` where other bytes are there; what the place refuses. Nothing is half-written then.
    pub fn create(&self, name: &str, source: &Path, bytes: &[u8]) -> Result<Put> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                match local::holds(&path, bytes) {
                    Ok(true) => return Ok(Put::Existed),
                    Ok(false) => return Err(conflict(&path.display().to_string())),
                    Err(_) => {}
                }
                if link(source, &path).is_err() {
                    write_atomically(&path, std::iter::once(bytes))?;
                }
                Ok(Put::Created)
            }
            Self::Store(_, place) => place.create(name, bytes),
        }
    }

    /// Writes over what is there.
    ///
    /// # Errors
    /// As for [`Destination::create`].
    pub fn overwrite(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                if let Some(parent) = path.parent() {
                    let cannot = |error| Failure::io(format!("'{name}' cannot be written"), error);
                    std::fs::create_dir_all(parent).map_err(cannot)?;
                }
                write_atomically(&path, std::iter::once(bytes))?;
                Ok(())
            }
            Self::Store(_, place) => place.overwrite(name, bytes.to_vec()),
        }
    }

    /// Writes `name` unless it is there: nobody who writes it at the same time does so too. Whether it is there with
    /// these bytes now, as after a write whose answer was lost.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn write_once(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let done = match self {
            Self::Folder(folder) => write_new(&folder.join(name), bytes),
            Self::Store(_, place) => place.create(name, bytes).map(|_| ()),
        };
        match done {
            Ok(()) => Ok(true),
            Err(failure) if failure.reason == Reason::ArtifactConflict => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The bytes of `name`, at most `limit`; nothing where there is no such object.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Folder(folder) => match local::read(&folder.join(name), limit) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(failure) if failure.reason == Reason::NotFound => Ok(None),
                Err(failure) => Err(failure),
            },
            Self::Store(_, place) => Ok(place.versioned(name, limit)?.map(|(bytes, _)| bytes)),
        }
    }

    /// The bytes of `name` and their version, for [`Destination::swap`]; nothing where there is no such object.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn versioned(&self, name: &str) -> Result<Option<(Vec<u8>, Version)>> {
        match self {
            Self::Folder(folder) => match local::read(&folder.join(name), shared::LARGEST) {
                Ok(bytes) => Ok(Some((bytes.clone(), Version::Bytes(bytes)))),
                Err(failure) if failure.reason == Reason::NotFound => Ok(None),
                Err(failure) => Err(failure),
            },
            Self::Store(_, place) => {
                let found = place.versioned(name, shared::LARGEST)?;
                Ok(found.map(|(bytes, version)| (bytes, Version::Store(version))))
            }
        }
    }

    /// The size of `name` in bytes; nothing where there is no such object.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        match self {
            Self::Folder(folder) => match std::fs::metadata(folder.join(name)) {
                Ok(found) => Ok(Some(found.len())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Failure::io(format!("'{name}' cannot be looked at"), error)),
            },
            Self::Store(_, place) => place.size(name),
        }
    }

    /// Writes `name` where it still has `version`, or where there is none and `version` is `None`; whether it did.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn swap(&self, name: &str, bytes: &[u8], version: Option<Version>) -> Result<bool> {
        match (self, version) {
            (Self::Folder(folder), version) => {
                let cannot = |error| Failure::io(format!("'{name}' cannot be locked"), error);
                let path = folder.join(".owners");
                std::fs::create_dir_all(&path).map_err(cannot)?;
                let lock = std::fs::File::create(path.join("lock")).map_err(cannot)?;
                lock.lock().map_err(cannot)?;
                let found = self.versioned(name)?.map(|(bytes, _)| bytes);
                let expected = match version {
                    Some(Version::Bytes(bytes)) => Some(bytes),
                    Some(Version::Store(_)) | None => None,
                };
                if found != expected {
                    return Ok(false);
                }
                self.overwrite(name, bytes).map(|()| true)
            }
            (Self::Store(_, place), Some(Version::Store(version))) => {
                place.swap(name, bytes, Some(version))
            }
            (Self::Store(_, place), _) => place.swap(name, bytes, None),
        }
    }

    /// Deletes `name`; what is gone already counts as deleted.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::Folder(folder) => match std::fs::remove_file(folder.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Failure::io(format!("'{name}' cannot be deleted"), error))
                }
                _ => Ok(()),
            },
            Self::Store(_, place) => place.remove(name),
        }
    }

    /// As [`Destination::remove`], in a single request that is not begun again.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn remove_once(&self, name: &str) -> Result<()> {
        match self {
            Self::Folder(_) => self.remove(name),
            Self::Store(_, place) => place.remove_once(name),
        }
    }

    /// The names of the objects in `folder`, a folder of this one; none where there is no such folder.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn list(&self, folder: &str) -> Result<Vec<String>> {
        let names = self
            .entries(folder)?
            .into_iter()
            .filter_map(|entry| entry.path.rsplit('/').next().map(str::to_owned));
        Ok(names.collect())
    }

    /// The objects in `folder` and in its folders, at the cost of one request for a thousand of them; none where there is no
    /// such folder.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn entries(&self, folder: &str) -> Result<Vec<Entry>> {
        match self {
            Self::Folder(root) => {
                let mut found = Vec::new();
                files(&root.join(folder), "", &mut found)
                    .map_err(|error| Failure::io(format!("'{folder}' cannot be listed"), error))?;
                Ok(found)
            }
            Self::Store(_, place) => place.entries(folder),
        }
    }
}

/// An object in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the folder.
    pub path: String,
    /// Another one whenever it is written with other bytes.
    pub version: String,
    /// When it was written, by the clock of the place.
    pub modified: SystemTime,
}

/// Files below a folder; `prefix` is the folder's path below that which is listed. What goes meanwhile is not there.
fn files(folder: &Path, prefix: &str, found: &mut Vec<Entry>) -> std::io::Result<()> {
    let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let entries = match std::fs::read_dir(folder) {
        Err(error) if gone(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.metadata() {
            Err(error) if gone(&error) => {}
            Err(error) => return Err(error),
            Ok(metadata) if metadata.is_dir() => {
                files(&entry.path(), &format!("{path}/"), found)?;
            }
            Ok(metadata) => {
                let (ino, time) = (metadata.ino(), (metadata.mtime(), metadata.mtime_nsec()));
                let version = format!("{ino} {}.{:09}", time.0, time.1);
                // Where a file system has no such time, nothing is old.
                let modified = metadata.modified().unwrap_or_else(|_| SystemTime::now());
                found.push(Entry { path, version, modified });
            }
        }
    }
    Ok(())
}

/// Writes a file that is not there: whole or not at all, and never over another.
fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let cannot = |error| Failure::io(format!("'{}' cannot be written", path.display()), error);
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(cannot)?;
    // Others of the group of the volume read it too, as any other file there.
    let readable = std::fs::Permissions::from_mode(0o644);
    file.as_file().set_permissions(readable).map_err(cannot)?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
            match local::holds(path, bytes)? {
                true => Ok(()),
                false => Err(conflict(&path.display().to_string())),
            }
        }
        Err(error) => Err(cannot(error.error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::storage::{Guard, Places};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_artifact_on_the_same_file_system_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (cached, out) = (folder.path().join("cached"), folder.path().join("out"));
        std::fs::write(&cached, b"code").unwrap();
        let access =
            Access { places: Places::at(folder.path()), guard: Guard::default(), limit: 1 << 20 };
        let place = Destination::open("file://out", None, &access).unwrap();
        assert_eq!(place.create("a.hone", &cached, b"code").unwrap(), Put::Created);
        assert_eq!(place.create("a.hone", &cached, b"code").unwrap(), Put::Existed);
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        assert_eq!(inode(&cached), inode(&out.join("a.hone")));
        // A new entry of the cache is another file: what was stored stays as it is.
        write_atomically(&cached, std::iter::once(&b"other"[..])).unwrap();
        assert_eq!(std::fs::read(out.join("a.hone")).unwrap(), b"code");
        let failure = place.create("a.hone", &cached, b"other").unwrap_err();
        assert_eq!(failure.reason, Reason::ArtifactConflict);
    }
}
