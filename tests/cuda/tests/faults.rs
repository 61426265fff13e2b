//! Devices of NVIDIA's that are not there, are others, are too small, or fail: each is an error of its own, and nothing
//! hangs.
//!
//! The environment decides on the driver and is read once, so every fault is met in a process of its own: this program
//! again, which runs [`child`] alone.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{LIBRARY, SETTINGS, chain, compiled, library, options, said};
use hone_artifact::{Reader, Writer};
use hone_driver::{Accelerator, DataType};
use hone_model_builder::{TaggerSizes, tagger};
use hone_runtime::Model;
use prost::Message;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a child process is told to load.
const ARTIFACT: &str = "HONE_FAULT_ARTIFACT";

/// Loads an artifact and runs it three times, then loads it again and runs it, and says what came of it; only where it
/// is told to.
#[test]
fn child() {
    let Some(path) = std::env::var_os(ARTIFACT) else { return };
    println!();
    run("", Path::new(&path), 3);
    run("again, ", Path::new(&path), 1);
    println!("the process goes on");
}

fn run(again: &str, path: &Path, rounds: usize) {
    let device_timeout = Duration::from_secs(2);
    let options = hone_runtime::Options { device_timeout, ..Default::default() };
    let mut model = match Model::load(path, &options) {
        Ok(model) => model,
        Err(error) => return println!("{again}load: {}", chain(&error)),
    };
    let inputs: Vec<Vec<u8>> =
        model.inputs().iter().map(|own| vec![0; own.bytes as usize]).collect();
    let mut outputs: Vec<Vec<u8>> =
        model.outputs().iter().map(|own| vec![0; own.bytes as usize]).collect();
    let given: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    for round in 0..rounds {
        let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        match model.run(&given, &mut places) {
            Ok(()) => println!("{again}run {round}: fine"),
            Err(error) => println!("{again}run {round}: {}", chain(&error)),
        }
    }
}

/// A model with several kernels, launched more than once.
fn artifact(accelerator: Accelerator) -> Vec<u8> {
    let sizes = TaggerSizes { steps: 3, features: 5, hidden: 8, tags: 4 };
    compiled(&tagger(sizes, 4).encode_to_vec(), &options(accelerator, DataType::F32)).1
}

/// The same with another text of its kernels.
fn with_text(artifact: &[u8], change: impl Fn(String) -> String) -> Vec<u8> {
    let reader = Reader::new(artifact).unwrap();
    let text = String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap();
    let changed = change(text.clone());
    assert_ne!(text, changed);
    let mut writer = Writer::new();
    writer.code(changed.into_bytes());
    writer.weights(reader.weights(0).unwrap().to_vec());
    writer.to_bytes(reader.manifest()).unwrap()
}

/// What the child says of an artifact, with this driver and these words about its device.
fn told(artifact: &[u8], library: &Path, settings: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("model.hone");
    std::fs::write(&path, artifact).unwrap();
    let begin = Instant::now();
    let text = said("child", &[(ARTIFACT, &path), (LIBRARY, library)], &[(SETTINGS, settings)]);
    assert!(begin.elapsed() < Duration::from_secs(90), "it hung");
    assert!(text.contains("the process goes on"), "{text}");
    text
}

#[test]
fn a_device_that_works_runs_the_model_again_and_again() {
    let said = told(&artifact(Accelerator::Sm80), &library(), "");
    assert!(said.contains("run 2: fine") && said.contains("again, run 0: fine"), "{said}");
    // What is made for an older architecture runs on a later one.
    let said = told(&artifact(Accelerator::Sm75), &library(), "capability=12.0");
    assert!(said.contains("again, run 0: fine"), "{said}");
}

#[test]
fn a_system_without_devices_is_told_what_to_install() {
    let artifact = artifact(Accelerator::Sm80);
    let said = told(&artifact, Path::new("libNoSuchDriver.so.1"), "");
    assert!(said.contains("load: the artifact's steps cannot run on an accelerator: this system has no CUDA driver library 'libNoSuchDriver.so.1'"), "{said}");
    let said = told(&artifact, Path::new("libc.so.6"), "");
    assert!(said.contains("the CUDA driver library 'libc.so.6' has no function cuInit"), "{said}");
    let said = told(&artifact, &library(), "devices=0");
    assert!(said.contains("the CUDA driver has no device (CUDA error 100, CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected)"), "{said}");
}

#[test]
fn a_device_of_another_architecture_and_an_old_driver_are_refused() {
    let said = told(&artifact(Accelerator::Sm80), &library(), "capability=7.5");
    assert!(said.contains("has compute capability 7.5, which code for sm_80 does not run on: compile with --accelerator sm_75"), "{said}");
    // What ends with an `a` runs on its own device alone.
    let hopper = artifact(Accelerator::Sm90a);
    let said = told(&hopper, &library(), "capability=10.0");
    assert!(said.contains("has compute capability 10.0, which code for sm_90a"), "{said}");
    let said = told(&hopper, &library(), "capability=9.0 driver=11080");
    assert!(said.contains("is of CUDA 11.8, code for sm_90a needs 12.0: install"), "{said}");
    let said = told(&hopper, &library(), "capability=9.0 driver=12000");
    assert!(said.contains("run 2: fine"), "{said}");
}

#[test]
fn a_device_that_is_too_small_is_refused_when_loading() {
    let artifact = artifact(Accelerator::Sm80);
    let said = told(&artifact, &library(), "memory=1000");
    assert!(said.contains("has too little memory: ") && said.contains("of 1000 at most"), "{said}");
    // The third allocation is that of an input.
    let said = told(&artifact, &library(), "fault=memory:3");
    assert!(said.contains("load: ") && said.contains("has too little memory: "), "{said}");
    assert!(said.contains("again, run 0: fine"), "{said}");
    let said = told(&artifact, &library(), "lanes=64");
    assert!(
        said.contains("has 64 lanes of a block along a dimension, the artifact needs 1024"),
        "{said}"
    );
}

#[test]
fn code_that_the_driver_refuses_is_told_with_its_words() {
    let artifact = artifact(Accelerator::Sm80);
    let other = with_text(&artifact, |text| text.replacen("ret;", "rte;", 1));
    let said = told(&other, &library(), "");
    assert!(said.contains("refuses the artifact's kernels: ptxas fatal : "), "{said}");
    assert!(said.contains("rte") && said.contains("CUDA_ERROR_INVALID_PTX"), "{said}");
    let later = with_text(&artifact, |text| text.replacen(".version 7.1", ".version 9.9", 1));
    let said = told(&later, &library(), "");
    assert!(said.contains("Unsupported .version 9.9 (CUDA error 222"), "{said}");
    let other = with_text(&artifact, |text| text.replace(".entry hone_k0_0(", ".entry other("));
    let said = told(&other, &library(), "");
    assert!(
        said.contains("refuses kernel 'hone_k0_0': CUDA error 500, CUDA_ERROR_NOT_FOUND"),
        "{said}"
    );
}

#[test]
fn a_device_that_fails_while_it_runs_is_lost_until_the_model_is_loaded_again() {
    let artifact = artifact(Accelerator::Sm80);
    for (fault, words) in [
        ("fault=launch:3", "was lost: "),
        ("fault=gone:3", "was lost: a launch ended with CUDA error 46, CUDA_ERROR_DEVICE_UNAV"),
    ] {
        let said = told(&artifact, &library(), fault);
        let runs = said.lines().filter(|line| line.starts_with("run ") && line.contains(words));
        assert_eq!(runs.count(), 3, "{fault}: {said}");
        assert!(said.contains("again, run 0: fine"), "{fault}: {said}");
    }
    let said = told(&artifact, &library(), "fault=hang:3");
    let words = "has not answered for 2 seconds and counts as lost";
    let runs = said.lines().filter(|line| line.starts_with("run ") && line.contains(words));
    assert_eq!(runs.count(), 3, "{said}");
}

/// The interpreter computes: a kernel that leaves its buffers ends the run.
#[test]
fn a_kernel_that_leaves_its_buffers_is_found() {
    let artifact = with_text(&artifact(Accelerator::Sm80), |text| {
        let place = text.find("st.global.f32").unwrap();
        let end = place + text[place..].find(']').unwrap();
        format!("{}+8388608{}", text[..end].split('+').collect::<Vec<_>>().join("+"), &text[end..])
    });
    let said = told(&artifact, &library(), "");
    assert!(said.contains("CUDA_ERROR_ILLEGAL_ADDRESS") || said.contains("INVALID_PTX"), "{said}");
}
