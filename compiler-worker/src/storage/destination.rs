//! Where results go: a local folder or a folder of an object store.

use std::path::{Path, PathBuf};

use hone_artifact::exit_code::Reason;
use hone_artifact::write_atomically;

use super::object::{Place, Put, conflict};
use super::{Access, local};
use crate::failure::{Failure, Result};

/// An opened folder.
#[derive(Debug)]
pub enum Destination {
    /// On this machine.
    Folder(PathBuf),
    /// In a store: its URI, and the opened folder.
    Store(String, Place),
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

    /// Writes what is named after its content: where the same bytes are there already they are not written again.
    ///
    /// # Errors
    /// `ArtifactConflict` where other bytes are there; what the place refuses. Nothing is half-written then.
    pub fn create(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                match local::read(&path, u64::MAX) {
                    Ok(found) if found == bytes => return Ok(Put::Existed),
                    Ok(_) => return Err(conflict(&path.display().to_string())),
                    Err(_) => {}
                }
                write_atomically(&path, std::iter::once(bytes))?;
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
                write_atomically(&folder.join(name), std::iter::once(bytes))?;
                Ok(())
            }
            Self::Store(_, place) => place.overwrite(name, bytes.to_vec()),
        }
    }

    /// Deletes one object by its URI; one that is gone already counts as deleted.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn delete(uri: &str, credentials: Option<&str>, access: &Access) -> Result<()> {
        if !uri.starts_with("file://") {
            return Place::open(uri, credentials.map(Path::new), &access.guard)?.delete();
        }
        let path = match access.places.existing(uri) {
            Ok(path) => path,
            Err(failure) if failure.reason == Reason::NotFound => return Ok(()),
            Err(failure) => return Err(failure),
        };
        std::fs::remove_file(&path)
            .map_err(|error| Failure::io(format!("'{uri}' cannot be deleted"), error))
    }
}
