//! Artifacts for WebGPU: made by the program, shown by it, and run elsewhere. `tests/webgpu` runs them, by `wgpu` and in a
//! browser.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Place, repository};
use serde_json::Value;

fn place(model: &str) -> Place {
    let place = Place::new();
    place.write("model.onnx", std::fs::read(repository(model)).unwrap());
    place
}

#[test]
fn an_artifact_is_made_and_its_text_shown() {
    let place = place("examples/digits/digits.onnx");
    let ended = place.hone(&["compile", "model.onnx", "--json", "--accelerator", "webgpu"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let whole: Value = serde_json::from_str(&ended.out).unwrap();
    let target = &whole["targets"][0];
    assert_eq!(target["details"]["target"]["accelerator"], "webgpu");
    // Nothing here runs it, so nothing is said of its answers or its speed.
    assert_eq!(target["report"].get("correctness"), None);
    assert_eq!(target["report"].get("latency"), None);
    let notes = target["details"]["notes"].to_string();
    assert!(notes.contains("does not drive WebGPU"), "{notes}");

    let artifact = place.only("out", "hone");
    let artifact = artifact.to_str().unwrap();
    assert!(artifact.contains("/webgpu-"), "{artifact}");
    let shown = place.hone(&["inspect", artifact, "--kernel", "hone_k0"]);
    assert!(shown.out.contains("@compute @workgroup_size("), "{} {}", shown.out, shown.err);
    for command in ["run", "bench"] {
        let arguments: &[&str] = if command == "run" { &["--random", "1"] } else { &[] };
        let ended = place.hone(&[&[command, artifact], arguments].concat());
        assert_eq!(ended.code, 16, "{command}: {}", ended.err);
        assert!(ended.err.contains("runs in a browser"), "{command}: {}", ended.err);
    }
}

/// The same from YAML, where the status says why nothing was verified.
#[test]
fn yaml_names_it_too() {
    let place = place("examples/digits/digits.onnx");
    let yaml = "
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {name: digits}
spec:
  model: {uri: file://./model.onnx}
  targets: [{name: web, platform: {os: linux, arch: amd64, accelerator: webgpu}}]
  output: {uri: file://./out}
";
    place.write("digits.yaml", yaml);
    let ended = place.hone(&["compile", "-f", "digits.yaml", "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let whole: Value = serde_json::from_str(&ended.out).unwrap();
    let target = &whole["targets"][0];
    assert_eq!(target["details"]["target"]["accelerator"], "webgpu");
    let why = target["report"]["unverified"].as_str().unwrap();
    assert!(why.contains("does not drive WebGPU"), "{why}");
    let artifact = place.only("out", "hone");
    assert!(artifact.to_str().unwrap().contains("/web-"), "{}", artifact.display());
}

#[test]
fn what_a_page_does_not_do_is_refused() {
    let place = place("tests/models/control/choice.onnx");
    let ended = place.hone(&["compile", "model.onnx", "--accelerator", "webgpu"]);
    assert_eq!(ended.code, 15, "{}", ended.err);
    assert!(ended.err.contains("control flow and functions of the runtime"), "{}", ended.err);
    assert!(place.names("out").is_empty());
    let bf16 = ["--precision", "bf16", "--max-relative-error", "1e-2"];
    let ended =
        place.hone(&[&["compile", "model.onnx", "--accelerator", "webgpu"], &bf16[..]].concat());
    assert_eq!(ended.code, 15, "{}", ended.err);
    assert!(ended.err.contains("below f32"), "{}", ended.err);
}
