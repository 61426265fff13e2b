//! Faults put into generated code and packed weights, and how many verification catches.

use std::process::Command;

use anyhow::{Result, bail};

use crate::repository;

/// What `cargo xtask mutate` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// What networks, faults and inputs are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many faults.
    #[arg(long, default_value_t = 200)]
    faults: u64,
}

/// Runs the suite; its last line is `N of F faults caught, M of K sound artifacts refused`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "--package", "hone-mutation-tests", "--"])
        .args(["--seed", &arguments.seed.to_string()])
        .args(["--faults", &arguments.faults.to_string()])
        .current_dir(repository::root())
        .status()?;
    if !status.success() {
        bail!("fewer than 99 % of the faults were caught, or a sound artifact was refused");
    }
    Ok(())
}
