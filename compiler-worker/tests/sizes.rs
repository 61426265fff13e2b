//! One artifact for several sizes of open dimensions: whole models against the reference at every size, what is kept
//! once, what is noticed, and what the commands say.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Place, npz, onnx};
use hone_artifact::{Reader, Slot, Writer};
use hone_model_builder::{BertSizes, ResNetDepth, bert_of_any_length, resnet_of_any_batch};
use prost::Message;
use serde_json::Value;

const BERT: BertSizes =
    BertSizes { tokens: 24, words: 50, width: 32, heads: 4, inner: 64, layers: 2 };

/// What `hone compile --json` says of the only target.
fn compile(place: &Place, arguments: &[&str]) -> Value {
    let ended = place.hone(&[&["compile", "--json"], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut whole: Value = serde_json::from_str(&ended.out).unwrap();
    whole["targets"][0].take()
}

fn sizes(target: &Value) -> Vec<String> {
    let sizes = target["report"]["sizes"].as_array().cloned().unwrap_or_default();
    sizes.iter().map(|own| own["sizes"].as_str().unwrap().to_owned()).collect()
}

/// Every size alone against the artifact for all of them: the same kernels, the weights not more than once.
fn same_as_alone(place: &Place, model: &str, all: &[u8], shapes: &[&str]) -> (u64, u64) {
    let reader = Reader::new(all).unwrap();
    let manifest = reader.manifest();
    assert_eq!(manifest.variants.len(), shapes.len());
    let programs = reader.inspect().unwrap().unwrap().kernels;
    let mut largest = 0;
    for (place_of, shape) in shapes.iter().enumerate() {
        let folder = format!("alone{place_of}");
        compile(place, &[model, "--shape", shape, "--out", &folder, "--no-verify", "--no-measure"]);
        let alone = std::fs::read(place.only(&folder, "hone")).unwrap();
        let alone = Reader::new(&alone).unwrap();
        let variant = &manifest.variants[place_of];
        let single = &alone.manifest().variants[0];
        assert!(single.shapes.is_none() && alone.manifest().schema_version < 3);
        assert_eq!(variant.steps.len(), single.steps.len(), "{shape}");
        assert_eq!(variant.arena_bytes, single.arena_bytes, "{shape}");
        for kernel in alone.inspect().unwrap().unwrap().kernels {
            let same = |own: &&hone_artifact::KernelText| own.program == kernel.program;
            assert!(programs.iter().any(|own| same(&own)), "{shape}: {}", kernel.kernel);
        }
        largest = largest.max(single.weights_bytes);
    }
    (manifest.variants[0].weights_bytes, largest)
}

#[test]
fn a_convolutional_network_is_right_at_every_batch() {
    let place = Place::new();
    let model = resnet_of_any_batch(ResNetDepth::D18, 32, 10, 3);
    place.write("resnet.onnx", model.encode_to_vec());
    let arguments = ["resnet.onnx", "--shape", "batch=1..4", "--out", "all", "--no-measure"];
    let target = compile(&place, &arguments);
    assert_eq!(sizes(&target), ["batch=4", "batch=3", "batch=2", "batch=1"]);
    assert_eq!(target["report"]["correctness"]["passed"], true);
    // The kernels of four variants.
    let checked = target["report"]["correctness"]["kernels"]["checked"].as_u64().unwrap();
    assert!(checked > 80, "{checked}");
    let path = place.only("all", "hone");
    let all = std::fs::read(&path).unwrap();
    let shapes = ["batch=4", "batch=3", "batch=2", "batch=1"];
    let (together, largest) = same_as_alone(&place, "resnet.onnx", &all, &shapes);
    println!("resnet18: {together} bytes of weights together, {largest} for the largest alone");
    assert!(together < largest * 2, "{together} bytes, {largest} alone");
    runs_as_the_reference_does(&place, "resnet.onnx", &path, &[[1, 3, 32, 32], [3, 3, 32, 32]]);
}

/// Runs of the artifact and of the reference on arrays of these shapes.
fn runs_as_the_reference_does(
    place: &Place,
    model: &str,
    artifact: &std::path::Path,
    shapes: &[[usize; 4]],
) {
    for shape in shapes {
        place.write("x.npz", npz::f32s(&[("x", shape)]));
        let summary = |arguments: &[&str]| {
            let ended = place.hone(&[&["run"], arguments, &["--inputs", "x.npz"]].concat());
            assert_eq!(ended.code, 0, "{}", ended.err);
            // Name and type; the numbers differ by rounding.
            ended.out.split_whitespace().take_while(|own| !own.contains('.')).count()
        };
        let batch = format!("f32[{}, 10]", shape[0]);
        let ended = place.hone(&["run", artifact.to_str().unwrap(), "--inputs", "x.npz"]);
        assert!(ended.out.contains(&batch), "{}{}", ended.out, ended.err);
        assert_eq!(summary(&[artifact.to_str().unwrap()]), summary(&[model, "--reference"]));
    }
}

#[test]
fn a_transformer_is_right_at_every_length_and_answers_come_from_the_cache() {
    let place = Place::new();
    place.write("bert.onnx", bert_of_any_length(&BERT, 3).encode_to_vec());
    let arguments = |out: &'static str| {
        ["bert.onnx", "--shape", "sequence=8|16|24", "--out", out, "--no-measure"]
    };
    let target = compile(&place, &arguments("all"));
    assert_eq!(sizes(&target), ["sequence=24", "sequence=16", "sequence=8"]);
    assert_eq!(target["report"]["correctness"]["passed"], true);
    let path = place.only("all", "hone");
    let all = std::fs::read(&path).unwrap();
    let shapes = ["sequence=24", "sequence=16", "sequence=8"];
    let (together, largest) = same_as_alone(&place, "bert.onnx", &all, &shapes);
    println!("bert: {together} bytes of weights together, {largest} for the largest alone");
    assert!(together < largest * 11 / 10, "{together} bytes, {largest} alone");
    // Equal work is known, whatever the order of the sizes; other sizes are other work.
    assert_eq!(compile(&place, &arguments("all"))["report"]["cacheHit"], true);
    let other = ["bert.onnx", "--shape", "sequence=8|16", "--out", "other", "--no-measure"];
    assert_eq!(compile(&place, &other)["report"]["cacheHit"], false);
    let turned = ["bert.onnx", "--shape", "sequence=24|8|16", "--out", "turned", "--no-measure"];
    compile(&place, &[&turned[..], &["--force"]].concat());
    assert!(std::fs::read(place.only("turned", "hone")).unwrap() == all, "the same bytes");

    let verified = place.hone(&["verify", path.to_str().unwrap(), "--model", "bert.onnx"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    for sizes in shapes {
        assert!(verified.out.contains(&format!("\nat {sizes}:\nkernels: ")), "{}", verified.out);
    }
}

#[test]
fn every_size_is_measured_and_reported() {
    let place = Place::new();
    place.write("open.onnx", onnx::unary("Relu", &["batch", "8"]));
    let target = compile(&place, &["open.onnx", "--shape", "batch=2|5", "--out", "out"]);
    let measured = |sizes: &Value| {
        let sizes = sizes.as_array().unwrap().clone();
        let p50 = |own: &Value| own["latency"]["p50"].as_u64().unwrap();
        assert!(sizes.len() == 2 && sizes.iter().all(|own| p50(own) > 0), "{sizes:?}");
        p50(&sizes[0])
    };
    let first = measured(&target["report"]["sizes"]);
    assert_eq!(target["report"]["latency"]["p50"], first);
    let artifact = place.only("out", "hone");
    let artifact = artifact.to_str().unwrap();
    let bench = place.hone(&["bench", artifact, "--seconds", "0.1", "--json"]);
    let bench: Value = serde_json::from_str(&bench.out).unwrap();
    measured(&bench["sizes"]);
    // Arrays choose one of them.
    place.write("two.npz", npz::f32s(&[("x", &[2, 8])]));
    let arguments = ["bench", artifact, "--seconds", "0.1", "--json", "--inputs", "two.npz"];
    let bench = place.hone(&arguments);
    assert_eq!(bench.code, 0, "{}", bench.err);
    assert!(!bench.out.contains("\"sizes\""), "{}", bench.out);
    let inspected = place.hone(&["inspect", artifact]).out;
    assert!(inspected.contains("variant 0 (batch=5)") && inspected.contains("variant 1 (batch=2)"));
    let status = ["compile", "open.onnx", "--shape", "batch=2|5", "--out", "out", "--status"];
    let status = place.hone(&status).out;
    let status: Value = serde_yaml::from_str(&status).unwrap();
    assert_eq!(status["status"]["targets"][0]["sizes"][1]["sizes"], "batch=2");
    let page = std::fs::read_to_string(place.only("out", "html")).unwrap();
    assert!(page.contains("<td>batch=2</td>"));
}

/// An artifact that is right at its largest size and reads other weights at another.
#[test]
fn a_wrong_variant_is_noticed() {
    let place = Place::new();
    place.write("bert.onnx", bert_of_any_length(&BERT, 3).encode_to_vec());
    let arguments = ["bert.onnx", "--shape", "sequence=8|16", "--out", "out", "--no-measure"];
    compile(&place, &arguments);
    let good = std::fs::read(place.only("out", "hone")).unwrap();
    let reader = Reader::new(&good).unwrap();
    let mut manifest = reader.manifest().clone();
    let arguments = manifest.variants[1].steps.iter_mut().flat_map(|step| &mut step.arguments);
    let mut weights: Vec<&mut hone_artifact::Argument> = arguments
        .filter(|own| matches!(own.slot, Slot::Weight { offset } if offset > 0 && own.bytes == 128))
        .collect();
    let (first, rest) = weights.split_first_mut().unwrap();
    let other = rest.iter().find(|own| own.slot != first.slot).unwrap().slot;
    first.slot = other;
    let mut writer = Writer::new();
    writer.code(reader.code(0).unwrap());
    writer.weights(reader.weights(0).unwrap());
    place.write("wrong.hone", writer.to_bytes(&manifest).unwrap());
    let ended = place.hone(&["verify", "wrong.hone", "--model", "bert.onnx"]);
    assert_ne!(ended.code, 0, "{}", ended.out);
    assert!(ended.err.contains("'bert.onnx (sequence=8)' compiles to wrong code"), "{}", ended.err);
}

#[test]
fn code_for_another_processor_is_verified_at_every_size() {
    let place = Place::new();
    place.write("open.onnx", onnx::unary("Relu", &["batch", "8"]));
    let other = if cfg!(target_arch = "aarch64") { "linux/riscv64" } else { "linux/arm64" };
    let arguments = ["open.onnx", "--shape", "batch=1..3", "--out", "out", "--target", other];
    let target = compile(&place, &arguments);
    assert_eq!(sizes(&target), ["batch=3", "batch=2", "batch=1"]);
    match target["report"]["correctness"]["executedBy"].as_str() {
        Some(by) => {
            assert!(by.starts_with("qemu"), "{by}");
            assert_eq!(target["report"]["correctness"]["kernels"]["checked"], 3);
        }
        None => eprintln!("SKIPPED: no emulator of {other}"),
    }
}

/// A model for both inputs of which the sizes must be the same, by the YAML file.
#[test]
fn a_file_names_sizes_of_dimensions() {
    let place = Place::new();
    let add = onnx::node("sum", "Add", &["x", "y"], &["z"]);
    let port = |name: &str| onnx::port(name, &["batch", "8"]);
    let model = onnx::model(&[add], &[], &[port("x"), port("y")], &[port("z")]);
    place.write("pair.onnx", model);
    let spec = |inputs: &str| {
        format!(
            "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {{name: pair}}\nspec:\n  model: {{uri: file://./pair.onnx}}\n  targets: [{{name: host, platform: {{arch: amd64, cpu: host}}}}]\n  output: {{uri: file://./out}}\n  inputs: [{inputs}]\n"
        )
    };
    let cases = [
        "{name: batch, range: {min: 1, max: 3}}",
        "{name: batch, sizes: [3, 1, 2]}",
        "{name: x, shape: [\"1..3\", 8]}, {name: y, shape: [\"1|2|3\", 8]}",
    ];
    for (number, inputs) in cases.iter().enumerate() {
        let file = format!("case{number}.yaml");
        place.write(&file, spec(inputs));
        let target = compile(&place, &["-f", &file, "--no-measure"]);
        assert_eq!(sizes(&target), ["batch=3", "batch=2", "batch=1"], "{inputs}");
        // All say the same, so there is one artifact.
        place.only("out", "hone");
    }
}
