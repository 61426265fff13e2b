//! `kubectl-hone`, called as `kubectl hone`: arguments, then hand over.

use std::process::ExitCode;

use clap::Parser;
use hone_console::commands::Arguments;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let chain = format!("{:#}", anyhow::Error::from(error));
            eprintln!("error: {}", hone_console::text::plain(&chain));
            ExitCode::FAILURE
        }
    }
}
