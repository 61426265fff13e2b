//! `hone`: what a person types, and what a pod runs. See ARCHITECTURE.md and docs/cli.md.

use std::process::ExitCode;

use clap::Parser;
use hone_worker::commands::Arguments;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error[{}]: {}", failure.reason, failure.chain());
            if let Some(corrected) = command.corrected(&failure) {
                eprintln!("or on the command line:\n  {corrected}");
            }
            ExitCode::from(failure.reason.code())
        }
    }
}
