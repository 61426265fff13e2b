//! Writes every file that is generated from the types. What is committed is compared by a test.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::repository;

/// Runs the chore.
///
/// The generator is an example of `hone-crds`, run through cargo, so that the other chores do
/// not wait for the Kubernetes types to build.
pub fn run() -> anyhow::Result<()> {
    let root = repository::root();
    let status = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "hone-crds", "--example", "generate", "--"])
        .arg(root.join("crds"))
        .current_dir(&root)
        .status()
        .context("start cargo to generate the CRDs")?;
    ensure!(status.success(), "generating the CRDs failed: {status}");
    Ok(())
}
