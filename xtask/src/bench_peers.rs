//! Measures Hone beside other ways to run the same models: `cargo xtask bench-peers`.
//!
//! One process per peer, each pinned to the same processors and answering the protocol of
//! `tests/peers/serve.py`. Rounds are interleaved (A B C, B C A, …), so that what the machine does
//! meanwhile meets everyone; the machine's peak rate of fused multiply-adds is probed in the same
//! rounds. Results go to `docs/benchmarks/` as a table, JSON and a plot.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{python, repository};

mod machine;
mod measure;
mod peer;
mod plot;
mod process;
mod report;
mod statistics;

use machine::Machine;
use measure::Group;

/// What `cargo xtask bench-peers` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Models of `tests/models/zoo.py` and `others.py`, exported if they are missing.
    #[arg(long, value_delimiter = ',', default_value = "resnet50,mobilenet_v2,bert-base")]
    models: Vec<String>,
    /// Which peers, by name.
    #[arg(long, value_delimiter = ',', default_values = peer::NAMES)]
    peers: Vec<String>,
    /// Numbers of threads; each is pinned to as many processors.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Rounds per model and number of threads.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds that a peer measures for in each round (at least one run).
    #[arg(long, default_value_t = 1000)]
    turn: u64,
    /// Let a peer precede all other work on its processors during its turns (root only): for a
    /// machine that others use meanwhile.
    #[arg(long)]
    realtime: bool,
    /// The `hone` program; left out of the comparison where it is missing.
    #[arg(long, default_value = "target/release/hone")]
    hone: PathBuf,
    /// The name of the result's files.
    #[arg(long, default_value = "peers")]
    name: String,
}

/// Runs the comparison and writes its results.
pub fn run(arguments: &Arguments) -> Result<()> {
    let models = repository::scratch().join("models");
    crate::models::export(&arguments.models)?;
    let mut machine = Machine::probe(arguments.realtime)?;
    let mut groups = Vec::new();
    for model in &arguments.models {
        for &threads in &arguments.threads {
            if threads == 0 || threads > machine.processors {
                bail!("{threads} threads asked for, this machine has {}", machine.processors);
            }
            let peers = peer::all(&arguments.peers, &arguments.hone)?;
            let settings = measure::Settings {
                rounds: arguments.rounds,
                turn: arguments.turn,
                realtime: arguments.realtime,
            };
            let group = measure::group(&models, model, threads, peers, &settings, &mut machine)?;
            println!("{}", report::table(&group));
            groups.push(group);
            // After each group: a long comparison that is cut off keeps what it has.
            write(&arguments.name, &machine, &groups)?;
        }
    }
    Ok(())
}

fn write(name: &str, machine: &Machine, groups: &[Group]) -> Result<()> {
    let folder = repository::root().join("docs/benchmarks");
    std::fs::create_dir_all(&folder)?;
    let save = |extension: &str, text: String| -> Result<()> {
        python::write(&folder.join(format!("{name}.{extension}")), &text)
    };
    save("json", report::json(machine, groups)?)?;
    save("md", report::markdown(name, machine, groups))?;
    save("svg", plot::svg(groups))
}

/// `path` as an argument for a process that runs elsewhere.
fn absolute(path: &Path) -> PathBuf {
    if path.is_absolute() { path.to_path_buf() } else { repository::root().join(path) }
}
