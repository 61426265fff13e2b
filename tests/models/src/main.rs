//! `hone-model-tests [NAME...]`: runs the models in `.hone/models`, or the named ones, by the
//! reference interpreter and compares with onnxruntime's outputs.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hone_model_tests::{Difference, compare, interpret, read_npz};

/// Beyond this, relative to the largest output, a difference is not one of rounding.
const LARGEST_ERROR: f64 = 1e-3;

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.hone/models");
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = exported(&folder)?;
    }
    let mut failed = 0;
    for name in names {
        let start = Instant::now();
        match run(&folder, &name) {
            Ok(difference) if difference.relative <= LARGEST_ERROR => println!(
                "{name}: ok, largest difference {:.1e} ({:.1e} of the largest output), {:.1} s",
                difference.absolute,
                difference.relative,
                start.elapsed().as_secs_f64()
            ),
            Ok(difference) => {
                failed += 1;
                println!("{name}: WRONG: {difference:?}");
            }
            Err(error) => {
                failed += 1;
                println!("{name}: failed: {error:#}");
            }
        }
    }
    if failed > 0 {
        bail!("{failed} models failed");
    }
    Ok(())
}

fn exported(folder: &Path) -> Result<Vec<String>> {
    let files = std::fs::read_dir(folder)
        .with_context(|| format!("no {}: run cargo xtask models", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        let name = file?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".outputs.npz")) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn run(folder: &Path, name: &str) -> Result<Difference> {
    let file = |kind: &str| -> PathBuf { folder.join(format!("{name}.{kind}")) };
    let outputs = interpret(&file("onnx"), &read_npz(&file("inputs.npz"))?)?;
    compare(&outputs, &read_npz(&file("outputs.npz"))?)
}
