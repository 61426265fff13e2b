//! What the protocol of owners needs of a folder in a store, and of the clock.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Destination;
use super::destination::Version;
use crate::failure::Result;

/// Objects in a folder that several processes change. Each method but the last three is one request, and what it changed
/// is seen by every request that begins after its answer.
pub trait Objects {
    /// What an object held when it was read.
    type Version;

    /// The bytes of `name` and their version, for [`Objects::swap`]; nothing where there is no such object.
    ///
    /// # Errors
    /// What the place refuses.
    fn versioned(&self, name: &str) -> Result<Option<(Vec<u8>, Self::Version)>>;

    /// Writes `name` where it still has `version`, or where there is none and `version` is `None`; whether it did. Where
    /// the answer of a write was lost this may be false although it did.
    ///
    /// # Errors
    /// What the place refuses.
    fn swap(&self, name: &str, bytes: &[u8], version: Option<Self::Version>) -> Result<bool>;

    /// Writes over what is there.
    ///
    /// # Errors
    /// What the place refuses.
    fn overwrite(&self, name: &str, bytes: &[u8]) -> Result<()>;

    /// The size of `name` in bytes; nothing where there is no such object.
    ///
    /// # Errors
    /// What the place refuses.
    fn size(&self, name: &str) -> Result<Option<u64>>;

    /// Deletes `name`; what is gone already counts as deleted.
    ///
    /// # Errors
    /// What the place refuses.
    fn remove(&self, name: &str) -> Result<()>;

    /// As [`Objects::remove`], where it is sure to be over by `until` in seconds since 1970; whether it began.
    ///
    /// # Errors
    /// What the place refuses.
    fn remove_before(&self, name: &str, until: u64) -> Result<bool>;

    /// As [`Objects::remove_before`], in a single request: one that is begun again because its answer was lost could delete
    /// what somebody wrote after the first.
    ///
    /// # Errors
    /// What the place refuses.
    fn remove_once_before(&self, name: &str, until: u64) -> Result<bool>;

    /// The names of the objects in `folder`, a folder of this one; none where there is no such folder.
    ///
    /// # Errors
    /// What the place refuses.
    fn list(&self, folder: &str) -> Result<Vec<String>>;

    /// Waits a moment for others.
    ///
    /// # Errors
    /// None where the place is real: a model of it may end the wait.
    fn pause(&self) -> Result<()>;

    /// The seconds since 1970.
    fn seconds(&self) -> u64;

    /// A number that nobody had before.
    fn fresh(&self) -> u64;
}

/// Seconds in which a request to delete is over, with clocks that differ by a few: a store answers within seconds, or its
/// silence ends the request (`https.rs`); one that is begun again goes on for a minute (`object.rs`).
pub(super) const REMOVING: u64 = 110;
const REMOVING_ONCE: u64 = 45;
/// Time between two looks at what others do.
const PAUSE: Duration = Duration::from_millis(500);

impl Objects for Destination {
    type Version = Version;

    fn versioned(&self, name: &str) -> Result<Option<(Vec<u8>, Version)>> {
        Self::versioned(self, name)
    }

    fn swap(&self, name: &str, bytes: &[u8], version: Option<Version>) -> Result<bool> {
        Self::swap(self, name, bytes, version)
    }

    fn overwrite(&self, name: &str, bytes: &[u8]) -> Result<()> {
        Self::overwrite(self, name, bytes)
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        Self::size(self, name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Self::remove(self, name)
    }

    fn remove_before(&self, name: &str, until: u64) -> Result<bool> {
        let begins = self.seconds() + REMOVING <= until;
        if begins {
            Self::remove(self, name)?;
        }
        Ok(begins)
    }

    fn remove_once_before(&self, name: &str, until: u64) -> Result<bool> {
        let begins = self.seconds() + REMOVING_ONCE <= until;
        if begins {
            Self::remove_once(self, name)?;
        }
        Ok(begins)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        Self::list(self, folder)
    }

    fn pause(&self) -> Result<()> {
        std::thread::sleep(PAUSE);
        Ok(())
    }

    fn seconds(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    fn fresh(&self) -> u64 {
        // The standard library seeds each process's hashers at random, and each hasher of a process anew.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.write_u64(self.seconds());
        hasher.finish()
    }
}
