//! Writes what the page in `examples/web` needs to run a model: `bundle MODEL.onnx FOLDER`.

use anyhow::{Context, Result};
use hone_webgpu_tests::Bundle;
use std::path::Path;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().context("which model?")?;
    let folder = arguments.next().context("into which folder?")?;
    let bytes = std::fs::read(&model).with_context(|| format!("cannot read {model}"))?;
    Bundle::new(&bytes)?.write(Path::new(&folder))
}
