//! Artifacts for NVIDIA's devices: compiled, verified kernel by kernel, measured, run and shown by the program, with the
//! driver of the tests, which interprets PTX (`tests/cuda`). Its times mean nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Ended, Place};
use hone_driver::{Accelerator, DataType, ImportOptions, Options, Target, compile_graph, import};
use hone_model_builder::{
    BertSizes, Builder, TaggerSizes, bert, convolutions, quantized_signed, tagger,
};
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

/// A folder with two products of matrices that take longer than their launches do, small enough for an interpreter.
fn dense(rows: usize, width: usize) -> Place {
    let place = Place::new();
    let mut builder = Builder::new("dense", 7);
    let mut value = builder.input("x", &[rows, width]);
    for name in ["first", "second"] {
        let weight = builder.weight(name, &[width, width], 0.0, 0.06);
        value = builder.node("MatMul", &[&value, &weight], Vec::new());
        value = builder.node("Relu", &[&value], Vec::new());
    }
    builder.output("y", &value, &[rows, width]);
    place.write("dense.onnx", builder.finish().encode_to_vec());
    place
}

/// `hone` on a machine without a device.
fn without_device(place: &Place, arguments: &[&str]) -> Ended {
    let mut command = place.command();
    command.env("HONE_CUDA_LIBRARY", "libNoSuchDriver.so.1").args(arguments);
    place.ended(command.output().unwrap())
}

/// The text of the only artifact's code.
fn ptx(place: &Place) -> String {
    let bytes = std::fs::read(place.only("out", "hone")).unwrap();
    let reader = hone_artifact::Reader::new(&bytes).unwrap();
    String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap()
}

#[test]
fn without_a_device_an_estimate_decides_on_tensor_cores() {
    for (precision, bound) in [("bf16", "2e-2"), ("f16", "3e-3")] {
        let place = dense(64, 256);
        let options = ["--precision", precision, "--max-relative-error", bound];
        let compile = ["compile", "dense.onnx", "--json", "--accelerator", "sm_80"];
        let target = compiled(&without_device(&place, &[&compile[..], &options[..]].concat()));
        assert_eq!(target["report"]["precision"], precision, "{target}");
        assert_eq!(target["report"].get("latency"), None, "nothing was measured");
        let estimated = &target["details"]["estimated"];
        assert_eq!(estimated["device"], "A100", "{target}");
        let time = |which: &str| estimated[which].as_f64().unwrap();
        assert!(time("before") > 1.1 * time("after"), "{estimated}");
        let notes = target["details"]["notes"].to_string();
        assert!(notes.contains("is kept by an estimate, not measured"), "{notes}");
        assert!(ptx(&place).contains("mma.sync"), "{precision}");
        // The second time it is known.
        let again = compiled(&without_device(&place, &[&compile[..], &options[..]].concat()));
        assert_eq!(again["report"]["precision"], precision, "{again}");
        assert_eq!(again["report"]["artifact"]["digest"], target["report"]["artifact"]["digest"]);

        // What was estimated is what a device's run tells.
        let artifact = place.only("out", "hone");
        let verify = ["verify", artifact.to_str().unwrap(), "--model", "dense.onnx", "--kernels"];
        let verify = [&verify[..], &["--seed", "5", "--max-relative-error", bound]].concat();
        let verified = hone(&place, "capability=8.0", &verify);
        assert_eq!(verified.code, 0, "{}", verified.err);
        assert!(verified.out.contains("runs on CUDA interpreter of PTX"), "{}", verified.out);
    }
}

#[test]
fn an_estimate_leaves_what_does_not_pay_or_is_too_far_off() {
    let choose = |place: &Place, extra: &[&str]| {
        let compile = ["compile", "dense.onnx", "--json", "--precision", "bf16"];
        compiled(&without_device(place, &[&compile[..], extra].concat()))
    };
    for (rows, extra, words) in [
        // A launch takes longer than all of it.
        (8, &["--accelerator", "sm_80", "--max-relative-error", "2e-2"][..], "does not pay"),
        (64, &["--accelerator", "sm_80", "--max-relative-error", "1e-6"], "its largest error is"),
        (64, &["--accelerator", "sm_75", "--max-relative-error", "2e-2"], "no instructions for it"),
        (
            64,
            &["--accelerator", "sm_80", "--max-relative-error", "2e-2", "--no-verify"],
            "only verifying",
        ),
    ] {
        let place = dense(rows, 256);
        let target = choose(&place, extra);
        assert_eq!(target["report"]["precision"], "f32", "{extra:?}: {target}");
        let notes = target["details"]["notes"].to_string();
        assert!(notes.contains(words), "{extra:?}: {notes}");
        assert!(!ptx(&place).contains("mma.sync"), "{extra:?}");
    }
}

/// Where a device is at hand it is measured, whatever an estimate says; the times of an interpreter decide nothing here.
#[test]
fn on_a_device_precision_is_measured() {
    let place = dense(16, 32);
    let compile = ["compile", "dense.onnx", "--json", "--accelerator", "sm_80"];
    let options = ["--precision", "f16", "--max-relative-error", "1e-2"];
    let target = compiled(&hone(&place, "capability=8.0", &[&compile[..], &options[..]].concat()));
    assert_eq!(target["details"].get("estimated"), None, "{target}");
    let notes = target["details"]["notes"].to_string();
    assert!(notes.contains("times as fast") && !notes.contains("estimate"), "{notes}");
}

#[test]
fn a_specification_asks_for_tensor_cores_too() {
    let place = dense(64, 256);
    let spec = |precision: &str, accelerator: &str| {
        format!(
            "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {{name: dense}}\nspec:\n  model: {{uri: file://./dense.onnx}}\n  precision: {{allow: [f32, {precision}], maxRelativeError: \"2e-2\"}}\n  targets:\n  - name: gpu\n    platform: {{os: linux, arch: {}{accelerator}}}\n  output: {{uri: file://./out}}\n",
            match std::env::consts::ARCH {
                "aarch64" => "arm64",
                _ => "amd64",
            }
        )
    };
    for precision in ["bf16", "f16"] {
        place.write("spec.yaml", spec(precision, ", accelerator: sm_80"));
        let out = format!("out-{precision}");
        let arguments = ["compile", "-f", "spec.yaml", "--json", "--out", &out];
        let target = compiled(&without_device(&place, &arguments));
        assert_eq!(target["report"]["precision"], precision, "{target}");
        assert!(target["details"]["estimated"].is_object(), "{target}");
    }
    let plan = without_device(&place, &["plan", "-f", "spec.yaml", "--json"]);
    assert_eq!(plan.code, 0, "{}", plan.err);
    let plan: Value = serde_json::from_str(&plan.out).unwrap();
    assert_eq!(plan[0]["runsHere"], false, "{plan}");
    assert_eq!(
        plan[0]["precision"],
        "f16 where an estimate says that it pays, not measured; else f32"
    );
    // Processors have no such arithmetic here.
    place.write("spec.yaml", spec("f16", ""));
    let ended = without_device(&place, &["compile", "-f", "spec.yaml"]);
    assert_eq!(ended.code, 15, "{}", ended.err);
    assert!(ended.err.contains("f16 and int8 arrive in a later release"), "{}", ended.err);
}

/// Every kernel on tensor cores alone, of a transformer and of convolutions, by `hone verify` on the driver of the tests.
#[test]
fn kernels_of_bytes_are_verified_one_by_one() {
    let place = Place::new();
    let model = quantized_signed(8, 5).encode_to_vec();
    let path = place.write("model.onnx", &model);
    let graph = import(&model, &ImportOptions::default()).unwrap().graph;
    let target = Target::host().unwrap().with_accelerator(Accelerator::Sm80).unwrap();
    let artifact = compile_graph(graph, &model, &Options::new(target)).unwrap().artifact;
    assert!(artifact.windows(12).any(|bytes| bytes == b"s32.s8.s8.s3"), "no product of bytes");
    let artifact = place.write("model.hone", artifact);
    let [artifact, path] = [&artifact, &path].map(|own| own.to_str().unwrap());
    let verify = ["verify", artifact, "--model", path, "--kernels", "--seed", "3"];
    let verified = hone(&place, "capability=8.0", &verify);
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(verified.out.contains("each within its bound"), "{}", verified.out);
}

#[test]
fn kernels_on_tensor_cores_are_verified_one_by_one() {
    let sizes = BertSizes { tokens: 32, words: 90, width: 64, heads: 2, inner: 128, layers: 1 };
    let models = [("encoder", bert(&sizes, 3)), ("convolutions", convolutions(16, 6))];
    for (name, model) in models {
        let place = Place::new();
        let model = model.encode_to_vec();
        let path = place.write("model.onnx", &model);
        let graph = import(&model, &ImportOptions::default()).unwrap().graph;
        for (precision, bound) in [(DataType::BF16, "3e-2"), (DataType::F16, "5e-3")] {
            let target = Target::host().unwrap().with_accelerator(Accelerator::Sm80).unwrap();
            let options = Options { precision, ..Options::new(target) };
            let artifact = compile_graph(graph.clone(), &model, &options).unwrap().artifact;
            // Attention is one kernel, whose lanes exchange what is largest.
            let exchanges = artifact.windows(9).any(|bytes| bytes == b"shfl.sync");
            assert_eq!(exchanges, name == "encoder", "{name}");
            let artifact = place.write("model.hone", artifact);
            let [artifact, path] = [&artifact, &path].map(|own| own.to_str().unwrap());
            let verify = ["verify", artifact, "--model", path, "--kernels", "--seed", "3"];
            let verify = [&verify[..], &["--max-relative-error", bound]].concat();
            let verified = hone(&place, "capability=8.0", &verify);
            assert_eq!(verified.code, 0, "{name} in {precision}: {}", verified.err);
            assert!(verified.out.contains("each within its bound"), "{name}: {}", verified.out);
        }
    }
}
