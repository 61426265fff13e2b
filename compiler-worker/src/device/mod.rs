//! This machine: the facts that its fingerprint is made of, and what it was measured to reach.

mod facts;
mod peaks;

pub use facts::{Facts, arch};
pub use peaks::{Peaks, peaks, peaks_of};

use crate::storage::sha256;

/// `sha256:` of the stable facts of a machine: equal for machines on which measurements are comparable.
pub fn fingerprint(facts: &Facts) -> String {
    // Plain data always has a JSON form.
    sha256(serde_json::to_string(facts).unwrap_or_default().as_bytes())
}
