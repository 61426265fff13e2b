//! Artifacts for an OpenCL device: compiled, verified kernel by kernel, measured, run and shown by the program.
//!
//! PoCL (`cargo xtask setup --tests` installs it) is a device on every processor. Without a device these tests are
//! left out, unless `HONE_OPENCL=required`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Ended, Place, repository};
use serde_json::Value;

/// The devices that `hone devices` lists; `None` where the tests are left out.
fn devices(place: &Place) -> Option<Value> {
    let ended = place.hone(&["devices", "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let shown: Value = serde_json::from_str(&ended.out).unwrap();
    let all = shown["devices"].as_array().unwrap().iter();
    let own: Vec<Value> = all.filter(|device| device["api"] == "OpenCL").cloned().collect();
    if own.is_empty() {
        let (required, why) = (std::env::var_os("HONE_OPENCL"), &shown["noDevices"]["OpenCL"]);
        assert!(required.is_none_or(|own| own != "required"), "there is no OpenCL device: {why}");
        eprintln!("SKIPPED: {why}");
        return None;
    }
    Some(own.into())
}

fn digits(place: &Place) {
    let digits = std::fs::read(repository("examples/digits/digits.onnx")).unwrap();
    place.write("digits.onnx", digits);
}

fn compiled(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut whole: Value = serde_json::from_str(&ended.out).unwrap();
    whole["targets"][0].take()
}

#[test]
fn a_model_is_compiled_verified_measured_and_run_on_a_device() {
    let place = Place::new();
    let Some(devices) = devices(&place) else { return };
    let first = &devices[0];
    assert!(first["peaks"]["flops"].as_f64().unwrap() > 1e8, "{first}");
    assert!(first["peaks"]["bandwidth"].as_f64().unwrap() > 1e7, "{first}");
    assert!(!first["driver"].as_str().unwrap().is_empty(), "{first}");

    digits(&place);
    let target =
        compiled(&place.hone(&["compile", "digits.onnx", "--json", "--accelerator", "opencl"]));
    let report = &target["report"];
    assert_eq!(report["correctness"]["passed"], true, "{report}");
    let by = report["correctness"]["executedBy"].as_str().unwrap();
    assert!(by.starts_with("OpenCL ") && by.contains(", driver "), "{by}");
    assert!(report["latency"].is_object(), "{report}");
    assert_eq!(target["details"]["target"]["accelerator"], "opencl");
    let plain = compiled(&place.hone(&["compile", "digits.onnx", "--json", "--out", "plain"]));
    assert_ne!(report["fingerprint"], plain["report"]["fingerprint"]);

    let artifact = place.only("out", "hone");
    let artifact = artifact.to_str().unwrap();
    let verified = place.hone(&["verify", artifact, "--model", "digits.onnx"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(verified.out.contains(&format!("runs on {by}: ")), "{}", verified.out);
    assert!(verified.out.contains("kernels"), "{}", verified.out);
    let run = place.hone(&["run", artifact, "--random", "1", "--outputs", "device.npz"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let bench = place.hone(&["bench", artifact, "--json", "--seconds", "0.2"]);
    assert_eq!(bench.code, 0, "{}", bench.err);
    let bench: Value = serde_json::from_str(&bench.out).unwrap();
    let steps = bench["details"]["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["nanoseconds"].as_u64().unwrap() > 0), "{steps:?}");
    let shown = place.hone(&["inspect", artifact, "--kernel", "hone_k0"]);
    assert!(shown.out.contains("__kernel __attribute__"), "{}", shown.out);
}

#[test]
fn what_an_accelerator_does_not_do_is_refused_in_words() {
    let place = Place::new();
    digits(&place);
    let bf16 = ["--precision", "bf16", "--max-relative-error", "1e-2"];
    for (arguments, code, words) in [
        (
            &["--accelerator", "metal"][..],
            16,
            "there is no accelerator 'metal': use opencl, webgpu, sm_75",
        ),
        (&["--accelerator", "opencl", "--baseline"], 15, "no naive schedules"),
        (&[&["--accelerator", "opencl"], &bf16[..]].concat(), 15, "below f32 on OpenCL"),
        (
            &["--accelerator", "opencl", "--target", "linux/arm64:cortex-a72"],
            16,
            "remove cpu and features",
        ),
        (&["--accelerator", "opencl", "--target", "none/amd64"], 16, "must be linux"),
    ] {
        let ended = place.hone(&[&["compile", "digits.onnx"], arguments].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(words), "{arguments:?}: {}", ended.err);
        assert!(place.names("out").is_empty(), "{arguments:?}");
    }
}

#[test]
fn without_a_device_the_artifact_is_made_and_not_run() {
    let place = Place::new();
    digits(&place);
    let hone = |arguments: &[&str]| {
        let mut command = place.command();
        command.env("HONE_OPENCL_LIBRARY", "libNoSuchLoader.so.1").args(arguments);
        place.ended(command.output().unwrap())
    };
    let compile = ["compile", "digits.onnx", "--json", "--accelerator", "opencl"];
    let target = compiled(&hone(&compile));
    assert_eq!(target["report"].get("correctness"), None);
    let notes = target["details"]["notes"].to_string();
    assert!(notes.contains("neither verified nor measured (this system has no OpenCL"), "{notes}");
    let artifact = place.only("out", "hone");
    let ended = hone(&["run", artifact.to_str().unwrap(), "--random", "1"]);
    assert_eq!(ended.code, 16, "{}", ended.err);
    assert!(ended.err.contains("this system has no OpenCL loader"), "{}", ended.err);
    // Code for the processor does not ask for a loader.
    let ended = hone(&["run", "digits.onnx", "--random", "1"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let shown = hone(&["devices", "--no-probe"]);
    assert!(shown.out.contains("no OpenCL device: this system has no OpenCL"), "{}", shown.out);
}

/// A pod of a pool of GPUs that was given none says so before it compiles, and stores nothing.
#[test]
fn a_worker_without_the_device_of_its_pool_fails() {
    let place = Place::new();
    digits(&place);
    let root = place.path(".");
    let worker = |accelerator: &str, pool: Option<&str>| {
        let request = serde_json::json!({
            "version": 2,
            "subject": {"namespace": "team", "name": "digits", "uid": "1"},
            "work": {
                "kind": "compile",
                "model": {"uri": format!("file://{}/digits.onnx", root.display())},
                "target": {
                    "name": "gpu", "os": "linux", "arch": "", "accelerator": accelerator, "pool": pool,
                },
                "precision": ["f32"],
                "tuning": {"policy": "Never"},
                "correctness": {"rtol": 1e-3, "atol": 1e-4},
                "output": {"uri": format!("file://{}/out", root.display())},
            },
        });
        let mut command = place.command();
        command
            .args(["worker", "--termination", "message"])
            .env("HONE_REQUEST", request.to_string());
        command.env("HONE_FILE_ROOT", &root).env("HONE_SCRATCH", &root);
        command.env("HONE_OPENCL_LIBRARY", "libNoSuchLoader.so.1");
        command.env("HONE_CUDA_LIBRARY", "libNoSuchDriver.so.1");
        let ended = place.ended(command.output().unwrap());
        let message = std::fs::read_to_string(place.path("message")).unwrap();
        (ended, serde_json::from_str::<Value>(&message).unwrap())
    };
    for (accelerator, library) in [
        ("opencl", "libNoSuchLoader.so.1"),
        ("sm_80", "libNoSuchDriver.so.1"),
        ("cuda", "libNoSuchDriver.so.1"),
    ] {
        let (ended, message) = worker(accelerator, Some("gpus"));
        assert_eq!(ended.code, 16, "{}", ended.err);
        assert_eq!(message["failure"]["reason"], "TargetMismatch", "{message}");
        let why = message["failure"]["message"].as_str().unwrap();
        assert!(why.contains("pool 'gpus' was given no device; see that"), "{why}");
        assert!(why.contains(library), "{why}");
        assert!(place.names("out").iter().all(|name| !name.ends_with(".hone")), "{accelerator}");
    }
    // No pool has devices of browsers, and nobody gave this machine a device.
    for (accelerator, pool, why) in
        [("webgpu", Some("cpus"), "WebGPU"), ("opencl", None, "this system has no OpenCL loader")]
    {
        let (ended, message) = worker(accelerator, pool);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(message["unverified"].as_str().unwrap().contains(why), "{message}");
        assert!(message.get("correctness").is_none() && message.get("latency").is_none());
    }
}
