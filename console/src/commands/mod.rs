//! The words of `kubectl hone`, one a file.

mod diff;
mod logs;
mod report;
mod retry;
mod tree;
mod ui;
mod why;

use clap::{Parser, Subcommand};

use crate::ConsoleError;
use crate::cluster::Options;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-hone",
    bin_name = "kubectl hone",
    version,
    about = "Shows what Hone does in a cluster: what a compilation consists of, why it waits or failed, its logs and reports.",
    max_term_width = 100
)]
pub struct Arguments {
    #[command(flatten)]
    cluster: Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show compilations with their targets, Jobs and pods.
    Tree(tree::Arguments),
    /// Say why a compilation waits, runs or failed, who has to act, and what follows.
    Why(why::Arguments),
    /// Print the log of a compilation's worker.
    Logs(logs::Arguments),
    /// Print or download the report that a worker stored.
    Report(report::Arguments),
    /// Have failed targets tried again.
    Retry(retry::Arguments),
    /// Compare two compilations: their specs and what came out.
    Diff(diff::Arguments),
    /// Serve a read-only page: compilations, tuning runs and pools as they change.
    Ui(ui::Arguments),
}

impl Arguments {
    /// Does it.
    ///
    /// # Errors
    /// What the command says.
    pub async fn run(&self) -> Result<(), ConsoleError> {
        let cluster = self.cluster.connect().await?;
        match &self.command {
            Command::Tree(arguments) => tree::run(&cluster, arguments).await,
            Command::Why(arguments) => why::run(&cluster, arguments).await,
            Command::Logs(arguments) => logs::run(&cluster, arguments).await,
            Command::Report(arguments) => report::run(&cluster, arguments).await,
            Command::Retry(arguments) => retry::run(&cluster, arguments).await,
            Command::Diff(arguments) => diff::run(&cluster, arguments).await,
            Command::Ui(arguments) => {
                ui::run(&cluster, self.cluster.namespace.clone(), arguments).await
            }
        }
    }
}
