//! `hone ui`: hands over to `kubectl-hone`, which has the client of the API server that this program may not have.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use hone_artifact::exit_code::Reason;

use crate::failure::{Failure, Result};

/// The program that serves the page.
const PROGRAM: &str = "kubectl-hone";

/// Arguments of `ui`, handed on as they stand.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// What `kubectl-hone ui` takes; `hone ui --help` lists it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Becomes the other program: beside this one, else in the search path.
///
/// # Errors
/// `NotFound` where there is none.
pub fn run(arguments: &Arguments) -> Result<()> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).arg("ui").args(&arguments.options).exec();
    let message = format!(
        "'{PROGRAM}', which serves the page, cannot be started: make install puts it beside this program"
    );
    Err(Failure::because(Reason::NotFound, message, error))
}
