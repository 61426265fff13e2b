//! Artifacts for another processor: compiled, verified in an emulator, never measured.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Ended, Place, repository};
use serde_json::Value;

/// Another architecture than this machine's, as the command line takes it, and its emulator.
const OTHER: (&str, &str) = if cfg!(target_arch = "aarch64") {
    ("linux/riscv64", "qemu-riscv64")
} else {
    ("linux/arm64:neoverse-n1", "qemu-aarch64")
};

fn is_required() -> bool {
    std::env::var_os("CI").is_some()
        || std::env::var_os("HONE_EMULATORS").is_some_and(|word| word == "required")
}

/// The digits network compiled for the other architecture.
fn compile(place: &Place, arguments: &[&str]) -> Ended {
    let digits = std::fs::read(repository("examples/digits/digits.onnx")).unwrap();
    place.write("digits.onnx", digits);
    place.hone(&[&["compile", "digits.onnx", "--json", "--target", OTHER.0], arguments].concat())
}

fn target(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut whole: Value = serde_json::from_str(&ended.out).unwrap();
    whole["targets"][0].take()
}

#[test]
fn code_for_another_processor_is_verified_in_an_emulator_and_not_measured() {
    let place = Place::new();
    let target = target(&compile(&place, &[]));
    let notes = target["details"]["notes"].to_string();
    let Some(by) = target["report"]["correctness"]["executedBy"].as_str() else {
        assert!(!is_required(), "no emulator: {notes}");
        assert!(notes.contains("neither verified nor measured (no emulator"), "{notes}");
        eprintln!("SKIPPED: no emulator of {}", OTHER.0);
        return;
    };
    assert!(by.starts_with(OTHER.1), "{by}");
    assert_eq!(target["report"]["correctness"]["passed"], true);
    assert!(target["details"]["elementsCompared"].as_u64().unwrap() > 0);
    assert_eq!(target["report"].get("latency"), None);
    assert!(notes.contains(&format!("verified by {by}, not measured")), "{notes}");

    let artifact = place.only("out", "hone");
    let verified = place.hone(&["verify", artifact.to_str().unwrap(), "--model", "digits.onnx"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(verified.out.contains(&format!("runs by {by}: ")), "{}", verified.out);
    assert!(verified.out.contains("answers: "), "{}", verified.out);
}

#[test]
fn without_an_emulator_the_report_says_that_nothing_was_verified() {
    let place = Place::new();
    let digits = std::fs::read(repository("examples/digits/digits.onnx")).unwrap();
    place.write("digits.onnx", digits);
    // The linker alone is on the path.
    let linkers = ["ld.lld-19", "ld.lld"].map(|name| format!("/usr/bin/{name}"));
    let linker = linkers.iter().find(|path| std::path::Path::new(path).exists());
    std::fs::create_dir(place.path("programs")).unwrap();
    if let Some(linker) = linker {
        let name = std::path::Path::new(linker).file_name().unwrap();
        std::os::unix::fs::symlink(linker, place.path("programs").join(name)).unwrap();
    }
    let hone = |arguments: &[&str]| {
        let mut command = place.command();
        command.env("PATH", place.path("programs")).args(arguments);
        place.ended(command.output().unwrap())
    };
    let target = target(&hone(&["compile", "digits.onnx", "--json", "--target", OTHER.0]));
    assert_eq!(target["report"].get("correctness"), None);
    let notes = target["details"]["notes"].to_string();
    let advice = format!("install {} (package qemu-user)", OTHER.1);
    assert!(notes.contains("neither verified nor measured"), "{notes}");
    assert!(notes.contains(&advice), "{notes}");
    let refused = hone(&["verify", place.only("out", "hone").to_str().unwrap()]);
    assert_eq!(refused.code, 16, "{}", refused.err);
    assert!(refused.err.contains("artifact is for a CPU that this one is not"), "{}", refused.err);
}

#[test]
fn verifying_can_be_left_out() {
    let place = Place::new();
    let target = target(&compile(&place, &["--no-verify"]));
    assert_eq!(target["report"].get("correctness"), None);
    let notes = target["details"]["notes"].to_string();
    assert!(notes.contains("neither verified nor measured"), "{notes}");
}
