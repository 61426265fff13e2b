//! Builds the programs as they ship: the operator, the page and plugin, and `hone` with LLVM linked into it. What the
//! images hold.

use std::process::Command;

use anyhow::Result;

use crate::python::check;
use crate::repository;

/// Runs the chore. A call each, because built together each would get the others' features.
pub fn run() -> Result<()> {
    let worker: &[&str] = &["hone-worker", "--no-default-features", "--features", "static-llvm"];
    for package in [&["hone-operator"][..], &["hone-console"], worker] {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--release", "--package"]).args(package);
        command.current_dir(repository::root());
        check(&format!("build {}", package[0]), &mut command)?;
    }
    Ok(())
}
