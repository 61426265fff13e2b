//! The corpus of models as people have them: makes what is missing, runs every model with no flags, and compares with
//! onnxruntime, as `tests/models/wild/run.py` says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{demo, python, repository, wheels};

/// What makes the models, by the first word of an entry's `from`, and the environment that has what it needs.
const WRITERS: [(&str, &str); 7] = [
    ("pypi", "wild"),
    ("npm", "wild"),
    ("torch", "models"),
    ("sklearn", "wild"),
    ("keras", "wild-keras"),
    ("tool", "wild"),
    ("fuse", "models"),
];

/// What `cargo xtask wild` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which entries of `tests/models/wild/list.toml`; all of them if none is named.
    names: Vec<String>,
    /// The program to run; built for release where it is not given.
    #[arg(long)]
    hone: Option<PathBuf>,
    /// Run sessions of the Python package too, in the environment that `cargo xtask wheels --test` leaves.
    #[arg(long)]
    sessions: bool,
    /// Time every model beside onnxruntime and OpenVINO on one thread instead.
    #[arg(long, conflicts_with = "sessions")]
    speed: bool,
    /// The folder of the package `hone_runtime` for `--speed`; built where it is not given.
    #[arg(long, requires = "speed")]
    package: Option<PathBuf>,
    /// Write `docs/benchmarks/wild.md`, or `wild-speed.md`.
    #[arg(long)]
    page: bool,
}

/// Makes and runs the models; fails where one fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    let scripts = repository::root().join("tests/models/wild");
    let folder = repository::scratch().join("models/wild");
    for (writer, environment) in WRITERS {
        if !is_missing(&scripts, &folder, writer, &arguments.names)? {
            continue;
        }
        let mut make = Command::new(python::environment(environment)?);
        make.arg(scripts.join("make.py")).arg(&folder).arg(writer).args(&arguments.names);
        // What could not be made is among the failures below.
        if let Err(error) = python::check(&format!("make the models of {writer}"), &mut make) {
            eprintln!("wild: {error:#}");
        }
    }
    let hone = match &arguments.hone {
        Some(program) => program.clone(),
        None => demo::build(&repository::root(), &["--package", "hone-worker"], "hone")?,
    };
    if arguments.speed {
        return measure(arguments, &hone);
    }
    let interpreter = match arguments.sessions {
        false => python::environment("wild")?,
        true => repository::scratch().join("python-fresh/bin/python"),
    };
    ensure!(
        interpreter.exists(),
        "run 'cargo xtask wheels --test' first: it makes the environment of sessions"
    );
    let mut run = Command::new(interpreter);
    run.arg(scripts.join("run.py")).arg(&folder).args(&arguments.names).arg("--hone").arg(hone);
    if arguments.sessions {
        run.arg("--sessions");
    }
    if arguments.page {
        run.arg("--page").arg(repository::root().join("docs/benchmarks/wild.md"));
    }
    python::check("run the corpus", &mut run)
}

/// Times the models; nothing fails because of a time.
fn measure(arguments: &Arguments, hone: &Path) -> Result<()> {
    let package = match &arguments.package {
        Some(package) => package.clone(),
        None => wheels::runtime_package()?,
    };
    let mut speed = Command::new(python::environment("wild")?);
    speed.arg(repository::root().join("tests/models/wild/speed.py"));
    speed.arg(repository::scratch().join("models/wild")).args(&arguments.names);
    speed.arg("--hone").arg(hone).arg("--package").arg(package);
    if arguments.page {
        speed.arg("--page").arg(repository::root().join("docs/benchmarks/wild-speed.md"));
    }
    python::check("time the corpus", &mut speed)
}

/// Whether a model of this writer is to be made. A heavy environment is not, where nothing is.
fn is_missing(scripts: &Path, folder: &Path, writer: &str, names: &[String]) -> Result<bool> {
    let path = scripts.join("list.toml");
    let list =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let entries = list.split("\n[").filter_map(|entry| {
        let (name, rest) = entry.split_once("]\n")?;
        Some((name.to_owned(), rest.strip_prefix("from = \"")?))
    });
    Ok(entries.filter(|(_, from)| from.split_whitespace().next() == Some(writer)).any(
        |(name, _)| {
            (names.is_empty() || names.contains(&name))
                && !folder.join(format!("{name}.onnx")).exists()
        },
    ))
}
