//! Quantized networks on tensor cores: bytes are multiplied, sums are exact, and what is rounded to bytes is equal to the
//! reference.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{LIBRARY, compiled, library, options, outputs};
use hone_artifact::Reader;
use hone_device_tests::{error, inputs};
use hone_driver::{Accelerator, DataType};
use hone_model_builder::{integer_sums, quantized, quantized_dense, quantized_signed};
use hone_runtime::Model;
use prost::Message;

/// A network, how many of its kernels multiply on tensor cores, and how much of the largest output its error may be: one step
/// of a byte, where a product of scales is rounded otherwise than two.
fn networks() -> Vec<(&'static str, Vec<u8>, usize, f64)> {
    vec![
        ("unsigned, with one depthwise", quantized(16, 5).encode_to_vec(), 2, 1.1e-2),
        ("unsigned", quantized_dense(16, 5).encode_to_vec(), 3, 1.1e-2),
        ("signed", quantized_signed(8, 5).encode_to_vec(), 4, 1.1e-2),
        ("sums of integers", integer_sums(8, 5).encode_to_vec(), 2, 0.0),
    ]
}

#[test]
fn child() {
    if std::env::var_os(LIBRARY).is_none() {
        return;
    }
    for (name, model, expected, bound) in networks() {
        let (graph, artifact) = compiled(&model, &options(Accelerator::Sm80, DataType::F32));
        let reader = Reader::new(&artifact).unwrap();
        let text = String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap();
        let kernels = text.split(".visible .entry");
        let kernels = kernels.filter(|own| own.contains("mma.sync") && own.contains(".s32"));
        assert_eq!(kernels.count(), expected, "{name}");
        let mut model = Model::load_memory(artifact, &Default::default()).unwrap();
        for round in 0..2 {
            let inputs = inputs(&graph, round);
            let outputs = outputs(&mut model, &inputs, |model, given, buffers| {
                model.run(given, buffers).unwrap();
            });
            let error = error(&graph, &inputs, &outputs);
            println!("{name}, run {round}: error {error:.1e}, {expected} kernels");
            assert!(error <= bound, "{name}: {error}");
        }
    }
    println!("all are right");
}

#[test]
fn networks_of_bytes_run_on_tensor_cores() {
    let said = common::said("child", &[(LIBRARY, &library())], &[]);
    println!("{said}");
    assert!(said.contains("all are right"), "{said}");
}
