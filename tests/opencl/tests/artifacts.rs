//! Whole models on an OpenCL device: compiled to artifacts, loaded and run by the runtime.
//!
//! Of the official operator cases the usual tests take a sample; `HONE_ALL_CASES=1` takes all.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_device_tests::{error, inputs, networks, outputs_in_c};
use hone_driver::{Accelerator, Options, Target, compile_graph};
use hone_import::{ImportOptions, import};
use hone_model_builder::{TaggerSizes, tagger};
use hone_onnx_tests::{Case, Compiled, Machine, folder, load, run};
use hone_opencl_tests::device_of_tests;
use hone_runtime::{Model, Profile};
use hone_types::Tensor;
use prost::Message;

/// One case of so many is in the sample.
const SAMPLE: u64 = 40;

fn target() -> Target {
    Target::host().unwrap().with_accelerator(Accelerator::OpenCl).unwrap()
}

#[test]
fn official_cases_run_from_artifacts() {
    if device_of_tests().unwrap().is_none() {
        return;
    }
    let all = std::env::var_os("HONE_ALL_CASES").is_some();
    let backend = Compiled::new(target(), Machine::Here);
    let report = run(&backend, &load(&folder()).unwrap(), |case| all || case.is_in_sample(SAMPLE));
    println!("{report}");
    assert!(report.is_good(), "{report}");
}

/// Control flow, and what the runtime computes itself, between kernels on the device.
#[test]
fn control_flow_and_host_functions_run_between_kernels() {
    if device_of_tests().unwrap().is_none() {
        return;
    }
    let operators = ["If", "Loop", "Scan", "NonZero", "Compress", "Unique", "NonMaxSuppression"];
    let backend = Compiled::new(target(), Machine::Here);
    let chosen = |case: &Case| operators.contains(&case.operator.as_str());
    let report = run(&backend, &load(&folder()).unwrap(), chosen);
    println!("{report}");
    assert!(report.is_good(), "{report}");
}

#[test]
fn networks_run_whole_from_artifacts() {
    if device_of_tests().unwrap().is_none() {
        return;
    }
    for (name, bytes) in networks() {
        let graph = import(&bytes, &ImportOptions::default()).unwrap().graph;
        let compiled = compile_graph(graph.clone(), &bytes, &Options::new(target())).unwrap();
        let again = compile_graph(graph.clone(), &bytes, &Options::new(target())).unwrap();
        assert_eq!(compiled.artifact, again.artifact, "{name}: not bit-identical");
        let mut model = Model::load_memory(compiled.artifact, &Default::default()).unwrap();
        // A second session over the same code and weights, with memory of its own.
        let mut other = model.share().unwrap();
        let mut profile = Profile::new(&model);
        for round in 0..2 {
            let inputs = inputs(&graph, round);
            let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
            for (which, model) in [&mut model, &mut other].into_iter().enumerate() {
                let sizes = model.outputs().iter().map(|own| own.bytes as usize);
                let mut outputs: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
                let mut places: Vec<&mut [u8]> =
                    outputs.iter_mut().map(Vec::as_mut_slice).collect();
                match which {
                    0 => model.run_profiled(&given, &mut places, &mut profile).unwrap(),
                    _ => model.run(&given, &mut places).unwrap(),
                }
                let error = error(&graph, &inputs, &outputs);
                println!("{name}, run {round} of session {which}: error {error:.1e}");
                let bound = if name.starts_with("quantized") { 2e-2 } else { 1e-4 };
                assert!(error < bound, "{name}: {error}");
            }
            let timed = profile.steps.iter().filter(|step| step.time.as_nanos() > 0).count();
            assert!(timed * 10 >= profile.steps.len() * 9, "{name}: {timed} steps have times");
            assert!(profile.steps.iter().all(|step| step.runs == 1), "{name}");
        }
    }
}

/// `examples/c/run.c` knows nothing of devices: it hands over arrays of the host.
#[test]
fn the_c_interface_runs_them_on_arrays_of_the_host() {
    if device_of_tests().unwrap().is_none() {
        return;
    }
    let sizes = TaggerSizes { steps: 3, features: 5, hidden: 8, tags: 4 };
    let bytes = tagger(sizes, 6).encode_to_vec();
    let graph = import(&bytes, &ImportOptions::default()).unwrap().graph;
    let artifact = compile_graph(graph.clone(), &bytes, &Options::new(target())).unwrap().artifact;
    let inputs = inputs(&graph, 0);
    let outputs = outputs_in_c(&artifact, &inputs, graph.outputs().len(), &[]);
    assert!(error(&graph, &inputs, &outputs) < 1e-5);
}
