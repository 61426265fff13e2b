//! This machine: the facts that its fingerprint is made of, and what it was measured to reach.

mod accelerators;
mod facts;
mod peaks;

pub use accelerators::{DeviceFacts, device_peaks};
pub use facts::{Facts, arch};
pub use peaks::{Peaks, Roofline, peaks, peaks_of};

use hone_artifact::Accelerator;

use crate::storage::sha256;

/// `sha256:` of the stable facts of a machine: equal for machines on which measurements are comparable.
pub fn fingerprint(facts: &Facts) -> String {
    // Plain data always has a JSON form.
    sha256(serde_json::to_string(facts).unwrap_or_default().as_bytes())
}

/// The same of what runs code for a target: this machine, and the device that is used where the target has an
/// accelerator.
pub fn fingerprint_of(target: &hone_artifact::Target) -> String {
    let facts = Facts::here();
    let chosen = |own: Accelerator| hone_runtime::accelerator::chosen_device(own.api()).ok();
    let device = target.accelerator.and_then(chosen);
    match device {
        Some(info) => accelerators::fingerprint_with(&facts, &info),
        None => fingerprint(&facts),
    }
}
