//! Mutation tests of the parts whose mistakes would show late: how many small changes of the code do the
//! tests catch? `docs/suites.md` says what was found.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The release of cargo-mutants whose mutants the figures count.
const VERSION: &str = "27.1.0";

/// Least fraction of the mutants that compile which the tests have to catch.
const BAR: f64 = 0.9;

/// Files that are changed, and the packages whose tests judge them.
struct Suite {
    name: &'static str,
    files: &'static [&'static str],
    tests: &'static [&'static str],
}

const SUITES: &[Suite] = &[
    Suite {
        name: "verifier",
        files: &[
            "compiler/tensor/src/verify/*.rs",
            "compiler/tensor/src/affine.rs",
            "compiler/tensor/src/domain.rs",
            "compiler/tensor/src/independence.rs",
            "compiler/tensor/src/sum.rs",
        ],
        tests: &["hone-tensor", "hone-schedule"],
    },
    Suite { name: "schedule", files: &["compiler/schedule/src/*.rs"], tests: &["hone-schedule"] },
    Suite {
        name: "memory-plan",
        files: &["compiler/passes/src/memory_plan.rs"],
        tests: &["hone-passes"],
    },
    Suite {
        name: "planner",
        files: &["operator/src/model_compilation/*.rs"],
        tests: &["hone-operator"],
    },
];

/// Arguments of `mutants`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this suite: verifier, schedule, memory-plan or planner.
    #[arg(long)]
    suite: Option<String>,
    /// Only a part, such as `0/8`: a sample, for which the bar holds too.
    #[arg(long)]
    shard: Option<String>,
    /// Mutants tested at a time.
    #[arg(long, default_value = "1")]
    jobs: String,
}

/// What became of a suite's mutants, as cargo-mutants reports it.
#[derive(serde::Deserialize)]
struct Outcomes {
    caught: usize,
    missed: usize,
    timeout: usize,
    unviable: usize,
}

/// Tests every suite's mutants and fails where too many are missed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let wanted = |suite: &&Suite| arguments.suite.as_deref().is_none_or(|name| name == suite.name);
    let suites: Vec<&Suite> = SUITES.iter().filter(wanted).collect();
    if suites.is_empty() {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        bail!("there is no such suite: name one of {}", names.join(", "));
    }
    installed()?;
    let mut below = Vec::new();
    for suite in suites {
        let caught = measure(suite, arguments)?;
        if caught < BAR {
            below.push(format!("{} {:.1} %", suite.name, 100.0 * caught));
        }
    }
    match below.is_empty() {
        true => Ok(()),
        false => bail!("the bar is {:.0} %; below it: {}", 100.0 * BAR, below.join(", ")),
    }
}

fn installed() -> Result<()> {
    let found = Command::new("cargo").args(["mutants", "--version"]).output();
    let found = found.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION));
    match found {
        true => Ok(()),
        false => bail!(
            "cargo-mutants {VERSION} is missing: cargo install --locked cargo-mutants@{VERSION}"
        ),
    }
}

/// The fraction of a suite's viable mutants that the tests catch.
fn measure(suite: &Suite, arguments: &Arguments) -> Result<f64> {
    let folder = crate::repository::scratch().join("mutants").join(suite.name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = Command::new("cargo");
    command.current_dir(crate::repository::root()).args(["mutants", "--no-shuffle", "--jobs"]);
    command.arg(&arguments.jobs).arg("--output").arg(&folder);
    for file in suite.files {
        command.args(["--file", file]);
    }
    for package in suite.tests {
        command.args(["--test-package", package]);
    }
    if let Some(shard) = &arguments.shard {
        command.args(["--shard", shard, "--sharding", "round-robin"]);
    }
    let status = command.status().context("cargo mutants could not be started")?;
    // 2: some were missed; 3: some took too long.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo mutants failed for {}: {status}", suite.name);
    }
    report(suite, &folder.join("mutants.out"))
}

/// Prints the figures and what was missed.
fn report(suite: &Suite, folder: &Path) -> Result<f64> {
    let path = folder.join("outcomes.json");
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let Outcomes { caught, missed, timeout, unviable } = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not understood", path.display()))?;
    let viable = caught + missed + timeout;
    let fraction = if viable == 0 { 1.0 } else { (caught + timeout) as f64 / viable as f64 };
    println!(
        "== {}: {:.1} % of {viable} caught ({timeout} by time), {unviable} do not compile",
        suite.name,
        100.0 * fraction
    );
    if missed > 0 {
        let missed = fs::read_to_string(folder.join("missed.txt")).unwrap_or_default();
        println!("missed:\n{}", missed.trim_end());
    }
    Ok(fraction)
}
