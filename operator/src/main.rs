//! `hone-operator`: arguments, then hand over.

use clap::Parser;
use hone_operator::{arguments::Arguments, run};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    run::run(Arguments::parse()).await
}
