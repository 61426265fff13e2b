//! `cargo xtask gpu`: code for devices, as far as it can be checked without one.
//!
//! Sets up what the suites need (PoCL and llvmpipe must be installed: `cargo xtask setup --tests`), runs the OpenCL suite
//! on PoCL, the WGSL suite on llvmpipe, and the PTX suite in its interpreter and through NVIDIA's assembler, for every
//! architecture, and adds up what they count: lines that say `counts: NUMBER WHAT`.
//!
//! With `--device` instead, on a machine that has one: the official operator cases and whole networks on the device, and
//! times of Hone and its peers there (`tests/peers/gpu.py`).

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{models, onnx_tests, python, repository};

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// OpenCL C on PoCL.
    Opencl,
    /// WGSL on llvmpipe.
    Webgpu,
    /// PTX in its interpreter and through NVIDIA's assembler.
    Ptx,
}

/// The suites and their packages.
const SUITES: [(Suite, &str); 3] = [
    (Suite::Opencl, "hone-opencl-tests"),
    (Suite::Webgpu, "hone-webgpu-tests"),
    (Suite::Ptx, "hone-ptx-tests"),
];

/// Arguments of `gpu`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only one architecture of NVIDIA's and a sample of the cases and models of WGSL, as `make test` does.
    #[arg(long)]
    short: bool,
    /// Only this suite.
    #[arg(long)]
    suite: Option<Suite>,
    /// Run on the accelerator of this machine instead, and write its page: cuda, opencl, or an architecture.
    #[arg(long, value_name = "ACCELERATOR")]
    device: Option<String>,
    /// With --device: models that are timed, by their names in .hone/models or as paths.
    #[arg(
        long,
        requires = "device",
        value_delimiter = ',',
        default_value = "resnet50,bert-base,vit_b_16,resnet101"
    )]
    models: Vec<String>,
    /// With --device: the interpreter that has the peers (torch, onnxruntime-gpu).
    #[arg(long, requires = "device", default_value = "python3")]
    python: String,
}

/// Runs the suites and prints the sums of what they count.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(accelerator) = &arguments.device {
        return on_device(accelerator, arguments);
    }
    let start = Instant::now();
    onnx_tests::cases()?;
    python::environment("cuda")?;
    let mut counts = BTreeMap::new();
    let mut failed = Vec::new();
    let chosen = |suite: &Suite| arguments.suite.is_none_or(|only| only == *suite);
    for (_, package) in SUITES.iter().filter(|(suite, _)| chosen(suite)) {
        println!("== cargo test -p {package}");
        if !run_suite(package, arguments.short, &mut counts)? {
            failed.push(*package);
        }
    }
    let counts: Vec<String> =
        counts.iter().map(|(what, number)| format!("{number} {what}")).collect();
    let line = format!("gpu: {} in {:.0} s", counts.join(", "), start.elapsed().as_secs_f64());
    if failed.is_empty() {
        println!("{line}");
        return Ok(());
    }
    bail!("{line}; failed: {}", failed.join(", "))
}

/// Runs the operator cases on a device, then verifies and times networks on it.
fn on_device(accelerator: &str, arguments: &Arguments) -> Result<()> {
    let root = repository::root();
    onnx_tests::cases()?;
    let (package, test, required) = match accelerator {
        "opencl" => ("hone-opencl-tests", "artifacts", "HONE_OPENCL"),
        _ => ("hone-cuda-tests", "device", "HONE_CUDA"),
    };
    let mut suite = Command::new("cargo");
    suite.args(["test", "--release", "-p", package, "--test", test, "--", "--nocapture"]);
    suite.current_dir(&root).env(required, "required").env("HONE_ALL_CASES", "1");
    // The times are written all the same.
    let right = python::check("operators on the device", &mut suite);

    let mut build = Command::new("cargo");
    build.args(["build", "--release", "-p", "hone-worker"]).current_dir(&root);
    python::check("build hone", &mut build)?;
    let is_path = |name: &&String| name.ends_with(".onnx");
    let names: Vec<String> =
        arguments.models.iter().filter(|name| !is_path(name)).cloned().collect();
    models::export(&names)?;
    let exported =
        names.iter().map(|name| repository::scratch().join("models").join(format!("{name}.onnx")));
    let given = arguments.models.iter().filter(is_path).map(PathBuf::from);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let mut timing = Command::new("python3");
    timing
        .arg(root.join("tests/peers/gpu.py"))
        .arg(target.join("release/hone"))
        .arg(accelerator)
        .arg(root.join("docs/benchmarks"))
        .arg(repository::scratch())
        .arg(&arguments.python)
        .args(exported.chain(given));
    python::check("networks on the device", &mut timing)?;
    right
}

/// Runs the tests of a package, passing their output on, and adds what they count; whether they passed.
fn run_suite(package: &str, short: bool, counts: &mut BTreeMap<String, u64>) -> Result<bool> {
    let mut command = Command::new("cargo");
    if !short && package == "hone-webgpu-tests" {
        command.env("HONE_ALL_CASES", "1");
    }
    let mut child = command
        .args(["test", "-p", package, "--no-fail-fast", "--", "--nocapture"])
        .current_dir(repository::root())
        .env("HONE_OPENCL", "required")
        .env("HONE_WEBGPU", "required")
        .env("HONE_PTXAS", "required")
        .env("HONE_PTX", if short { "one" } else { "all" })
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo could not be started")?;
    let output = child.stdout.take().context("the output was asked for")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        if let Some((number, what)) = counted(&line) {
            *counts.entry(what).or_default() += number;
        }
    }
    Ok(child.wait()?.success())
}

/// The number and what it counts, of a line `counts: 12 runs`; a test's name may stand in front.
fn counted(line: &str) -> Option<(u64, String)> {
    let (_, rest) = line.split_once("counts: ")?;
    let (number, what) = rest.split_once(' ')?;
    Some((number.parse().ok()?, what.trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn counts_are_read_behind_the_name_of_a_test() {
        let line = "test operators ... counts: 12 runs of PTX right";
        assert_eq!(counted(line), Some((12, "runs of PTX right".to_string())));
        assert_eq!(counted("counts: none of it"), None);
        assert_eq!(counted("12 runs"), None);
    }
}
