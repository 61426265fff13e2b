//! Artifacts for NVIDIA's devices: compiled, verified kernel by kernel, measured, run and shown by the program, with the
//! driver of the tests, which interprets PTX (`tests/cuda`). Its times mean nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Ended, Place};
use hone_model_builder::{TaggerSizes, tagger};
use prost::Message;
use serde_json::Value;
use std::process::Command;

/// `hone`, with a driver whose device is said in these words.
fn command(place: &Place, settings: &str) -> Command {
    let folder = std::env::current_exe().unwrap();
    let library = folder.parent().unwrap().join("libhone_fake_cuda.so");
    let mut command = place.command();
    command.env("HONE_CUDA_LIBRARY", library).env("HONE_FAKE_CUDA", settings);
    command
}

fn hone(place: &Place, settings: &str, arguments: &[&str]) -> Ended {
    place.ended(command(place, settings).args(arguments).output().unwrap())
}

/// A folder with a network that is small enough for an interpreter.
fn small() -> Place {
    let place = Place::new();
    let sizes = TaggerSizes { steps: 3, features: 5, hidden: 8, tags: 4 };
    place.write("small.onnx", tagger(sizes, 6).encode_to_vec());
    place
}

fn compiled(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut whole: Value = serde_json::from_str(&ended.out).unwrap();
    whole["targets"][0].take()
}

#[test]
fn a_model_is_compiled_verified_measured_and_run_in_ptx() {
    let place = small();
    let devices = hone(&place, "capability=8.6", &["devices", "--json", "--no-probe"]);
    let devices: Value = serde_json::from_str(&devices.out).unwrap();
    let all = devices["devices"].as_array().unwrap();
    let device = all.iter().find(|own| own["api"] == "CUDA").unwrap();
    assert_eq!(device["version"], "compute capability 8.6");
    assert_eq!(device["driver"], "12.8");

    // `cuda` is the architecture of the device.
    let arguments = ["compile", "small.onnx", "--json", "--accelerator", "cuda"];
    let target = compiled(&hone(&place, "capability=8.6", &arguments));
    let report = &target["report"];
    assert_eq!(report["correctness"]["passed"], true, "{report}");
    let by = report["correctness"]["executedBy"].as_str().unwrap();
    assert_eq!(by, "CUDA interpreter of PTX, driver 12.8");
    assert!(report["latency"].is_object(), "{report}");
    assert_eq!(target["details"]["target"]["accelerator"], "sm_86");

    let artifact = place.only("out", "hone");
    let artifact = artifact.to_str().unwrap();
    let verify = ["verify", artifact, "--model", "small.onnx", "--kernels"];
    let verified = hone(&place, "capability=8.6", &verify);
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(verified.out.contains("runs on CUDA interpreter of PTX"), "{}", verified.out);
    let run = ["run", artifact, "--random", "1", "--outputs", "device.npz"];
    let ended = hone(&place, "capability=8.6", &run);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let bench = ["bench", artifact, "--json", "--seconds", "0.2"];
    let bench = hone(&place, "capability=8.6", &bench);
    assert_eq!(bench.code, 0, "{}", bench.err);
    let bench: Value = serde_json::from_str(&bench.out).unwrap();
    let steps = bench["details"]["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["nanoseconds"].as_u64().unwrap() > 0), "{steps:?}");
    let shown = place.hone(&["inspect", artifact, "--kernel", "hone_k0"]);
    assert!(shown.out.contains(".visible .entry hone_k0"), "{}", shown.out);

    // Older devices do not run it.
    let ended = hone(&place, "capability=8.0", &run);
    assert_eq!(ended.code, 16, "{}", ended.err);
    assert!(ended.err.contains("compile with --accelerator sm_80"), "{}", ended.err);
    // A device that is lost has an exit code of its own.
    let ended = hone(&place, "capability=8.6 fault=launch:2", &run);
    assert_eq!(ended.code, 43, "{}", ended.err);
    assert!(ended.err.contains("CUDA_ERROR_LAUNCH_FAILED"), "{}", ended.err);
}

#[test]
fn without_a_device_the_artifact_is_made_and_not_run() {
    let place = small();
    let hone = |arguments: &[&str]| {
        let mut command = place.command();
        command.env("HONE_CUDA_LIBRARY", "libNoSuchDriver.so.1").args(arguments);
        place.ended(command.output().unwrap())
    };
    let target = compiled(&hone(&["compile", "small.onnx", "--json", "--accelerator", "sm_90"]));
    assert_eq!(target["details"]["target"]["accelerator"], "sm_90a");
    assert_eq!(target["report"].get("correctness"), None);
    let notes = target["details"]["notes"].to_string();
    assert!(notes.contains("neither verified nor measured (this system has no CUDA"), "{notes}");
    let ended = hone(&["compile", "small.onnx", "--accelerator", "cuda"]);
    assert_eq!(ended.code, 16, "{}", ended.err);
    assert!(ended.err.contains("name an architecture, such as sm_80"), "{}", ended.err);
    let ended = hone(&["compile", "small.onnx", "--accelerator", "sm_70"]);
    assert_eq!(ended.code, 16, "{}", ended.err);
    assert!(ended.err.contains("there is no accelerator 'sm_70'"), "{}", ended.err);
}
