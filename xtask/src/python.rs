//! Python environments for tests and benchmarks, each from one pinned requirements file.
//!
//! `tests/python/requirements-<name>.txt` becomes `.hone/python-<name>`. The environment keeps the
//! digest of the file that it was made from, so asking again costs nothing until that file changes.
//!
//! A file may hold a line `# no-deps`; the requirements after it are installed without what they
//! declare to need, where that is large and not used here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::repository;

/// What `cargo xtask python` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which `tests/python/requirements-<NAME>.txt` to install.
    name: String,
}

/// Makes the environment and prints its interpreter's path.
pub fn run(arguments: &Arguments) -> Result<()> {
    println!("{}", environment(&arguments.name)?.display());
    Ok(())
}

/// The interpreter of the environment called `name`, made first if it is missing or out of date.
pub fn environment(name: &str) -> Result<PathBuf> {
    let pins = repository::root().join(format!("tests/python/requirements-{name}.txt"));
    let text = fs::read_to_string(&pins)
        .with_context(|| format!("no pinned requirements at {}", pins.display()))?;
    let digest = format!("{:x}", Sha256::digest(&text));
    let folder = repository::scratch().join(format!("python-{name}"));
    let interpreter = folder.join("bin/python");
    let stamp = folder.join("made-from.sha256");
    if interpreter.exists() && fs::read_to_string(&stamp).is_ok_and(|made| made == digest) {
        return Ok(interpreter);
    }
    eprintln!("python: making {} from {}", folder.display(), pins.display());
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove the old {}", folder.display()))?;
    }
    create(&folder)?;
    let (with_needs, alone) = split(&text);
    install(&interpreter, &folder, "requirements.txt", &with_needs, &[])?;
    install(&interpreter, &folder, "requirements-no-deps.txt", &alone, &["--no-deps"])?;
    fs::write(&stamp, digest).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(interpreter)
}

/// Runs `command` and fails with `what` if it does.
pub fn check(what: &str, command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{what}: cannot start {command:?}"))?;
    if !status.success() {
        bail!("{what}: {command:?} ended with {status}");
    }
    Ok(())
}

/// Writes `text` to `path`.
pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The requirements before and after the line `# no-deps`.
fn split(text: &str) -> (String, String) {
    match text.split_once("# no-deps\n") {
        Some((with_needs, alone)) => (with_needs.to_owned(), alone.to_owned()),
        None => (text.to_owned(), String::new()),
    }
}

/// Makes an empty environment; installs Debian's package for that first where it is missing.
fn create(folder: &Path) -> Result<()> {
    let make = || Command::new("python3").args(["-m", "venv"]).arg(folder).status();
    if make().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("python3 with its venv module is missing: install Python 3.10 or newer");
    }
    eprintln!("python: python3 or its venv module is missing; installing the package python3-venv");
    check("update the list of packages", apt_get().arg("update").arg("-q"))?;
    check(
        "install python3-venv",
        apt_get().args(["install", "-y", "-q", "python3", "python3-venv"]),
    )?;
    // A try that failed half-way leaves a folder behind.
    let _ = fs::remove_dir_all(folder);
    if !make().is_ok_and(|status| status.success()) {
        bail!("python3 -m venv {} fails: install Python 3.10 or newer", folder.display());
    }
    Ok(())
}

/// `apt-get`, through `sudo` unless this is root.
fn apt_get() -> Command {
    let root = std::env::var("USER").is_ok_and(|user| user == "root")
        || Path::new("/root").read_dir().is_ok();
    if root {
        return Command::new("apt-get");
    }
    let mut command = Command::new("sudo");
    command.arg("apt-get");
    command
}

/// Installs the requirements in `text` with pip, keeping them as `file` in the environment.
fn install(
    interpreter: &Path,
    folder: &Path,
    file: &str,
    text: &str,
    options: &[&str],
) -> Result<()> {
    let wanted = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    if text.lines().find(wanted).is_none() {
        return Ok(());
    }
    let file = folder.join(file);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    check(
        "install Python packages",
        Command::new(interpreter)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(options)
            .arg("--requirement")
            .arg(&file),
    )
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn requirements_are_split_at_the_marker() {
        let (with_needs, alone) = split("numpy==2\n# no-deps\ntorch==2\n");
        assert_eq!(with_needs, "numpy==2\n");
        assert_eq!(alone, "torch==2\n");
        assert_eq!(split("numpy==2\n").1, "");
    }
}
