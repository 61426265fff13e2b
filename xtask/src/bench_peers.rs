//! Measures Hone beside other ways to run the same models: `cargo xtask bench-peers`.
//!
//! One process per peer, each pinned to the same processors and answering the protocol of
//! `tests/peers/serve.py`. Rounds are interleaved (A B C, B C A, …), so that what the machine does
//! meanwhile meets everyone; the machine's peak rate of fused multiply-adds is probed in the same
//! rounds, and rounds in which it is low are left out. Every run is kept in
//! `.hone/bench-peers/runs`; once three of the same programs are there, they are published with their
//! table in `docs/benchmarks/PROCESSOR`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{python, repository};

mod machine;
mod measure;
mod peer;
mod plot;
mod process;
mod report;
mod runs;
mod statistics;

use machine::Machine;
use runs::{Run, Runs};

/// What `cargo xtask bench-peers` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which set of `tests/models/sets.py`: public, development, sealed, quantized or cliffs.
    #[arg(long, default_value = "public")]
    set: String,
    /// Measure nothing: write the page of the runs that are published of this machine's processor.
    #[arg(long)]
    tables: bool,
    /// Only these of its models; nothing is kept then.
    #[arg(long, value_delimiter = ',')]
    models: Vec<String>,
    /// Which peers, by name; iree, tract and tvm are further ones.
    #[arg(long, value_delimiter = ',', default_values = peer::USUAL)]
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
    /// The `hone` program.
    #[arg(long, default_value = "target/release/hone")]
    hone: PathBuf,
    /// The runtime's shared library; built where none is named.
    #[arg(long)]
    library: Option<PathBuf>,
}

/// Runs the comparison and writes its results.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.tables {
        return tables(&arguments.set);
    }
    let models = repository::scratch().join("models");
    let names = match arguments.models.is_empty() {
        true => set(&arguments.set)?,
        false => arguments.models.clone(),
    };
    crate::models::export(&names)?;
    let mut machine = Machine::probe(arguments.realtime)?;
    let hone = peer::Hone::find(&arguments.hone, arguments.library.as_deref())?;
    let (code, commit) = (runs::code(&hone.program, &hone.library)?, runs::commit()?);
    let mut groups = Vec::new();
    for model in &names {
        for &threads in &arguments.threads {
            if threads == 0 || threads > machine.processors {
                bail!("{threads} threads asked for, this machine has {}", machine.processors);
            }
            let peers = peer::all(&arguments.peers, &hone)?;
            let settings = measure::Settings {
                rounds: arguments.rounds,
                turn: arguments.turn,
                realtime: arguments.realtime,
            };
            groups.push(measure::group(&models, model, threads, peers, &settings, &mut machine)?);
            let (machine, code, commit) = (machine.clone(), code.clone(), commit.clone());
            // After each group: a long comparison that is cut off keeps what it has.
            groups = show(arguments, Run { machine, code, commit, groups })?.groups;
        }
    }
    if arguments.models.is_empty() {
        publish(&machine.processor, &arguments.set)?;
    }
    Ok(())
}

/// Prints the newest group, and keeps the run where the whole set is measured.
fn show(arguments: &Arguments, run: Run) -> Result<Run> {
    let processor = run.machine.processor.clone();
    let set = &arguments.set;
    let whole = arguments.models.is_empty();
    let mut runs = if whole { Runs::read(&processor, set)? } else { Runs::default() };
    runs.keep(run);
    if whole {
        runs.write(&processor, set)?;
    }
    let runs = runs.into_poolable();
    let Some(run) = runs.all().last() else { bail!("a run that was kept is gone") };
    if let Some(group) = run.groups.last() {
        let key = (group.model.clone(), group.threads);
        println!("## {}\n\n{}", report::title(group), report::table(set, &runs, &key, group));
    }
    runs.into_newest()
}

/// Writes the runs that are pooled and their page, where there are enough for a table.
fn publish(processor: &str, set: &str) -> Result<()> {
    let runs = Runs::read(processor, set)?.into_poolable();
    if runs.suffice() {
        runs.publish(processor, set)?;
        return write_page(processor, set, &runs);
    }
    println!(
        "{} runs of these programs, 40 minutes apart or more, are done, and no network has undisturbed rounds in {} \
         of them: no table is made of fewer",
        runs.apart(),
        runs::WANTED
    );
    Ok(())
}

/// Writes a set's page again, from the runs that are published.
fn tables(set: &str) -> Result<()> {
    let processor = Machine::probe(false)?.processor;
    let runs = Runs::published(&processor, set)?;
    if runs.all().is_empty() {
        bail!("no run of {set} is published of {processor}: cargo xtask bench-peers --set {set}");
    }
    write_page(&processor, set, &runs)
}

/// The page of a set, and the plot of each group's newest run without disturbance.
fn write_page(processor: &str, set: &str, runs: &Runs) -> Result<()> {
    let folder = runs::folder(processor);
    let newest = |key| runs.all().iter().rev().find_map(|run| run.undisturbed_group(&key));
    let groups: Vec<_> = runs.keys().into_iter().filter_map(newest).collect();
    python::write(&folder.join(format!("{set}.md")), &report::markdown(set, runs))?;
    python::write(&folder.join(format!("{set}.svg")), &plot::svg(&groups))
}

/// The names of a set's models.
fn set(name: &str) -> Result<Vec<String>> {
    let script = repository::root().join("tests/models/sets.py");
    let output = std::process::Command::new(python::environment("models")?)
        .args([script.as_os_str(), name.as_ref()])
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// `path` as an argument for a process that runs elsewhere.
fn absolute(path: &Path) -> PathBuf {
    if path.is_absolute() { path.to_path_buf() } else { repository::root().join(path) }
}
