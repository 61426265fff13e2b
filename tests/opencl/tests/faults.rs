//! Devices that are not there, are too small, or fail: each is an error of its own, and nothing hangs.
//!
//! The environment decides on the loader and is read once, so every fault is met in a process of its own: this
//! program again, which runs [`child`] alone. Faults of drivers come from a loader in front of the system's
//! (`faulty/loader.c`), everything else is PoCL's.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{Reader, Writer};
use hone_driver::{Accelerator, Options, Target, compile_graph};
use hone_import::{ImportOptions, import};
use hone_model_builder::{TaggerSizes, tagger};
use hone_opencl_tests::device_of_tests;
use hone_runtime::Model;
use prost::Message;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What a child process is told to load.
const ARTIFACT: &str = "HONE_FAULT_ARTIFACT";
/// How many seconds a child waits for the device. Drivers compile at the first launch, so two are for devices that
/// never answer.
const TIMEOUT: &str = "HONE_FAULT_TIMEOUT";

/// Loads an artifact and runs it three times, and says what came of it; only where it is told to.
#[test]
fn child() {
    let Some(path) = std::env::var_os(ARTIFACT) else { return };
    println!();
    let seconds = std::env::var(TIMEOUT).ok().and_then(|seconds| seconds.parse().ok());
    let device_timeout = Duration::from_secs(seconds.unwrap_or(80));
    let options = hone_runtime::Options { device_timeout, ..Default::default() };
    let mut model = match Model::load(Path::new(&path), &options) {
        Ok(model) => model,
        Err(error) => return println!("load: {}", chain(&error)),
    };
    let inputs: Vec<Vec<u8>> =
        model.inputs().iter().map(|own| vec![0; own.bytes as usize]).collect();
    let mut outputs: Vec<Vec<u8>> =
        model.outputs().iter().map(|own| vec![0; own.bytes as usize]).collect();
    let given: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    for round in 0..3 {
        let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        match model.run(&given, &mut places) {
            Ok(()) => println!("run {round}: fine"),
            Err(error) => println!("run {round}: {}", chain(&error)),
        }
    }
    drop(model);
    println!("the process goes on");
    // PoCL may still compile for launches that never came, and its compiler ends the process with a failure where that
    // meets the destructors of an orderly end.
    std::io::stdout().flush().unwrap();
    // SAFETY: nothing of this process is needed any more.
    unsafe { libc::_exit(0) }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}

/// A model with several kernels, launched more than once.
fn artifact() -> Vec<u8> {
    let sizes = TaggerSizes { steps: 5, features: 8, hidden: 12, tags: 4 };
    let bytes = tagger(sizes, 4).encode_to_vec();
    let graph = import(&bytes, &ImportOptions::default()).unwrap().graph;
    let target = Target::host().unwrap().with_accelerator(Accelerator::OpenCl).unwrap();
    compile_graph(graph, &bytes, &Options::new(target)).unwrap().artifact
}

/// The same with another text of its kernels.
fn with_text(artifact: &[u8], change: impl Fn(String) -> String) -> Vec<u8> {
    let reader = Reader::new(artifact).unwrap();
    let text = String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap();
    let mut writer = Writer::new();
    writer.code(change(text).into_bytes());
    writer.weights(reader.weights(0).unwrap().to_vec());
    writer.to_bytes(reader.manifest()).unwrap()
}

/// A folder for one fault.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// What the child says in this environment.
    fn said(&self, artifact: &[u8], environment: &[(&str, &str)]) -> String {
        let path = self.write("model.hone", artifact);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(ARTIFACT, path);
        command.envs(environment.iter().copied());
        let begin = Instant::now();
        let output = command.output().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(90), "it hung");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// The loader that fails.
    fn loader(&self) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faulty/loader.c");
        let library = self.0.path().join("libfaulty.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wl,--no-as-needed", "-o"]).arg(&library);
        let done = compiler.arg(source).args(["-l:libOpenCL.so.1", "-ldl"]).status().unwrap();
        assert!(done.success());
        library.to_str().unwrap().to_owned()
    }
}

fn is_there() -> bool {
    device_of_tests().unwrap().is_some()
}

#[test]
fn a_device_that_works_runs_the_model() {
    if !is_there() {
        return;
    }
    let said = Place::new().said(&artifact(), &[]);
    assert!(said.contains("run 2: fine") && said.contains("the process goes on"), "{said}");
}

#[test]
fn a_system_without_devices_is_told_what_to_install() {
    let (place, artifact) = (Place::new(), artifact());
    let said = place.said(&artifact, &[("HONE_OPENCL_LIBRARY", "libNoSuchLoader.so.1")]);
    assert!(said.contains("load: the artifact's steps cannot run on an accelerator: this system has no OpenCL loader 'libNoSuchLoader.so.1'"), "{said}");
    let said = place.said(&artifact, &[("HONE_OPENCL_LIBRARY", "libc.so.6")]);
    assert!(said.contains("has no function clGetPlatformIDs"), "{said}");
    if !is_there() {
        return;
    }
    let empty = place.0.path().join("vendors");
    std::fs::create_dir(&empty).unwrap();
    let said = place.said(&artifact, &[("OCL_ICD_VENDORS", empty.to_str().unwrap())]);
    assert!(said.contains("the OpenCL loader knows no platform"), "{said}");
    let loader = place.loader();
    let with = |fault| [("HONE_OPENCL_LIBRARY", loader.as_str()), ("HONE_FAULT", fault)];
    let said = place.said(&artifact, &with("no device"));
    assert!(said.contains("no OpenCL platform has a device (platforms: Portable"), "{said}");
    let said = place.said(&artifact, &[("HONE_OPENCL_DEVICE", "7")]);
    assert!(said.contains("there is no OpenCL device '7': set HONE_OPENCL_DEVICE"), "{said}");
}

#[test]
fn a_device_that_is_too_small_is_refused_when_loading() {
    if !is_there() {
        return;
    }
    let (place, artifact) = (Place::new(), artifact());
    let loader = place.loader();
    let with = |fault| [("HONE_OPENCL_LIBRARY", loader.as_str()), ("HONE_FAULT", fault)];
    let said = place.said(&artifact, &with("small"));
    assert!(said.contains("has too little memory: ") && said.contains("of 1000 at most"), "{said}");
    let said = place.said(&artifact, &with("memory"));
    assert!(said.contains("load: ") && said.contains("has too little memory: "), "{said}");
    let said = place.said(&artifact, &with("few lanes"));
    assert!(said.contains("has 64 lanes of a block, the artifact needs 256"), "{said}");
}

#[test]
fn kernels_that_the_driver_refuses_are_told_with_its_words() {
    if !is_there() {
        return;
    }
    let (place, artifact) = (Place::new(), artifact());
    let said =
        place.said(&with_text(&artifact, |text| text.replace("const long", "const lnog")), &[]);
    assert!(said.contains("refuses the artifact's kernels: ") && said.contains("lnog"), "{said}");
    let other = with_text(&artifact, |text| text.replace("void hone_k0_0(", "void other("));
    let said = place.said(&other, &[]);
    assert!(said.contains("refuses kernel 'hone_k0_0': OpenCL error -46"), "{said}");
    let said = place.said(&with_text(&artifact, |_| "\u{0}".to_owned()), &[]);
    assert!(said.contains("load: "), "{said}");
}

#[test]
fn a_device_that_fails_while_it_runs_is_lost_and_not_asked_again() {
    if !is_there() {
        return;
    }
    let (place, artifact) = (Place::new(), artifact());
    let loader = place.loader();
    let with = |fault| [("HONE_OPENCL_LIBRARY", loader.as_str()), ("HONE_FAULT", fault)];
    for (fault, words) in [
        ("launch", "was lost: a launch ended with OpenCL error -36"),
        ("event", "was lost: running kernels ended with OpenCL error -14"),
        ("hang", "has not answered for 2 seconds and counts as lost"),
    ] {
        let mut environment = with(fault).to_vec();
        environment.extend((fault == "hang").then_some((TIMEOUT, "2")));
        let said = place.said(&artifact, &environment);
        let runs = said.lines().filter(|line| line.starts_with("run ") && line.contains(words));
        assert_eq!(runs.count(), 3, "{fault}: {said}");
        assert!(said.contains("the process goes on"), "{fault}: {said}");
    }
}
