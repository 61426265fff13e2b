//! `hone`: what a person types, and what a pod runs. See ARCHITECTURE.md and docs/cli.md.

use std::process::ExitCode;

use clap::Parser;
use hone_worker::commands::Arguments;

fn main() -> ExitCode {
    match Arguments::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error[{}]: {}", failure.reason, failure.chain());
            ExitCode::from(failure.reason.code())
        }
    }
}
