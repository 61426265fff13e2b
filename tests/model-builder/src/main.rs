//! `hone-model-builder NAME FILE.onnx [--seed N]`: writes one of the built-in models.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Parser;
use prost::Message;

/// Writes a model with seeded random weights.
#[derive(Parser)]
struct Arguments {
    /// Which model: resnet18, resnet50, resnet101, mobilenet_v2, bert-base or masked-attention.
    name: String,
    /// The file to write.
    file: PathBuf,
    /// What the weights are drawn from.
    #[arg(long, default_value_t = 20)]
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Some(model) = hone_model_builder::build(&arguments.name, arguments.seed) else {
        bail!(
            "no model called {}: one of {}",
            arguments.name,
            hone_model_builder::NAMES.join(", ")
        );
    };
    std::fs::write(&arguments.file, model.encode_to_vec())
        .with_context(|| format!("cannot write {}", arguments.file.display()))
}
