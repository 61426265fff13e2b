//! The subcommands, one a file.

mod accuracy;
mod bench;
mod common;
mod compile;
mod devices;
mod diff;
mod inspect;
mod measure;
mod plan;
mod proposal;
mod records;
mod reduce;
mod run;
mod session;
mod simulate;
mod tune;
mod ui;
mod verify;
mod worker;

use clap::{Parser, Subcommand};

use crate::failure::{Failure, Result};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "hone",
    version,
    about = "Compiles machine-learning models into native code that is measured to be fast and checked to be right.",
    after_help = "Exit codes are listed in docs/cli.md.",
    max_term_width = 100
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `hone` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile a model: fetch, compile, verify against the reference, measure, store.
    Compile(compile::Arguments),
    /// Run a model on arrays from an .npz file.
    Run(run::Arguments),
    /// Measure how long a run takes, as a whole and step by step.
    Bench(bench::Arguments),
    /// Check an artifact: whole, for this machine, and near enough to the reference.
    Verify(verify::Arguments),
    /// Show what is inside an artifact.
    Inspect(inspect::Arguments),
    /// Compare two artifacts: targets, steps, sizes, latency, accuracy.
    Diff(diff::Arguments),
    /// Say what `compile` would do, without doing it.
    Plan(plan::Arguments),
    /// Show this machine: fingerprint, features, caches, and what it was measured to reach.
    Devices(devices::Arguments),
    /// Search for faster schedules of a model by measuring, and keep what was found.
    Tune(tune::Arguments),
    /// Measure candidates of searches that run elsewhere, until told to end.
    Session(session::Arguments),
    /// List, merge, export and import tuning records.
    Records(records::Arguments),
    /// Cut a model that fails down to a small one that fails alike, for a report.
    Reduce(reduce::Arguments),
    /// The process in which `hone tune` measures.
    #[command(hide = true)]
    Measure(measure::Arguments),
    /// Serve a page over a cluster: compilations, tuning runs and pools as they change.
    Ui(ui::Arguments),
    /// Do one piece of work for the operator; what a pod runs.
    Worker(worker::Arguments),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// What the command says; the reason decides the exit code.
    pub fn run(&self) -> Result<()> {
        match self {
            Self::Compile(arguments) => compile::run(arguments),
            Self::Run(arguments) => run::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
            Self::Verify(arguments) => verify::run(arguments),
            Self::Inspect(arguments) => inspect::run(arguments),
            Self::Diff(arguments) => diff::run(arguments),
            Self::Plan(arguments) => plan::run(arguments),
            Self::Devices(arguments) => devices::run(arguments),
            Self::Tune(arguments) => tune::run(arguments),
            Self::Session(arguments) => session::run(arguments),
            Self::Records(arguments) => records::run(arguments),
            Self::Reduce(arguments) => reduce::run(arguments),
            Self::Measure(arguments) => measure::run(arguments),
            Self::Ui(arguments) => ui::run(arguments),
            Self::Worker(arguments) => worker::run(arguments),
        }
    }

    /// This call with shapes for the dimensions that its model leaves open, where that is why it failed.
    pub fn corrected(&self, failure: &Failure) -> Option<String> {
        let takes_shapes = match self {
            Self::Compile(arguments) => arguments.model.is_some(),
            Self::Run(_) | Self::Bench(_) | Self::Tune(_) => true,
            _ => false,
        };
        takes_shapes.then(|| proposal::with_shapes(std::env::args(), failure)).flatten()
    }
}
