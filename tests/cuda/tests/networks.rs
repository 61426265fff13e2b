//! Whole models in PTX: compiled to artifacts, loaded and run by the runtime through the driver that interprets them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{LIBRARY, compiled, library, options, outputs};
use hone_artifact::Reader;
use hone_device_tests::{error, inputs, outputs_in_c};
use hone_driver::{Accelerator, DataType};
use hone_model_builder::{BertSizes, TaggerSizes, bert, convolutions, quantized, tagger};
use hone_runtime::{Model, Profile};
use prost::Message;
use std::path::Path;

fn digits() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx");
    std::fs::read(path).unwrap()
}

fn encoder() -> Vec<u8> {
    let sizes = BertSizes { tokens: 32, words: 90, width: 64, heads: 2, inner: 128, layers: 1 };
    bert(&sizes, 3).encode_to_vec()
}

fn convolved() -> Vec<u8> {
    convolutions(16, 6).encode_to_vec()
}

fn recurrent() -> Vec<u8> {
    tagger(TaggerSizes { steps: 4, features: 9, hidden: 12, tags: 4 }, 4).encode_to_vec()
}

/// Networks, small enough for an interpreter (digits takes a minute of it), and how much of the largest output their error may be.
fn networks() -> Vec<(&'static str, Vec<u8>, DataType, f64)> {
    vec![
        ("transformer encoder", encoder(), DataType::F32, 1e-4),
        ("transformer encoder in bf16", encoder(), DataType::BF16, 3e-2),
        ("transformer encoder in f16", encoder(), DataType::F16, 5e-3),
        ("convolutions", convolved(), DataType::F32, 1e-4),
        ("convolutions in bf16", convolved(), DataType::BF16, 3e-2),
        ("convolutions in f16", convolved(), DataType::F16, 5e-3),
        ("bidirectional LSTM", recurrent(), DataType::F32, 1e-4),
        ("quantized convolutions", quantized(16, 5).encode_to_vec(), DataType::F32, 2e-2),
    ]
}

/// Runs every network twice, in two sessions, and holds the answers against the reference; where it is told to.
#[test]
fn child() {
    if std::env::var_os(LIBRARY).is_none() {
        return;
    }
    let all = std::env::var_os("HONE_ALL_CASES").map(|_| ("digits", digits(), DataType::F32, 1e-4));
    for (name, model, precision, bound) in networks().into_iter().chain(all) {
        let (graph, artifact) = compiled(&model, &options(Accelerator::Sm80, precision));
        let reader = Reader::new(&artifact).unwrap();
        let text = String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap();
        let products = text.matches("mma.sync").count();
        let narrow = precision != DataType::F32 || name.starts_with("quantized");
        assert_eq!(products > 0, narrow, "{name}: {products} mma.sync");
        let kernels = text.split(".visible .entry").filter(|kernel| kernel.contains("mma.sync"));
        let kernels = kernels.count();
        // Attention is one kernel.
        let exchanges = text.split(".visible .entry").filter(|own| own.contains("shfl.sync"));
        assert_eq!(exchanges.count(), usize::from(name.starts_with("transformer encoder in")));
        if name.starts_with("convolutions in") {
            // All but the depthwise one.
            assert_eq!(kernels, 8, "{name}: kernels on tensor cores");
        }
        let mut model = Model::load_memory(artifact, &Default::default()).unwrap();
        let mut other = model.share().unwrap();
        let mut profile = Profile::new(&model);
        for round in 0..2 {
            let inputs = inputs(&graph, round);
            let outputs = match round {
                0 => outputs(&mut model, &inputs, |model, given, buffers| {
                    model.run_profiled(given, buffers, &mut profile).unwrap();
                }),
                _ => outputs(&mut other, &inputs, |model, given, buffers| {
                    model.run(given, buffers).unwrap();
                }),
            };
            let error = error(&graph, &inputs, &outputs);
            println!(
                "{name}, run {round}: error {error:.1e}, {products} mma.sync in {kernels} kernels"
            );
            assert!(error < bound, "{name}: {error}");
        }
        assert!(profile.steps.iter().all(|step| step.runs == 1), "{name}");
        assert!(profile.steps.iter().any(|step| step.time.as_nanos() > 0), "{name}");
    }
    println!("all are right");
}

#[test]
fn networks_run_whole_from_artifacts() {
    let said = common::said("child", &[(LIBRARY, &library())], &[]);
    println!("{said}");
    assert!(said.contains("all are right"), "{said}");
}

#[test]
fn artifacts_are_reproducible_and_name_the_architecture() {
    for accelerator in [Accelerator::Sm75, Accelerator::Sm90a] {
        let (_, first) = compiled(&digits(), &options(accelerator, DataType::F32));
        let (_, second) = compiled(&digits(), &options(accelerator, DataType::F32));
        assert_eq!(first, second, "{accelerator}: not bit-identical");
        let reader = Reader::new(&first).unwrap();
        let variant = &reader.manifest().variants[0];
        assert_eq!(variant.target.accelerator, Some(accelerator));
        assert_eq!(reader.manifest().schema_version, 4);
        let text = String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap();
        assert!(text.contains(&format!(".target {accelerator}")), "{accelerator}");
        assert_eq!(text.matches(".version").count(), 1);
    }
}

/// `examples/c/run.c` knows nothing of devices: it hands over arrays of the host. The driver's library has its usual
/// name here, and lies where the system looks.
#[test]
fn the_c_interface_runs_them_on_arrays_of_the_host() {
    let (graph, artifact) = compiled(&recurrent(), &options(Accelerator::Sm80, DataType::F32));
    let inputs = inputs(&graph, 0);
    let driver = library();
    let drivers = [("libcuda.so.1", driver.as_path())];
    let outputs = outputs_in_c(&artifact, &inputs, graph.outputs().len(), &drivers);
    assert!(error(&graph, &inputs, &outputs) < 1e-4);
}
