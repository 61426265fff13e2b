//! Everything that is checked before a change lands, in the order in which it fails soonest.

use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;

/// One check: what it is called, and the command.
type Check = (&'static str, &'static [&'static str]);

/// Checks that need no cluster.
const CHECKS: &[Check] = &[
    ("format", &["cargo", "fmt", "--all", "--check"]),
    ("repository rules", &["cargo", "xtask", "tidy"]),
    (
        "lints",
        &["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
    ),
    ("official operator cases", &["cargo", "xtask", "onnx-tests"]),
    (
        "tests",
        &["cargo", "test", "--workspace", "--exclude", "hone-cluster-tests", "--no-fail-fast"],
    ),
];

/// Checks on a real control plane and node.
const CLUSTER_CHECKS: &[Check] = &[
    ("test cluster", &["tests/cluster/setup.sh"]),
    ("programs as they ship", &["cargo", "xtask", "shipped"]),
    (
        "cluster tests",
        &[
            "cargo",
            "test",
            "-p",
            "hone-cluster-tests",
            "--lib",
            "--test",
            "plane",
            "--test",
            "node",
            "--test",
            "simulated",
            "--test",
            "tools",
            "--test",
            "admission",
            "--test",
            "chart",
            "--test",
            "pipelines",
            "--test",
            "product",
        ],
    ),
];

/// The product from end to end on a real node, with images of the release builds.
const PRODUCT_CHECKS: &[Check] = &[
    ("test cluster", &["tests/cluster/setup.sh"]),
    ("programs as they ship", &["cargo", "xtask", "shipped"]),
    ("product tests", &["cargo", "test", "-p", "hone-cluster-tests", "--test", "product"]),
];

/// Arguments of `test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Leave out what needs a control plane.
    #[arg(long)]
    no_cluster: bool,
    /// Only the product with release images on a real node.
    #[arg(long, conflicts_with = "no_cluster")]
    product: bool,
}

/// Runs every check and stops at the first that fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    let checks = match (arguments.product, arguments.no_cluster) {
        (true, _) => PRODUCT_CHECKS.to_vec(),
        (false, true) => CHECKS.to_vec(),
        (false, false) => [CHECKS, CLUSTER_CHECKS].concat(),
    };
    for (name, command) in checks {
        let start = Instant::now();
        println!("== {name}: {}", command.join(" "));
        let status = Command::new(command[0])
            .args(&command[1..])
            .current_dir(crate::repository::root())
            .env("HONE_CLUSTER_TESTS", "required")
            .status()
            .with_context(|| format!("{} could not be started", command[0]))?;
        if !status.success() {
            bail!("{name} failed: {status}");
        }
        println!("== {name}: passed in {:.0} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
