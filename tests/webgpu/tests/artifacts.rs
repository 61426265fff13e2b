//! Whole models from artifacts for WebGPU: compiled, loaded and run, against the reference.
//!
//! The usual tests take two of the models; with `HONE_ALL_CASES` in the environment all are taken, and a sample of the
//! official operator cases.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use anyhow::Result;
use hone_device_tests::{count, error, inputs, networks};
use hone_driver::{Accelerator, CompileError, Options, Target, compile_graph};
use hone_import::{ImportOptions, import};
use hone_model_builder::{
    BertSizes, ResNetDepth, TaggerSizes, bert, mobilenet_v2, quantized, resnet, tagger,
};
use hone_model_tests::read_npz;
use hone_onnx_tests::{Backend, Case, folder, load, run};
use hone_ops::Graph;
use hone_types::Tensor;
use hone_webgpu_tests::{Artifact, Device, device_of_tests};
use prost::Message;
use std::path::Path;

fn options() -> Options {
    Options::new(Target::host().unwrap().with_accelerator(Accelerator::WebGpu).unwrap())
}

fn all() -> bool {
    std::env::var_os("HONE_ALL_CASES").is_some()
}

/// Models by name, and how far their answers may be from the reference, as a share of the largest.
fn models() -> Vec<(&'static str, Vec<u8>, f64)> {
    let mut models = vec![("digits", digits("digits.onnx"), 1e-4)];
    let small = TaggerSizes { steps: 3, features: 5, hidden: 8, tags: 4 };
    models.push(("short LSTM", tagger(small, 6).encode_to_vec(), 1e-4));
    if !all() {
        return models;
    }
    let wide = BertSizes { tokens: 16, words: 50, width: 96, heads: 6, inner: 192, layers: 2 };
    models.extend([
        ("ResNet-50", resnet(ResNetDepth::D50, 32, 7, 8).encode_to_vec(), 1e-4),
        ("MobileNetV2 of 48 pixels", mobilenet_v2(48, 6, 9).encode_to_vec(), 1e-4),
        ("two layers of an encoder", bert(&wide, 10).encode_to_vec(), 1e-4),
        ("larger quantized convolutions", quantized(24, 11).encode_to_vec(), 2e-2),
    ]);
    models.extend(networks().into_iter().map(|(name, model)| {
        let bound = if name.starts_with("quantized") { 2e-2 } else { 1e-4 };
        (name, model, bound)
    }));
    models
}

fn digits(file: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits").join(file))
        .unwrap()
}

#[test]
fn models_run_whole_from_artifacts() {
    let Some(device) = device_of_tests().unwrap() else { return };
    for (name, bytes, bound) in models() {
        let graph = import(&bytes, &ImportOptions::default()).unwrap().graph;
        let artifact = compile_graph(graph.clone(), &bytes, &options()).unwrap().artifact;
        let again = compile_graph(graph.clone(), &bytes, &options()).unwrap().artifact;
        assert_eq!(artifact, again, "{name}: not bit-identical");
        let mut loaded = Artifact::load(device, &artifact).unwrap();
        for round in 0..2 {
            let inputs = inputs(&graph, round);
            let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
            let outputs = loaded.run(&given).unwrap();
            let error = error(&graph, &inputs, &outputs);
            println!("{name}, run {round}: error {error:.1e}");
            assert!(error < bound, "{name}: {error}");
        }
        count(1, "whole models from artifacts for WebGPU right");
    }
}

/// As many digits as by the reference; `tests/models/tests/digits.rs`.
#[test]
fn digits_are_classified_as_by_the_reference() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let bytes = digits("digits.onnx");
    let graph = import(&bytes, &ImportOptions::default()).unwrap().graph;
    let artifact = compile_graph(graph, &bytes, &options()).unwrap().artifact;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let images = &read_npz(&folder.join("test-images.npz")).unwrap()[0].1;
    let labels = read_npz(&folder.join("test-labels.npz")).unwrap()[0].1.to_i64();
    let outputs = Artifact::load(device, &artifact).unwrap().run(&[images.bytes()]).unwrap();
    let scores: Vec<f32> = outputs[0]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let said = scores
        .chunks_exact(10)
        .map(|own| (0..10).max_by(|a, b| own[*a as usize].total_cmp(&own[*b as usize])).unwrap());
    let right = said.zip(&labels).filter(|(said, label)| said == *label).count();
    assert_eq!((right, labels.len()), (357, 360));
}

/// Official cases by artifacts for WebGPU.
struct ByArtifact(&'static Device);

impl Backend for ByArtifact {
    fn name(&self) -> &'static str {
        "artifacts for WebGPU"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        let artifact = match compile_graph(graph.clone(), b"", &options()) {
            Ok(compiled) => compiled.artifact,
            // What has no code for WebGPU is told by the tests of kernels.
            Err(CompileError::Accelerator { .. } | CompileError::Text { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let outputs = Artifact::load(self.0, &artifact)?.run(&given)?;
        let types = graph.outputs().iter().map(|port| graph.tensor_type(port.value).clone());
        let tensors = types.zip(outputs).map(|(own, bytes)| Tensor::from_bytes(own, bytes));
        Ok(Some(tensors.collect::<Result<_, _>>()?))
    }
}

/// Of this many official cases one is taken.
const SAMPLE: u64 = 16;

#[test]
fn official_cases_run_from_artifacts() {
    let Some(device) = device_of_tests().unwrap() else { return };
    if !all() {
        return;
    }
    let cases = load(&folder()).unwrap();
    let report = run(&ByArtifact(device), &cases, |case: &Case| case.is_in_sample(SAMPLE));
    println!("{report}");
    assert!(report.is_good(), "{report}");
}

#[test]
fn control_flow_is_refused_when_it_is_compiled() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/control/choice.onnx");
    let bytes = std::fs::read(path).unwrap();
    let graph = import(&bytes, &ImportOptions::default()).unwrap().graph;
    let error = compile_graph(graph, &bytes, &options()).err().unwrap();
    assert!(error.to_string().contains("control flow"), "{error}");
}
