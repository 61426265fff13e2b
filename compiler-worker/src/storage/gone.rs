//! Which compilations have gone from a folder for good: the object `.owners/gone`, changed by compare-and-swap.
//!
//! A uid is entered when its clean-up begins and never becomes an owner in this folder again, whoever asks for it: a
//! worker whose pod was taken for dead, or a clean-up that names its heirs as they were some time ago. Whoever enters an
//! owner reads the object between reading the owners and changing them (`shared.rs` says why that is enough).

use hone_artifact::exit_code::Reason;
use serde::{Deserialize, Serialize};

use super::objects::Objects;
use super::shared::TRIES;
use crate::failure::{Failure, Result};

/// Those that have gone, the last of them last.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Gone {
    gone: Vec<Departed>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Departed {
    uid: String,
    /// Seconds since 1970.
    at: u64,
}

/// The object's name.
pub(super) const NAME: &str = ".owners/gone";
/// Most compilations that are remembered, and for how many seconds. A pod that was taken for dead would have to run on
/// for longer to be forgotten: 60 KB are read by each worker that enters an owner at most.
const REMEMBERED: usize = 1000;
const AGE: u64 = 7 * 24 * 3600;

fn read<P: Objects>(place: &P) -> Result<(Gone, Option<P::Version>)> {
    let Some((bytes, version)) = place.versioned(NAME)? else {
        return Ok((Gone::default(), None));
    };
    let gone = serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("'{NAME}' cannot be read: delete it");
        Failure::because(Reason::ArtifactConflict, message, error)
    })?;
    Ok((gone, Some(version)))
}

/// The uids of those that have gone.
///
/// # Errors
/// What the place refuses.
pub fn uids<P: Objects>(place: &P) -> Result<Vec<String>> {
    let (gone, _) = read(place)?;
    Ok(gone.gone.into_iter().map(|departed| departed.uid).collect())
}

/// Remembers that `uid` has gone.
///
/// # Errors
/// What the place refuses.
pub fn add<P: Objects>(place: &P, uid: &str) -> Result<()> {
    for _ in 0..TRIES {
        let (mut gone, version) = read(place)?;
        if gone.gone.iter().any(|departed| departed.uid == uid) {
            return Ok(());
        }
        let now = place.seconds();
        gone.gone.retain(|departed| departed.at.saturating_add(AGE) > now);
        gone.gone.push(Departed { uid: uid.to_owned(), at: now });
        let forgotten = gone.gone.len().saturating_sub(REMEMBERED);
        gone.gone.drain(..forgotten);
        // Strings and numbers always have a form in JSON.
        let text = serde_json::to_vec(&gone).unwrap_or_default();
        if place.swap(NAME, &text, version)? {
            return Ok(());
        }
    }
    let message = format!("'{NAME}' is changed by others all the time");
    Err(Failure::new(Reason::StorageFault, message))
}
