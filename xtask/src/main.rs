//! The one door for chores: `cargo xtask <chore>`.
//!
//! Nothing in here ships. A chore is one file with a `run` function and one line in [`Chore`].

use clap::Parser;
use std::process::ExitCode;

mod background;
mod bench_peers;
mod chaos;
mod demo;
mod demo_cluster;
mod generate;
mod gpu;
mod models;
mod mutants;
mod mutate;
mod onnx_proto;
mod onnx_tests;
mod python;
mod repository;
mod scale;
mod setup;
mod shipped;
mod test;
mod tidy;
mod trials;
mod tuning_log;
mod wheels;
mod wild;
mod words;

/// Chores of the Hone repository.
#[derive(Parser)]
#[command(name = "xtask", about = "Chores of the Hone repository")]
enum Chore {
    /// Measure Hone beside other ways to run the same models; results in `docs/benchmarks`.
    BenchPeers(bench_peers::Arguments),
    /// The main job on this machine: two networks, from a file to measured code.
    Demo(demo::Arguments),
    /// Kill things at random moments while compilations run, and judge what is left.
    Chaos(chaos::Arguments),
    /// Bring a control plane and a node up, install Hone, compile the example, show its status.
    DemoCluster(demo_cluster::Arguments),
    /// Export the models of the benchmarks to `.hone/models`.
    Models(models::Arguments),
    /// Change the planner, the schedule primitives, the verifier and the memory plan in small ways, and
    /// count what the tests catch. Takes hours.
    Mutants(mutants::Arguments),
    /// Put single faults into generated code and packed weights and count those that verification catches.
    Mutate(mutate::Arguments),
    /// Generate the importer's protobuf types from the pinned onnx package.
    OnnxProto,
    /// Generate the official ONNX operator tests in `.hone/onnx-node-tests` and print where.
    OnnxTests,
    /// Write every file that is generated from the types: the CRDs.
    Generate,
    /// Make a Python environment from its pinned requirements and print where its interpreter is.
    Python(python::Arguments),
    /// Code for GPUs, as far as it can be checked without one: the OpenCL and PTX suites.
    Gpu(gpu::Arguments),
    /// Many compilations over many simulated nodes; prints rates, memory, API writes.
    Scale(scale::Arguments),
    /// Install the system packages that building and testing need.
    Setup(setup::Arguments),
    /// Run everything that is checked before a change lands.
    Test(test::Arguments),
    /// Build the operator and `hone` as they ship, for images.
    Shipped,
    /// Check the repository's own rules.
    Tidy,
    /// One tuning run of many trials over many simulated sessions; prints rates, memory, API writes.
    Trials(trials::Arguments),
    /// Build the Python wheels `hone` and `hone-runtime`.
    Wheels(wheels::Arguments),
    /// Run the corpus of models as people have them, and compare with onnxruntime.
    Wild(wild::Arguments),
}

/// What failed is the last line printed, without a backtrace: where only the end of the output is kept, it is there.
fn main() -> ExitCode {
    match run(&Chore::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore) -> anyhow::Result<()> {
    match chore {
        Chore::BenchPeers(arguments) => bench_peers::run(arguments),
        Chore::Demo(arguments) => demo::run(arguments),
        Chore::DemoCluster(arguments) => demo_cluster::run(arguments),
        Chore::Chaos(arguments) => chaos::run(arguments),
        Chore::Models(arguments) => models::run(arguments),
        Chore::Mutants(arguments) => mutants::run(arguments),
        Chore::Mutate(arguments) => mutate::run(arguments),
        Chore::OnnxProto => onnx_proto::run(),
        Chore::OnnxTests => onnx_tests::run(),
        Chore::Generate => generate::run(),
        Chore::Gpu(arguments) => gpu::run(arguments),
        Chore::Python(arguments) => python::run(arguments),
        Chore::Scale(arguments) => scale::run(arguments),
        Chore::Setup(arguments) => setup::run(arguments),
        Chore::Test(arguments) => test::run(arguments),
        Chore::Shipped => shipped::run(),
        Chore::Tidy => tidy::run(),
        Chore::Trials(arguments) => trials::run(arguments),
        Chore::Wheels(arguments) => wheels::run(arguments),
        Chore::Wild(arguments) => wild::run(arguments),
    }
}
