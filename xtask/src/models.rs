//! Exports the models that the benchmarks run, as `tests/models/export.py` says.

use std::process::Command;

use anyhow::Result;

use crate::{python, repository};

/// What `cargo xtask models` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which models of `tests/models/zoo.py` (all of them if none is named) and `others.py`.
    names: Vec<String>,
    /// Also write the table of the exported models' operators, `tests/models/operators.md`.
    #[arg(long)]
    operators: bool,
}

/// Exports what is missing to `.hone/models`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut command = exporter(&arguments.names)?;
    if arguments.operators {
        command.arg("--operators").arg(repository::root().join("tests/models/operators.md"));
    }
    python::check("export models", &mut command)
}

/// Exports those of `names` that are missing to `.hone/models`.
pub fn export(names: &[String]) -> Result<()> {
    let folder = repository::scratch().join("models");
    let missing = |name: &&String| !folder.join(format!("{name}.outputs.npz")).exists();
    let names: Vec<String> = names.iter().filter(missing).cloned().collect();
    if names.is_empty() {
        return Ok(());
    }
    python::check("export models", &mut exporter(&names)?)
}

fn exporter(names: &[String]) -> Result<Command> {
    let mut command = Command::new(python::environment("models")?);
    command
        .arg(repository::root().join("tests/models/export.py"))
        .arg(repository::scratch().join("models"))
        .args(names);
    Ok(command)
}
