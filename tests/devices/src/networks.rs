//! Whole networks with random weights.

#![allow(clippy::unwrap_used)]

use crate::{Collector, Device, Outcome};
use anyhow::{Result, ensure};
use hone_import::{ImportOptions, import};
use hone_model_builder::{
    BertSizes, ResNetDepth, TaggerSizes, bert, mobilenet_v2, quantized, resnet, tagger,
};
use hone_onnx_tests::Backend;
use hone_ops::{Graph, evaluate};
use hone_types::Tensor;
use prost::Message;

/// Networks by name, as ONNX files, small enough for an interpreter.
pub fn networks() -> Vec<(&'static str, Vec<u8>)> {
    let encoder = BertSizes { tokens: 32, words: 90, width: 64, heads: 4, inner: 128, layers: 1 };
    let recurrent = TaggerSizes { steps: 7, features: 21, hidden: 36, tags: 9 };
    vec![
        ("ResNet-18", resnet(ResNetDepth::D18, 32, 10, 1).encode_to_vec()),
        ("MobileNetV2", mobilenet_v2(32, 10, 2).encode_to_vec()),
        ("transformer encoder", bert(&encoder, 3).encode_to_vec()),
        ("bidirectional LSTM", tagger(recurrent, 4).encode_to_vec()),
        ("quantized convolutions", quantized(16, 5).encode_to_vec()),
    ]
}

/// Inputs for such a network, others in each round.
pub fn inputs(graph: &Graph, round: usize) -> Vec<Tensor> {
    let tensor = |port: &hone_graph::Port| {
        let tensor_type = graph.tensor_type(port.value);
        let count: usize = tensor_type.shape.iter().product();
        // Numbers of words and of segments, of which there are two, and numbers around 0.
        let values = (0..count).map(|index| match tensor_type.dtype.is_float() {
            true => (((index + round) * 37 + index / 7) % 23) as f64 / 11.0 - 1.0,
            false => ((index + round) * 5 % 2) as f64,
        });
        Tensor::from_f64(tensor_type.dtype, tensor_type.shape.clone(), &values.collect::<Vec<_>>())
            .unwrap()
    };
    graph.inputs().iter().map(tensor).collect()
}

/// What comes out of every network's kernels. The network's answers, kernel by kernel, are held against the reference.
///
/// # Errors
/// A network that is not computed at all, or whose answers differ.
pub fn network_outcomes(device: &impl Device) -> Result<Vec<(&'static str, Outcome)>> {
    let mut outcomes = Vec::new();
    for (name, model) in networks() {
        let graph = import(&model, &ImportOptions::default())?.graph;
        let inputs = inputs(&graph, 0);
        let collector = Collector::new(device);
        let results = collector.run(&graph, &inputs)?.unwrap_or_default();
        let reference = evaluate(&graph, &inputs)?;
        ensure!(results.len() == reference.len(), "{name}: {} outputs", results.len());
        for (result, expected) in results.iter().zip(reference) {
            let largest = expected.to_f64().iter().fold(0f64, |a, b| a.max(b.abs()));
            let differences = result.to_f64().into_iter().zip(expected.to_f64());
            let most = differences.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            ensure!(most <= 2e-2 * largest, "{name}: {most} of {largest}");
        }
        outcomes.push((name, collector.run_all().0));
    }
    Ok(outcomes)
}
