//! `hone-operator`: arguments, then hand over.

use clap::Parser;
use hone_operator::arguments::{Arguments, RELEASE_OBJECTS, ReleaseArguments};
use hone_operator::{release, run};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some(RELEASE_OBJECTS) => {
            let arguments = ReleaseArguments::parse_from(std::env::args_os().skip(1));
            release::run(&arguments).await
        }
        _ => run::run(Arguments::parse()).await,
    }
}
