//! `hone measure`: the process in which `hone tune` builds and times candidates; not for people.

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_driver::Target;
use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::tune::{Board, DEVICE_VARIABLE, serve};

/// What `hone measure` takes: everything comes through its environment and standard input.
#[derive(Args, Debug)]
pub struct Arguments {}

#[derive(Deserialize)]
struct Device {
    triple: String,
    cpu: String,
    features: Vec<String>,
    threads: usize,
    board: Option<Board>,
}

/// Answers until standard input ends.
///
/// # Errors
/// A missing or malformed variable; a target that the compiler does not know.
pub fn run(_: &Arguments) -> Result<()> {
    let text = std::env::var(DEVICE_VARIABLE).unwrap_or_default();
    let device: Device = serde_json::from_str(&text).map_err(|error| {
        let message =
            format!("'hone measure' is started by 'hone tune', which sets {DEVICE_VARIABLE}");
        Failure::because(Reason::Usage, message, error)
    })?;
    let target = Target::new(&device.triple, &device.cpu, device.features).map_err(|error| {
        Failure::because(Reason::TargetMismatch, "the target cannot be compiled for", error)
    })?;
    serve(&target, device.threads, device.board.as_ref())
}
