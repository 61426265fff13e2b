//! Builds the programs as they ship: the operator, the page and plugin, and `hone` with LLVM linked into it. What the
//! images hold.

use std::process::Command;

use anyhow::Result;

use crate::python::check;
use crate::repository;

/// Runs the chore. The page is built with the operator, whose code it shares; `hone` by itself, as it would get their
/// features. The images' build does the same.
pub fn run() -> Result<()> {
    let control: &[&str] = &["hone-operator", "--package", "hone-console"];
    let worker: &[&str] = &["hone-worker", "--no-default-features", "--features", "static-llvm"];
    for package in [control, worker] {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--release", "--package"]).args(package);
        command.current_dir(repository::root());
        check(&format!("build {}", package[0]), &mut command)?;
    }
    Ok(())
}
