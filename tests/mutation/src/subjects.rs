//! What faults are put into: small networks of every arithmetic.

use anyhow::{Context, Result};
use hone_driver::{DataType, Graph, ImportOptions, Options, Target, import};
use hone_model_builder::{
    BertSizes, ResNetDepth, TaggerSizes, bert, mobilenet_v2, quantized, resnet, tagger,
};
use prost::Message;

/// A network and how it is compiled.
pub struct Subject {
    /// What reports call it.
    pub name: String,
    /// The model's file.
    pub model: Vec<u8>,
    /// The model as imported.
    pub graph: Graph,
    /// How it is compiled.
    pub options: Options,
}

/// Every network in every arithmetic that this machine computes; `seed` gives the weights.
pub fn all(seed: u64) -> Result<Vec<Subject>> {
    let target = Target::host().context("this machine cannot be compiled for")?;
    let encoder = BertSizes { tokens: 9, words: 40, width: 48, heads: 4, inner: 96, layers: 1 };
    let recurrent = TaggerSizes { steps: 5, features: 13, hidden: 20, tags: 7 };
    let networks = [
        ("ResNet-18", resnet(ResNetDepth::D18, 32, 10, seed), true),
        ("MobileNetV2", mobilenet_v2(32, 10, seed), true),
        ("transformer", bert(&encoder, seed), true),
        ("LSTM", tagger(recurrent, seed), false),
        ("quantized", quantized(14, seed), false),
    ];
    let mut subjects = Vec::new();
    for (name, model, narrow) in networks {
        let model = model.encode_to_vec();
        let graph = import(&model, &ImportOptions::default())?.graph;
        let precisions: &[DataType] = match narrow && target.multiplies(DataType::BF16) {
            true => &[DataType::F32, DataType::BF16],
            false => &[DataType::F32],
        };
        for &precision in precisions {
            let options = Options { precision, ..Options::new(target.clone()) };
            let name = format!(
                "{name} in {}",
                if name == "quantized" { "bytes" } else { precision.name() }
            );
            let (model, graph) = (model.clone(), graph.clone());
            subjects.push(Subject { name, model, graph, options });
        }
    }
    Ok(subjects)
}
