//! Who owns an artifact that several compilations share: a small object beside it that is changed by compare-and-swap.
//!
//! Artifacts are named by their content, so compilations of equal work, in whatever namespace or cluster, come to name
//! one object. Beside `NAME.hone` stands `NAME.hone.owners`, the JSON of [`Owners`]; for each owner an empty object
//! `.owners/UID/NAME.hone`, its entry, by which everything that an owner has is found; and for the folder `.owners/gone`
//! ([`super::gone`]), the compilations whose clean-up has begun.
//!
//! What holds, whoever is killed at whatever step and begins again (`shared_model` tries it out):
//! 1. *Nothing is deleted that somebody owns.* An artifact is deleted only under a tombstone: owners without any, and a
//!    time until which whoever wrote it may delete. It is written by the compare-and-swap that takes the last owner out.
//!    Until that time nobody else changes the object but by deleting it at the end, not even another that would delete,
//!    and a request to delete is begun only where it is over by then. So while there is an owner no request to delete is
//!    under way. A worker enters its owner before it stores the artifact, and one that comes upon a tombstone waits.
//! 2. *Nothing is left that nobody owns.* A clean-up first adds its uid to those gone, then lists its entries, then gives
//!    each of them up. An owner is entered in this order: its entry; the owners are read; those gone are read, and it is
//!    none of them; the owners are swapped. So where the uid is entered although it has gone, it was not gone when it was
//!    looked for, its entry was older, and the clean-up lists it. It then writes the owners in any case: before
//!    the swap, which fails, since each write has a number of its own and no version ever returns; or after it, and takes
//!    the owner out. For the same reason an owner is never added by creating the object.
//! 3. The same goes for heirs: others name a compilation that has taken the artifact from the result cache and has not
//!    entered itself yet. However late that message is carried out, whoever has gone inherits nothing.
//! 4. A worker looks once more, after it stored the artifact, whether its compilation has gone meanwhile, and gives it up
//!    then. Only a worker that was taken for dead while it ran, and is killed between the two, leaves an artifact.
//!
//! What may stay of a worker or clean-up that was killed are small objects that tell nothing: owners that name nobody, and
//! an entry of one that has gone.

use hone_artifact::exit_code::Reason;
use serde::{Deserialize, Serialize};

use super::gone;
use super::objects::{Objects, REMOVING};
use crate::failure::{Failure, Result};

/// The owners of one artifact. Objects of earlier versions are read as well: they have no `revision`, and a list `gaveUp`
/// for which those gone stand now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owners {
    /// Uids of compilations.
    owners: Vec<String>,
    /// Another one in each write, so that equal bytes mean that nothing was changed meanwhile.
    #[serde(default)]
    revision: u64,
    /// In a tombstone, which has no owners: the seconds since 1970 until which whoever wrote it deletes the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleting_until: Option<u64>,
}

/// What became of an artifact that an owner gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It was the last owner, and the artifact is deleted.
    Deleted,
    /// Others own it.
    Kept,
}

/// How long the last owner may take to delete, in seconds: two requests, of which the first is over soon.
const DELETING: u64 = REMOVING + 20;
/// Tries against others who change the same object.
pub(super) const TRIES: usize = 50;
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

fn crowded(name: &str) -> Failure {
    let message = format!("the owners of '{name}' are changed by others all the time");
    Failure::new(Reason::StorageFault, message)
}

fn has_gone(uid: &str) -> Failure {
    let message = format!("compilation {uid} is deleted and has given up what it stored");
    Failure::new(Reason::Terminated, message)
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
    // Strings and numbers always have a form in JSON.
    serde_json::to_vec(owners).unwrap_or_default()
}

/// The owners of `artifact` once nobody deletes it but who wrote one of the revisions in `own`. Where there is no object
/// one without owners is made, so that whoever comes to change it knows a version.
fn settled<P: Objects>(place: &P, artifact: &str, own: &[u64]) -> Result<(Owners, P::Version)> {
    let name = owners_name(artifact);
    loop {
        let Some((bytes, version)) = place.versioned(&name)? else {
            let none = Owners { revision: place.fresh(), ..Owners::default() };
            place.swap(&name, &text(&none), None)?;
            continue;
        };
        let owners = read(artifact, &bytes)?;
        let deletes = owners.deleting_until.is_some_and(|until| place.seconds() <= until);
        if !deletes || own.contains(&owners.revision) {
            return Ok((owners, version));
        }
        place.pause()?;
    }
}

/// Enters `uid` as an owner of `artifact`, before that is stored.
///
/// # Errors
/// What the place refuses; `Terminated` where the compilation has gone.
pub fn enter<P: Objects>(place: &P, artifact: &str, uid: &str) -> Result<()> {
    place.overwrite(&entry(uid, artifact), b"")?;
    for _ in 0..TRIES {
        let (mut owners, version) = settled(place, artifact, &[])?;
        if gone::uids(place)?.iter().any(|other| other == uid) {
            give_up(place, artifact, uid, &[])?;
            return Err(has_gone(uid));
        }
        if owners.owners.iter().any(|owner| owner == uid) {
            return Ok(());
        }
        owners.owners.push(uid.to_owned());
        owners.deleting_until = None;
        owners.revision = place.fresh();
        if place.swap(&owners_name(artifact), &text(&owners), Some(version))? {
            return Ok(());
        }
    }
    Err(crowded(artifact))
}

/// Looks, after `artifact` was stored, whether `uid` has gone since it was entered; it is given up then.
///
/// # Errors
/// What the place refuses; `Terminated` where the compilation has gone.
pub fn confirm<P: Objects>(place: &P, artifact: &str, uid: &str) -> Result<()> {
    if !gone::uids(place)?.iter().any(|other| other == uid) {
        return Ok(());
    }
    give_up(place, artifact, uid, &[])?;
    Err(has_gone(uid))
}

/// Enters `uid` as an owner of an artifact of `size` bytes that is there. Where it is not, nothing is changed; where it
/// goes at that very moment `uid` stays an owner, since its next worker stores it.
///
/// # Errors
/// `NotFound` where no such artifact is there; what the place refuses.
pub fn adopt<P: Objects>(place: &P, artifact: &str, size: u64, uid: &str) -> Result<()> {
    let look = || match place.size(artifact)? {
        Some(found) if found == size => Ok(()),
        Some(found) => {
            let message = format!("'{artifact}' has {found} bytes in place of {size}");
            Err(Failure::new(Reason::NotFound, message))
        }
        None => Err(Failure::new(Reason::NotFound, format!("'{artifact}' is not there any more"))),
    };
    look()?;
    enter(place, artifact, uid)?;
    // Its last owner may have deleted it meanwhile; from now on nobody does.
    look()
}

/// Begins the clean-up of `uid`, which becomes an owner of nothing in this folder from now on: the names of all artifacts
/// that it owns there, and of some that it was about to own.
///
/// # Errors
/// What the place refuses.
pub fn depart<P: Objects>(place: &P, uid: &str) -> Result<Vec<String>> {
    gone::add(place, uid)?;
    place.list(&index(uid))
}

/// Takes `uid` out of the owners of `artifact`, enters those of `heirs` that have not gone themselves, and deletes the
/// artifact where nobody is left.
///
/// # Errors
/// What the place refuses.
pub fn give_up<P: Objects>(
    place: &P,
    artifact: &str,
    uid: &str,
    heirs: &[String],
) -> Result<GivenUp> {
    let name = owners_name(artifact);
    let (mut own, mut entered) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let (mut owners, version) = settled(place, artifact, &own)?;
        owners.owners.retain(|owner| owner != uid);
        let gone = inherit(place, artifact, &mut owners, heirs, &mut entered)?;
        let until = place.seconds() + DELETING;
        owners.deleting_until = owners.owners.is_empty().then_some(until);
        owners.revision = place.fresh();
        own.push(owners.revision);
        if !place.swap(&name, &text(&owners), Some(version))? {
            continue;
        }
        for heir in gone {
            place.remove(&entry(heir, artifact))?;
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

/// Adds those of `heirs` that have not gone, where the artifact is still there, and to `entered` those that have an entry by
/// that; returns those of them that have gone. Their entries are removed once the owners are swapped, and no sooner: until
/// then a worker of theirs may still become an owner by one.
fn inherit<'a, P: Objects>(
    place: &P,
    artifact: &str,
    owners: &mut Owners,
    heirs: &'a [String],
    entered: &mut Vec<&'a String>,
) -> Result<Vec<&'a String>> {
    let new = heirs.iter().filter(|heir| !owners.owners.contains(heir));
    let new: Vec<&String> = new.collect();
    if new.is_empty() {
        return Ok(new);
    }
    // Who owns what is gone entered itself, and is about to store it.
    let is_there = place.size(artifact)?.is_some();
    for heir in new.iter().filter(|_| is_there) {
        // What an heir names in its status may be another artifact by the time when it is deleted.
        place.overwrite(&entry(heir, artifact), b"")?;
        entered.push(heir);
    }
    if entered.is_empty() {
        return Ok(Vec::new());
    }
    let gone = gone::uids(place)?;
    let (gone, new): (Vec<_>, Vec<_>) = new.into_iter().partition(|heir| gone.contains(heir));
    owners.owners.extend(new.into_iter().filter(|_| is_there).cloned());
    Ok(gone.into_iter().filter(|heir| entered.contains(heir)).collect())
}

/// Deletes an artifact and its tombstone, while that holds.
fn remove<P: Objects>(place: &P, artifact: &str, until: u64) -> Result<()> {
    let done = place.remove_before(artifact, until)?
        && place.remove_once_before(&owners_name(artifact), until)?;
    if !done {
        let message = format!("'{artifact}' could not be deleted in time: it is tried again");
        return Err(Failure::new(Reason::StorageFault, message));
    }
    Ok(())
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "shared_model/mod.rs"]
mod model;
