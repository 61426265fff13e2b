//! Writes every file that is generated from the types. What is committed is compared by tests:
//! `crds/tests/generated.rs` and `tests/cluster/harness/tests/chart.rs`.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::repository;

mod manifests;

/// Runs the chore: CRDs and the reference of the API from the types, the chart's CRDs from these, manifests from the chart.
///
/// The generator is an example of `hone-crds`, run through cargo, so that the other chores do
/// not wait for the Kubernetes types to build.
pub fn run() -> anyhow::Result<()> {
    let root = repository::root();
    let status = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "hone-crds", "--example", "generate", "--"])
        .arg(root.join("crds"))
        .arg(root.join("docs/kubernetes/reference.md"))
        .current_dir(&root)
        .status()
        .context("start cargo to generate the CRDs")?;
    ensure!(status.success(), "generating the CRDs failed: {status}");
    manifests::copy_crds(&root)?;
    manifests::render(&root)
}
