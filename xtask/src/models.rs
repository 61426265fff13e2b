//! Exports the models that the benchmarks run, as `tests/models/export.py` says.

use std::process::Command;

use anyhow::Result;

use crate::{python, repository};

/// What `cargo xtask models` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which models of `tests/models/zoo.py`; all of them if none is named.
    names: Vec<String>,
    /// Also write the table of the exported models' operators, `tests/models/operators.md`.
    #[arg(long)]
    operators: bool,
}

/// Exports what is missing to `.hone/models`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let folder = repository::root().join("tests/models");
    let mut command = Command::new(python::environment("models")?);
    command.arg(folder.join("export.py")).arg(repository::scratch().join("models"));
    command.args(&arguments.names);
    if arguments.operators {
        command.arg("--operators").arg(folder.join("operators.md"));
    }
    python::check("export models", &mut command)
}
