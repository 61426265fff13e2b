//! Who owns an artifact that several compilations share: a small object beside it that is changed by compare-and-swap.
//!
//! Artifacts are named by their content, so compilations of equal work, in whatever namespace or cluster, come to name
//! one object. Beside `NAME.hone` stands `NAME.hone.owners`, the JSON of [`Owners`], and for each owner an empty object
//! `.owners/UID/NAME.hone`, by which everything that an owner has is found.
//!
//! Invariants:
//! 1. A worker enters its owner before it stores the artifact, so whoever deletes sees it.
//! 2. Only who takes the last owner out deletes: the same compare-and-swap leaves a tombstone with the time until which
//!    it may delete. It looks at its clock before it does.
//! 3. Who meets a tombstone waits until the object is gone or that time is over, and then enters its owner afresh and
//!    stores the artifact again.
//! 4. Who becomes an owner, by storing or as an heir, has its entry before.
//! 5. Whoever gave the artifact up inherits it from nobody, in whatever order the clean-ups of several compilations run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hone_artifact::exit_code::Reason;
use serde::{Deserialize, Serialize};

use super::Destination;
use crate::failure::{Failure, Result};

/// The owners of one artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owners {
    /// Uids of compilations.
    owners: Vec<String>,
    /// Uids of those that gave it up, the last of them last: who named them as heirs before may not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gave_up: Vec<String>,
    /// Where there is none: the seconds since 1970 until which somebody deletes the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleting_until: Option<u64>,
}

impl Owners {
    /// Takes `uid` out, and enters heirs that have not given the artifact up; returns those that did not own it before.
    fn hand_over<'a>(&mut self, uid: &str, heirs: &'a [String]) -> Vec<&'a String> {
        self.owners.retain(|owner| owner != uid);
        if !self.gave_up.iter().any(|other| other == uid) {
            self.gave_up.push(uid.to_owned());
        }
        let forgotten = self.gave_up.len().saturating_sub(REMEMBERED);
        self.gave_up.drain(..forgotten);
        let mut new = Vec::new();
        for heir in heirs {
            if !self.owners.contains(heir) && !self.gave_up.contains(heir) {
                self.owners.push(heir.clone());
                new.push(heir);
            }
        }
        new
    }
}

/// What became of an artifact that an owner gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It was the last owner, and the artifact is deleted.
    Deleted,
    /// Others own it.
    Kept,
}

/// How long the last owner may take to delete, in seconds.
const DELETING: u64 = 60;
/// Time between two looks at a tombstone.
const PAUSE: Duration = Duration::from_millis(500);
/// Tries against others who change the same object.
const TRIES: usize = 50;
/// Most compilations that are remembered for having given an artifact up. A clean-up names its heirs when it begins, and
/// this many others would have to come to their end before it does.
const REMEMBERED: usize = 64;
/// Largest object of owners.
pub(super) const LARGEST: u64 = 1 << 20;

fn owners_name(artifact: &str) -> String {
    format!("{artifact}.owners")
}

fn index(uid: &str) -> String {
    format!(".owners/{uid}")
}

/// The object by which an owner's clean-up finds an artifact.
fn entry(uid: &str, artifact: &str) -> String {
    format!("{}/{artifact}", index(uid))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn crowded(name: &str) -> Failure {
    let message = format!("the owners of '{name}' are changed by others all the time");
    Failure::new(Reason::StorageFault, message)
}

fn read(name: &str, bytes: &[u8]) -> Result<Owners> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!(
            "'{}' cannot be read: delete it if nobody needs the artifact beside it",
            owners_name(name)
        );
        Failure::because(Reason::ArtifactConflict, message, error)
    })
}

fn text(owners: &Owners) -> Vec<u8> {
    // Strings and a number always have a form in JSON.
    serde_json::to_vec(owners).unwrap_or_default()
}

/// Enters `uid` as an owner of `artifact`, before that is stored.
///
/// # Errors
/// What the place refuses.
pub fn enter(place: &Destination, artifact: &str, uid: &str) -> Result<()> {
    place.overwrite(&entry(uid, artifact), b"")?;
    let name = owners_name(artifact);
    for _ in 0..TRIES {
        let (mut owners, version) = match place.versioned(&name)? {
            Some((bytes, version)) => (read(artifact, &bytes)?, Some(version)),
            None => (Owners::default(), None),
        };
        if owners.deleting_until.is_some_and(|until| seconds() <= until) {
            std::thread::sleep(PAUSE);
            // A tombstone is waited for as long as it holds, not for so many tries.
            while let Some((bytes, _)) = place.versioned(&name)? {
                let until = read(artifact, &bytes)?.deleting_until;
                if until.is_none_or(|until| seconds() > until) {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
            continue;
        }
        if owners.owners.iter().any(|owner| owner == uid) {
            return Ok(());
        }
        owners.deleting_until = None;
        owners.gave_up.retain(|other| other != uid);
        owners.owners.push(uid.to_owned());
        if place.swap(&name, &text(&owners), version)? {
            return Ok(());
        }
    }
    Err(crowded(artifact))
}

/// Takes `uid` out of the owners of `artifact`, enters those of `heirs` that have not given it up themselves, and deletes
/// the artifact where nobody is left.
///
/// # Errors
/// What the place refuses.
pub fn give_up(
    place: &Destination,
    artifact: &str,
    uid: &str,
    heirs: &[String],
) -> Result<GivenUp> {
    let name = owners_name(artifact);
    for _ in 0..TRIES {
        let (mut owners, version) = match place.versioned(&name)? {
            Some((bytes, version)) => (read(artifact, &bytes)?, Some(version)),
            // Stored before there were owners, or gone already.
            None => (Owners::default(), None),
        };
        // What is gone already has no heirs. Owners stay: they are entered before they store it.
        let is_there = heirs.is_empty() || place.size(artifact)?.is_some();
        for heir in owners.hand_over(uid, if is_there { heirs } else { &[] }) {
            // What an heir names in its status may be another artifact by the time when it is deleted.
            place.overwrite(&entry(heir, artifact), b"")?;
        }
        for gone in heirs.iter().filter(|heir| owners.gave_up.contains(heir)) {
            // It came to its end after an earlier try had made its entry.
            place.remove(&entry(gone, artifact))?;
        }
        // Where a tombstone stands already, such as of a try that was killed, deleting goes on under a new one.
        let until = seconds() + DELETING;
        owners.deleting_until = owners.owners.is_empty().then_some(until);
        if !place.swap(&name, &text(&owners), version)? {
            continue;
        }
        let done = match owners.owners.is_empty() {
            true => {
                remove(place, artifact, until)?;
                GivenUp::Deleted
            }
            false => GivenUp::Kept,
        };
        place.remove(&entry(uid, artifact))?;
        return Ok(done);
    }
    Err(crowded(artifact))
}

/// Deletes an artifact and its tombstone, while that holds.
fn remove(place: &Destination, artifact: &str, until: u64) -> Result<()> {
    for name in [artifact.to_owned(), owners_name(artifact)] {
        if seconds() + DELETING / 2 > until {
            let message = format!("'{artifact}' could not be deleted in time: it is tried again");
            return Err(Failure::new(Reason::StorageFault, message));
        }
        place.remove(&name)?;
    }
    Ok(())
}

/// The names of all artifacts that `uid` owns in this folder.
///
/// # Errors
/// What the place refuses.
pub fn owned(place: &Destination, uid: &str) -> Result<Vec<String>> {
    place.list(&index(uid))
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
