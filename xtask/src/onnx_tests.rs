//! Writes the official ONNX operator tests, as `tests/onnx/generate.py` says.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::{python, repository};

/// Generates the cases and prints their folder.
pub fn run() -> Result<()> {
    println!("{}", cases()?.display());
    Ok(())
}

/// The folder of the cases, generated first if it is missing or out of date.
pub fn cases() -> Result<PathBuf> {
    let script = repository::root().join("tests/onnx/generate.py");
    let pins = repository::root().join("tests/python/requirements-onnx.txt");
    let mut digest = Sha256::new();
    for file in [&script, &pins] {
        digest.update(fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    let digest = format!("{:x}", digest.finalize());
    let folder = repository::scratch().join("onnx-node-tests");
    let stamp = folder.join("made-from.sha256");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == digest) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove the old {}", folder.display()))?;
    }
    let interpreter = python::environment("onnx")?;
    eprintln!("onnx-tests: generating {}", folder.display());
    python::check(
        "generate the operator tests",
        // Some of the package's own cases overflow on purpose and warn about it.
        Command::new(interpreter).args(["-W", "ignore"]).arg(&script).arg(&folder),
    )?;
    fs::write(&stamp, digest).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(folder)
}
