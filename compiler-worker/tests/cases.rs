//! Runs the cases in `tests/cli/`: what each command says and how it ends.
//!
//! A case is a line `$ hone …`, then `exit N`, then what it writes to standard output and standard
//! error. They run in a folder of models and artifacts that are made here. `HONE_UPDATE_EXPECT=1`
//! rewrites what is expected.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write;

use common::{Place, npz, onnx, repository};

/// A folder with every kind of good and bad input.
fn place() -> Place {
    let place = Place::new();
    let digits = std::fs::read(repository("examples/digits/digits.onnx")).unwrap();
    place.write("text.onnx", "This is a letter, not a model.\n");
    place.write("empty.onnx", "");
    place.write("truncated.onnx", &digits[..digits.len() / 2]);
    place.write("relu.onnx", onnx::unary("Relu", &["1", "8"]));
    place.write("open.onnx", onnx::unary("Relu", &["batch", "8"]));
    place.write("nan.onnx", onnx::unary("Sqrt", &["1", "8"]));
    place.write("pair.onnx", pair());
    place.write("both.onnx", onnx::unary("Relu", &["a", "b", "c"]));
    given(&place);
    broken_models(&place);
    specs(&place);
    artifacts(&place);
    place
}

/// The sum of two inputs with a common open dimension.
fn pair() -> Vec<u8> {
    let add = onnx::node("sum", "Add", &["x", "y"], &["z"]);
    let port = |name: &str| onnx::port(name, &["batch", "8"]);
    onnx::model(&[add], &[], &[port("x"), port("y")], &[port("z")])
}

/// Arrays for models, good and bad.
fn given(place: &Place) {
    let both = |x: &[usize], y: &[usize]| npz::f32s(&[("x", x), ("y", y)]);
    place.write("two.npz", both(&[2, 8], &[2, 8]));
    place.write("three.npz", both(&[3, 8], &[3, 8]));
    place.write("five.npz", both(&[5, 8], &[5, 8]));
    place.write("differ.npz", both(&[2, 8], &[3, 8]));
    place.write("missing.npz", npz::f32s(&[("x", &[2, 8])]));
    place.write("unknown.npz", npz::f32s(&[("x", &[2, 8]), ("y", &[2, 8]), ("mask", &[2])]));
    place.write("double.npz", npz::zeros("x", "<f8", &[2, 8], 128));
    place.write("rank.npz", npz::f32s(&[("x", &[8])]));
    place.write("narrow.npz", npz::f32s(&[("x", &[1, 7])]));
}

fn broken_models(place: &Place) {
    let (x, y) = (onnx::port("x", &["1", "8"]), onnx::port("y", &["1", "8"]));
    let nodes = [
        onnx::node("first", "Frobnicate", &["x"], &["a"]),
        onnx::node("second", "Relu", &["a"], &["b"]),
        onnx::node("third", "Transmogrify", &["b"], &["y"]),
    ];
    let unknown = onnx::model(&nodes, &[], std::slice::from_ref(&x), std::slice::from_ref(&y));
    place.write("unknown.onnx", unknown);
    let add = [onnx::node("sum", "Add", &["x", "z"], &["y"])];
    let z = onnx::port("z", &["3", "5"]);
    let shape = onnx::model(&add, &[], &[x.clone(), z], std::slice::from_ref(&y));
    place.write("shape.onnx", shape);
    let circle =
        [onnx::node("one", "Relu", &["b"], &["a"]), onnx::node("two", "Relu", &["a"], &["b"])];
    let last = onnx::node("last", "Relu", &["b"], &["y"]);
    let nodes = [&circle[..], &[last]].concat();
    let cycle = onnx::model(&nodes, &[], std::slice::from_ref(&x), std::slice::from_ref(&y));
    place.write("cycle.onnx", cycle);
    place.write("secret.bin", [0; 32]);
    for (name, location) in [("outside", "../secret.bin"), ("link", "link.bin")] {
        let stored = [onnx::external("z", 8, location)];
        let model = onnx::model(&add, &stored, std::slice::from_ref(&x), std::slice::from_ref(&y));
        place.write(&format!("models/{name}.onnx"), model);
    }
    std::os::unix::fs::symlink(place.path("secret.bin"), place.path("models/link.bin")).unwrap();
}

fn specs(place: &Place) {
    let spec = |rest: &str| {
        format!(
            "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {{name: relu}}\nspec:\n  model: {{uri: file://./relu.onnx}}\n  targets: [{{name: host, platform: {{arch: amd64, cpu: host}}}}]\n  output: {{uri: file://./out}}\n{rest}"
        )
    };
    place.write("open.yaml", spec("").replace("./relu.onnx", "./both.onnx"));
    place.write("unknown-field.yaml", spec("  goalz: []\n"));
    place.write("not-yet.yaml", spec("  tuning: {maxTrials: 100}\n  precision: {allow: [f32, f16], maxRelativeError: \"1e-2\"}\n"));
    let pair = |inputs: &str| {
        spec(&format!("  inputs: [{inputs}]\n")).replace("./relu.onnx", "./pair.onnx")
    };
    place.write("sizes.yaml", pair("{name: batch, sizes: [1, 2], range: {min: 1, max: 2}}"));
    let digest = "0".repeat(64);
    let wrong = spec("").replace("relu.onnx}", &format!("relu.onnx, digest: 'sha256:{digest}'}}"));
    place.write("wrong-digest.yaml", wrong);
    place.write("models/climbs.yaml", spec("").replace("./relu.onnx", "./../relu.onnx"));
    let private = spec("").replace(
        "file://./relu.onnx",
        &format!("'https://169.254.169.254/model', digest: 'sha256:{digest}'"),
    );
    place.write("metadata.yaml", private);
}

fn artifacts(place: &Place) {
    let ended = place.hone(&["compile", "relu.onnx", "--out", "good", "--no-measure"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let good = std::fs::read(place.only("good", "hone")).unwrap();
    place.write("good.hone", &good);
    place.write("cut.hone", &good[..good.len() - 100]);
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    place.write("flipped.hone", flipped);
    let arguments = ["pair.onnx", "--shape", "batch=2|3", "--out", "sizes", "--no-measure"];
    let ended = place.hone(&[&["compile"], &arguments[..]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    std::fs::copy(place.only("sizes", "hone"), place.path("sizes.hone")).unwrap();
    let other = if cfg!(target_arch = "aarch64") { "linux/amd64" } else { "linux/arm64" };
    let ended = place.hone(&["compile", "relu.onnx", "--out", "other", "--target", other]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    std::fs::copy(place.only("other", "hone"), place.path("other.hone")).unwrap();
}

/// Runs every command of a file and gives the file as it should be.
fn replay(place: &Place, text: &str) -> String {
    let mut expected = String::new();
    for line in text.lines().filter(|line| line.starts_with(['$', '#'])) {
        let _ = writeln!(expected, "{line}");
        let Some(command) = line.strip_prefix("$ hone ") else { continue };
        let arguments: Vec<&str> = command.split_whitespace().collect();
        let ended = place.hone(&arguments);
        let said = without_sizes(&format!("{}{}", ended.out, ended.err));
        let _ = write!(expected, "exit {}\n{said}\n", ended.code);
    }
    expected
}

/// What was said, with sizes in bytes as `N`: those of artifacts differ from processor to processor.
fn without_sizes(said: &str) -> String {
    let sizes = regex::Regex::new(r"is \d+ bytes long where it should be \d+").unwrap();
    sizes.replace_all(said, "is N bytes long where it should be N").into_owned()
}

#[test]
fn every_command_says_and_ends_as_expected() {
    let place = place();
    let update = std::env::var_os("HONE_UPDATE_EXPECT").is_some();
    let mut files: Vec<_> = std::fs::read_dir(repository("compiler-worker/tests/cli"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut differing = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let found = replay(&place, &text);
        if found == text {
            continue;
        }
        if update {
            std::fs::write(&file, &found).unwrap();
        } else {
            differing.push(format!("{}\n--- expected\n{text}\n--- found\n{found}", file.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
    // No refusal left anything behind.
    for folder in ["out", "refused"] {
        assert_eq!(place.names(folder), Vec::<String>::new(), "{folder}");
    }
}
