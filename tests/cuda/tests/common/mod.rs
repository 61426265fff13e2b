//! Artifacts for CUDA, and processes that run them by the driver that interprets PTX.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use hone_driver::{Accelerator, DataType, Options, Target, compile_graph};
use hone_import::{ImportOptions, import};
use hone_ops::Graph;
use hone_runtime::Model;
use hone_types::Tensor;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the runtime and the driver read from the environment.
pub const LIBRARY: &str = "HONE_CUDA_LIBRARY";
/// As above.
pub const SETTINGS: &str = "HONE_FAKE_CUDA";

/// The driver's library, which is built beside the tests.
pub fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let library = folder.parent().unwrap().join("libhone_fake_cuda.so");
    assert!(library.is_file(), "{} is not built", library.display());
    library
}

/// Options for an accelerator.
pub fn options(accelerator: Accelerator, precision: DataType) -> Options {
    let target = Target::host().unwrap().with_accelerator(accelerator).unwrap();
    Options { precision, ..Options::new(target) }
}

/// The graph of a model, and its artifact.
pub fn compiled(model: &[u8], options: &Options) -> (Graph, Vec<u8>) {
    let graph = import(model, &ImportOptions::default()).unwrap().graph;
    let artifact = compile_graph(graph.clone(), model, options).unwrap().artifact;
    (graph, artifact)
}

/// What a model makes of inputs, by a function that runs it.
pub fn outputs(
    model: &mut Model,
    inputs: &[Tensor],
    run: impl FnOnce(&mut Model, &[&[u8]], &mut [&mut [u8]]),
) -> Vec<Vec<u8>> {
    let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let sizes = model.outputs().iter().map(|own| own.bytes as usize);
    let mut outputs: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
    let mut buffers: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    run(model, &given, &mut buffers);
    outputs
}

/// This program again, with one test of its own, and what it says.
pub fn said(child: &str, environment: &[(&str, &Path)], words: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", child, "--nocapture"]);
    command.envs(environment.iter().copied()).envs(words.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    format!("{text}{errors}")
}

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
