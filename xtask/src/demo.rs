//! The main job on this machine: a trained network and a large one, from a file to measured code.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ndarray::{Array1, Array2, Axis};
use ndarray_npy::NpzReader;

use crate::python::check;
use crate::repository;

/// What `cargo xtask demo` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// The large model: a name that `hone-model-builder` knows.
    #[arg(long, default_value = "resnet50")]
    model: String,
    /// Threads to measure the large model on.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// Builds `hone`, compiles both networks and shows what came out.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = repository::root();
    let folder = repository::scratch().join("demo");
    std::fs::create_dir_all(&folder)?;
    println!("building hone with LLVM inside (the first time takes some minutes)");
    let hone = build(
        &root,
        &["-p", "hone-worker", "--no-default-features", "--features", "static-llvm"],
        "hone",
    )?;
    let builder = build(&root, &["-p", "hone-model-builder"], "hone-model-builder")?;
    digits(&hone, &root, &folder)?;
    large(&hone, &builder, &folder, arguments)
}

/// Builds a program of the workspace for release and gives its path.
pub fn build(root: &Path, arguments: &[&str], name: &str) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--release", "--quiet"]).args(arguments);
    check(&format!("build {name}"), &mut command)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("release").join(name))
}

/// The trained network: its accuracy through the artifact is the reference's.
fn digits(hone: &Path, root: &Path, folder: &Path) -> Result<()> {
    let example = root.join("examples/digits");
    let out = folder.join("digits");
    println!("\nhandwritten digits: a trained network, from examples/digits/compile.yaml");
    let mut compile = command(hone, folder);
    compile.arg("compile").arg("-f").arg(example.join("compile.yaml")).arg("--out").arg(&out);
    compile.args(["--force", "--baseline"]);
    check("compile the digits", &mut compile)?;
    let artifact = newest(&out, "hone")?;
    let model = example.join("digits.onnx");
    let mut right = Vec::new();
    for (subject, extra, name) in
        [(&artifact, None, "artifact"), (&model, Some("--reference"), "reference")]
    {
        let scores = folder.join(format!("{name}.npz"));
        let mut run = command(hone, folder);
        run.arg("run").arg(subject).arg("--inputs").arg(example.join("test-images.npz"));
        run.arg("--outputs").arg(&scores).args(extra);
        check(&format!("run the {name}"), &mut run)?;
        let (correct, all) = accuracy(&scores, &example.join("test-labels.npz"))?;
        println!(
            "accuracy through the {name}: {correct} of {all} images ({:.1} %)",
            correct as f64 / all as f64 * 100.0
        );
        right.push(correct);
    }
    if right[0] != right[1] {
        bail!("the artifact is right on {} images, the reference on {}", right[0], right[1]);
    }
    Ok(())
}

/// How many images get their own digit the highest score, and how many there are.
fn accuracy(scores: &Path, labels: &Path) -> Result<(usize, usize)> {
    let open = |path: &Path| -> Result<NpzReader<File>> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(NpzReader::new(file)?)
    };
    let scores: Array2<f32> = open(scores)?.by_name("scores")?;
    let labels: Array1<i64> = open(labels)?.by_name("labels")?;
    let highest = scores.axis_iter(Axis(0)).map(|row| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map_or(-1, |(digit, _)| digit as i64)
    });
    let correct = highest.zip(&labels).filter(|(digit, label)| digit == *label).count();
    Ok((correct, labels.len()))
}

/// The large network, built on the spot: naive schedules against ours, error, share of the peak.
fn large(hone: &Path, builder: &Path, folder: &Path, arguments: &Arguments) -> Result<()> {
    let Arguments { model, threads } = arguments;
    println!("\n{model}, built here with seeded random weights; {threads} thread(s)");
    let file = folder.join(format!("{model}.onnx"));
    check(&format!("build {model}"), Command::new(builder).arg(model).arg(&file))?;
    let out = folder.join(model);
    let mut compile = command(hone, folder);
    compile.arg("compile").arg(&file).arg("--out").arg(&out).args(["--force", "--baseline"]);
    compile.arg("--threads").arg(threads.to_string());
    check(&format!("compile {model}"), &mut compile)?;
    println!("the report with the roofline of every step: {}", newest(&out, "html")?.display());
    Ok(())
}

/// `hone` with a cache that belongs to the demo.
fn command(hone: &Path, folder: &Path) -> Command {
    let mut command = Command::new(hone);
    command.env("HONE_CACHE", folder.join("cache"));
    command
}

/// The file with this extension that was written last.
fn newest(folder: &Path, extension: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let own = entries.filter(|path| path.extension().is_some_and(|own| own == extension));
    own.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
        .with_context(|| format!("no .{extension} file in {}", folder.display()))
}
