//! Whole networks on an OpenCL device, kernel by kernel, with random weights: every kernel against the interpreter of
//! loop programs, and the network's answers against the reference.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Collector;
use hone_import::{ImportOptions, import};
use hone_model_builder::{
    BertSizes, ResNetDepth, TaggerSizes, bert, mobilenet_v2, quantized, resnet, tagger,
};
use hone_onnx_tests::Backend;
use hone_opencl_tests::device_of_tests;
use hone_ops::{Graph, evaluate};
use hone_types::Tensor;
use prost::Message;

/// Networks, small enough for an interpreter.
fn networks() -> Vec<(&'static str, Vec<u8>)> {
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

fn inputs(graph: &Graph) -> Vec<Tensor> {
    let tensor = |port: &hone_graph::Port| {
        let own = graph.tensor_type(port.value);
        let count: usize = own.shape.iter().product();
        // Numbers of words and of segments, of which there are two, and numbers around 0.
        let values = (0..count).map(|place| match own.dtype.is_float() {
            true => ((place * 37 + place / 7) % 23) as f64 / 11.0 - 1.0,
            false => (place * 5 % 2) as f64,
        });
        Tensor::from_f64(own.dtype, own.shape.clone(), &values.collect::<Vec<_>>()).unwrap()
    };
    graph.inputs().iter().map(tensor).collect()
}

#[test]
fn networks_compute_the_same_on_a_device() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let mut tiles = 0;
    for (name, model) in networks() {
        let graph = import(&model, &ImportOptions::default()).unwrap().graph;
        let inputs = inputs(&graph);
        let collector = Collector::default();
        let results = collector.run(&graph, &inputs).unwrap().unwrap();
        for (result, expected) in results.iter().zip(evaluate(&graph, &inputs).unwrap()) {
            let largest = expected.to_f64().iter().fold(0f64, |a, b| a.max(b.abs()));
            let differences = result.to_f64().into_iter().zip(expected.to_f64());
            let most = differences.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(most <= 2e-2 * largest, "{name}: {most} of {largest}");
        }
        let outcome = collector.run_all(device);
        println!("{name}: {outcome}");
        assert!(outcome.wrong.is_empty(), "{name}: {outcome}\n{}", outcome.wrong[0]);
        assert_eq!(outcome.refused(), 0, "{name}: {outcome}");
        tiles += outcome.by_template("matmul");
    }
    assert!(tiles > 0, "no product was computed in tiles");
}
