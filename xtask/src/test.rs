//! Everything that is checked before a change lands, in the order in which it fails soonest. What suites on a control plane
//! need is built beside the tests that need no control plane, which mostly compute; the Python wheels and the instruction
//! sets are checked beside suites on it, which mostly wait.

use crate::background::Background;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// One check: what it is called, and the command.
type Check = (&'static str, &'static [&'static str]);

/// Checks that take a few minutes and that most mistakes are found by.
const FIRST_CHECKS: &[Check] = &[
    ("format", &["cargo", "fmt", "--all", "--check"]),
    ("repository rules", &["cargo", "xtask", "tidy"]),
    (
        "lints",
        &["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
    ),
    ("official operator cases", &["cargo", "xtask", "onnx-tests"]),
];

/// Checks that need no cluster.
const CHECKS: &[Check] = &[
    ("NVIDIA's assembler", &["cargo", "xtask", "python", "cuda"]),
    (
        "tests",
        &["cargo", "test", "--workspace", "--exclude", "hone-cluster-tests", "--no-fail-fast"],
    ),
];

/// What suites on a control plane need: the test cluster, and the programs as they ship. It is built beside the tests
/// that need no cluster, most of which keep one core idle.
const CLUSTER: &[&[&str]] = &[&["tests/cluster/setup.sh"], &["cargo", "xtask", "shipped"]];

/// What [`BESIDE`] is called.
const BESIDE_NAME: &str = "Python wheels and instruction sets";

/// Checks that need no cluster and compute for long, beside suites on one.
const BESIDE: &[&[&str]] = &[
    &["cargo", "xtask", "wheels", "--test"],
    // Of the whole workspace, so that nothing is built again with other features.
    &[
        "env",
        "HONE_EMULATORS=required",
        "cargo",
        "test",
        "--workspace",
        "--exclude",
        "hone-cluster-tests",
        "--test",
        "instruction-sets",
    ],
];

/// Suites on a real control plane, each a check of its own, in lanes that run side by side: each suite has clusters of its
/// own and spends much of its time waiting for them. The lanes take about as long as each other.
const LANES: &[&[&str]] = &[
    &["--test=leases", "--test=accelerators", "--test=console", "--test=pipelines"],
    &[
        "--lib",
        "--test=plane",
        "--test=node",
        "--test=simulated",
        "--test=tools",
        "--test=stores",
        "--test=admission",
        "--test=chart",
    ],
];

/// The product from end to end. Some of its tests bound how long something takes, so no other suite runs beside it, and
/// what does has the least priority.
const PRODUCT: &str = "--test=product";

/// Arguments of `test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Leave out what needs a control plane.
    #[arg(long)]
    no_cluster: bool,
    /// Only the suites on a control plane.
    #[arg(long, conflicts_with = "no_cluster")]
    cluster: bool,
    /// Only the product with release images on a real node.
    #[arg(long, conflicts_with_all = ["no_cluster", "cluster"])]
    product: bool,
}

/// Runs every check and stops at the first that fails; what failed in it is told once more at the end.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.product {
        Background::start("test cluster", CLUSTER)?.join()?;
        return run_suites(&[PRODUCT], Output::Passed);
    }
    if arguments.cluster {
        Background::start("test cluster", CLUSTER)?.join()?;
        return run_all_suites();
    }
    run_checks(FIRST_CHECKS)?;
    if arguments.no_cluster {
        let beside = Background::start(BESIDE_NAME, BESIDE)?;
        run_checks(CHECKS)?;
        return beside.join();
    }
    let cluster = Background::start("test cluster", CLUSTER)?;
    run_checks(CHECKS)?;
    cluster.join()?;
    let beside = Background::start(BESIDE_NAME, BESIDE)?;
    run_all_suites()?;
    beside.join()
}

/// Runs every suite on a control plane.
fn run_all_suites() -> Result<()> {
    run_checks(&[(
        "build of the cluster tests",
        &["cargo", "test", "-p", "hone-cluster-tests", "--no-run"],
    )])?;
    run_lanes(LANES)?;
    run_suites(&[PRODUCT], Output::Passed)
}

/// Runs checks one after another.
fn run_checks(checks: &[Check]) -> Result<()> {
    for (name, command) in checks {
        let (status, failures) = timed(name, command, Output::Passed)?;
        if !status.success() {
            println!("== {name}: what failed in it\n{failures}");
            bail!("{name} failed: {status}");
        }
    }
    Ok(())
}

/// Runs lanes of suites side by side to their ends, whatever fails in one of them.
fn run_lanes(lanes: &[&[&str]]) -> Result<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> =
            lanes.iter().map(|suites| scope.spawn(|| run_suites(suites, Output::Whole))).collect();
        let ended = running
            .into_iter()
            .map(|lane| lane.join().unwrap_or_else(|_| Err(anyhow!("a lane of suites panicked"))));
        let failed: Vec<_> =
            ended.filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        match failed.is_empty() {
            true => Ok(()),
            false => bail!("{}", failed.join("; ")),
        }
    })
}

/// Runs suites on a control plane. One that fails gets a second try, which is told at the end: a control
/// plane on a busy machine has races of its own, and what fails twice is ours.
fn run_suites(suites: &[&str], output: Output) -> Result<()> {
    let mut second = Vec::new();
    for suite in suites {
        let command = ["cargo", "test", "-p", "hone-cluster-tests", suite];
        let name = format!("cluster tests {suite}");
        let (status, failures) = timed(&name, &command, output)?;
        if status.success() {
            continue;
        }
        println!("== {name}: what failed in it\n{failures}\n== {name}: once more");
        let (status, again) = timed(&name, &command, output)?;
        if !status.success() {
            println!("== {name}: what failed in it the first time\n{failures}");
            println!("== {name}: what failed in it the second time\n{again}");
            bail!("{name} failed twice: {status}");
        }
        second.push(format!("{suite}\n{failures}"));
    }
    if !second.is_empty() {
        println!("== passed at the second try only:\n{}", second.join("\n"));
    }
    Ok(())
}

/// Runs one check, saying what and how long.
fn timed(name: &str, command: &[&str], output: Output) -> Result<(ExitStatus, String)> {
    let start = Instant::now();
    println!("== {name}: {}", command.join(" "));
    let result = check(command, output)?;
    let word = if result.0.success() { "passed" } else { "failed" };
    println!("== {name}: {word} in {:.0} s", start.elapsed().as_secs_f64());
    Ok(result)
}

/// When what a command prints is passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    /// Line by line.
    Passed,
    /// When it ends, so that the lines of commands that run side by side do not mix.
    Whole,
}

/// Runs one command, passing its output on; its status and the last of what it said about failures.
fn check(command: &[&str], when: Output) -> Result<(ExitStatus, String)> {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .current_dir(crate::repository::root())
        .env("HONE_CLUSTER_TESTS", "required")
        .env("HONE_EMULATORS", "required")
        .env("HONE_BROWSER_TESTS", "required")
        .env("HONE_PROMTOOL", "required")
        .env("HONE_OPENCL", "required")
        .env("HONE_WEBGPU", "required")
        .env("HONE_PTXAS", "required")
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} could not be started", command[0]))?;
    let output = child.stdout.take().context("the output was asked for")?;
    let mut failures = Failures::default();
    let mut held = String::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        match when {
            Output::Passed => println!("{line}"),
            Output::Whole => held.extend([line.as_str(), "\n"]),
        }
        failures.see(line);
    }
    print!("{held}");
    Ok((child.wait()?, failures.said()))
}

/// Most lines of failures told again.
const LINES: usize = 80;

/// The parts of a test runner's output that speak of failures: from `failures:` to `test result:`.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    within: bool,
}

impl Failures {
    fn see(&mut self, line: String) {
        self.within |= line == "failures:";
        // A backtrace would push out what the test said.
        let frame = line.trim_start().starts_with("at ") || is_frame(&line);
        if (self.within && !frame && !line.is_empty()) || line.ends_with("FAILED") {
            self.lines.push(line.chars().take(400).collect());
        }
        self.within &= !self.lines.last().is_some_and(|last| last.starts_with("test result:"));
    }

    fn said(&self) -> String {
        self.lines[self.lines.len().saturating_sub(LINES)..].join("\n")
    }
}

/// A numbered line of a backtrace: `  12: name`.
fn is_frame(line: &str) -> bool {
    let Some((number, _)) = line.split_once(": ") else { return false };
    line.starts_with(' ') && number.trim_start().bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_kept_without_backtraces() {
        let mut failures = Failures::default();
        let output = "test a ... ok\ntest b ... FAILED\nfailures:\n---- b stdout ----\nleft: 1\n   3: main\n      at lib.rs\n\
                      test result: FAILED. 1 passed\nanother";
        output.lines().for_each(|line| failures.see(line.into()));
        assert_eq!(
            failures.said(),
            "test b ... FAILED\nfailures:\n---- b stdout ----\nleft: 1\ntest result: FAILED. 1 passed"
        );
    }
}
