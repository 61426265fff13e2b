//! `hone`: what a person types, and what a pod runs. See ARCHITECTURE.md and docs/cli.md.

mod cache;
mod commands;
mod compare;
mod compiler;
mod device;
mod failure;
mod measure;
mod npz;
mod random;
mod show;
mod simulate;
mod spec;
mod storage;
mod work;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match commands::Arguments::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error[{}]: {}", failure.reason, failure.chain());
            ExitCode::from(failure.reason.code())
        }
    }
}
