//! Mutation tests of the parts whose mistakes would show late: how many small changes of the code do the
//! tests catch? `docs/suites.md` says what was found.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of cargo-mutants whose mutants the figures count.
const VERSION: &str = "27.1.0";

/// Least fraction of the mutants that compile which the tests have to catch.
const BAR: f64 = 0.9;

/// Files that are changed, and the tests that judge them.
struct Suite {
    name: &'static str,
    files: &'static [&'static str],
    /// The quickest first: what one of them catches is not shown to the next.
    judges: &'static [Judge],
}

/// Tests of a package.
struct Judge {
    package: &'static str,
    /// Which of their programs, in words of `cargo test`.
    targets: &'static [&'static str],
    /// Which tests of these: those whose names have one of the words, or all for none.
    tests: &'static [&'static str],
}

const ALL: &[&str] = &["--lib", "--tests"];

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
        judges: &[
            Judge { package: "hone-tensor", targets: &["--test=programs"], tests: &[] },
            Judge { package: "hone-tensor", targets: ALL, tests: &[] },
            Judge { package: "hone-schedule", targets: ALL, tests: &[] },
        ],
    },
    Suite {
        name: "schedule",
        files: &["compiler/schedule/src/*.rs"],
        judges: &[
            Judge { package: "hone-schedule", targets: &["--test=cases"], tests: &[] },
            Judge { package: "hone-schedule", targets: ALL, tests: &[] },
        ],
    },
    Suite {
        name: "memory-plan",
        files: &[
            "compiler/passes/src/memory_plan.rs",
            "compiler/passes/src/alive_index.rs",
            "compiler/passes/src/free_list.rs",
        ],
        judges: &[
            Judge {
                package: "hone-passes",
                targets: &["--lib"],
                tests: &["memory_plan", "alive_index", "free_list"],
            },
            Judge { package: "hone-passes", targets: ALL, tests: &[] },
        ],
    },
    Suite {
        name: "planner",
        files: &["operator/src/model_compilation/**/*.rs"],
        judges: &[
            Judge { package: "hone-operator", targets: &["--test=plans"], tests: &[] },
            Judge { package: "hone-operator", targets: ALL, tests: &[] },
        ],
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
}

/// What became of mutants, as cargo-mutants reports it.
#[derive(Default, serde::Deserialize)]
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
    let (mut all, mut left) = (Outcomes::default(), None);
    for (place, judge) in suite.judges.iter().enumerate() {
        let folder = folder.join(place.to_string());
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let found = judged(suite, judge, left.as_deref(), arguments, &folder)?;
        all.caught += found.caught;
        all.timeout += found.timeout;
        all.unviable += found.unviable;
        all.missed = found.missed;
        let missed = folder.join("mutants.out/missed.txt");
        let missed = fs::read_to_string(&missed)
            .with_context(|| format!("cannot read {}", missed.display()))?;
        let missed: Vec<String> = missed.lines().map(String::from).collect();
        if missed.is_empty() {
            left = None;
            break;
        }
        left = Some(missed);
    }
    Ok(report(suite, &all, left.unwrap_or_default()))
}

/// Shows mutants to one judge: those `left` by others, or all that the arguments name.
fn judged(
    suite: &Suite,
    judge: &Judge,
    left: Option<&[String]>,
    arguments: &Arguments,
    folder: &Path,
) -> Result<Outcomes> {
    let mut command = Command::new("cargo");
    let suite_folder = folder.parent().unwrap_or(folder);
    let tree = suite_folder.join("tree");
    copy_sources(&tree)?;
    command.current_dir(&tree).args(["mutants", "--no-shuffle", "--in-place", "--output"]);
    command.arg(folder);
    // What a mutant changes is one function, and what was built for it serves the next sample too.
    command.env("CARGO_INCREMENTAL", "1").env("CARGO_TARGET_DIR", suite_folder.join("target"));
    for file in suite.files {
        command.args(["--file", file]);
    }
    match (left, &arguments.shard) {
        (Some(left), _) => {
            left.iter().for_each(|name| {
                command.arg("--re").arg(exactly(name));
            });
        }
        (None, Some(shard)) => {
            command.args(["--shard", shard, "--sharding", "round-robin"]);
        }
        (None, None) => {}
    }
    command.args(["--test-package", judge.package]);
    // Arguments of the tests alone would not be heeded where they are built.
    for target in judge.targets {
        command.arg(format!("--cargo-arg={target}"));
    }
    if !judge.tests.is_empty() {
        command.args(["--", "--"]).args(judge.tests);
    }
    let status = command.status().context("cargo mutants could not be started")?;
    // 2: some were missed; 3: some took too long.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo mutants failed for {}: {status}", suite.name);
    }
    let path = folder.join("mutants.out/outcomes.json");
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not understood", path.display()))
}

/// Makes `tree` a copy of the repository's files, in which mutants are made. A file that is there already as it
/// should be is left alone, so that nothing of it is built again.
fn copy_sources(tree: &Path) -> Result<()> {
    let root = crate::repository::root();
    let listed = Command::new("git")
        .current_dir(&root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("git ls-files could not be started")?;
    let listed = String::from_utf8(listed.stdout).context("a file's name is no text")?;
    let mut wanted = BTreeSet::new();
    for name in listed.split_terminator('\0') {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(content) = fs::read(&from) else { continue };
        wanted.insert(to.clone());
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))?;
    }
    remove_others(tree, &wanted)
}

/// Removes the files below `folder` that are not `wanted`.
fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// A regular expression that is this text and no other.
fn exactly(text: &str) -> String {
    let mut expression = String::from("^");
    for character in text.chars() {
        // Behind a backslash these two would mean the ends of words.
        if character.is_ascii_punctuation() && !matches!(character, '<' | '>') {
            expression.push('\\');
        }
        expression.push(character);
    }
    expression + "$"
}

/// Prints the figures and what was missed.
fn report(suite: &Suite, outcomes: &Outcomes, left: Vec<String>) -> f64 {
    let Outcomes { caught, missed, timeout, unviable } = outcomes;
    let viable = caught + missed + timeout;
    let fraction = if viable == 0 { 1.0 } else { (caught + timeout) as f64 / viable as f64 };
    println!(
        "== {}: {:.1} % of {viable} caught ({timeout} by time), {unviable} do not compile",
        suite.name,
        100.0 * fraction
    );
    if !left.is_empty() {
        println!("missed:\n{}", left.join("\n"));
    }
    fraction
}
