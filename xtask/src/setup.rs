//! Installs the system packages that building and testing need, saying so.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

use crate::repository;

/// What is needed: a file that shows it is there, the Debian package, and what it is for.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("/usr/lib/llvm-19/bin/llvm-config", "llvm-19-dev", "code generation"),
    ("/usr/lib/llvm-19/lib/libPolly.a", "libpolly-19-dev", "linking LLVM statically"),
    ("/usr/include/zstd.h", "libzstd-dev", "linking LLVM statically"),
    ("/usr/include/zlib.h", "zlib1g-dev", "linking LLVM statically"),
    ("/usr/bin/ld.lld-19", "lld-19", "linking kernels"),
    ("/usr/bin/cc", "gcc", "the C example"),
    ("/usr/bin/c++", "g++", "reading the table of targets of LLVM"),
];

/// What the tests need besides.
const TEST_PACKAGES: &[(&str, &str, &str)] = &[
    ("/usr/bin/promtool", "prometheus", "the tests of the alerts"),
    ("/usr/bin/chromium", "chromium", "the tests of the page"),
    ("/usr/bin/qemu-aarch64", "qemu-user", "running code for other processors in the tests"),
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", "the tests' aarch64 host program"),
    ("/etc/OpenCL/vendors/pocl.icd", "pocl-opencl-icd", "running code for devices in the tests"),
    (
        "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1",
        "ocl-icd-libopencl1",
        "running code for devices in the tests",
    ),
    (
        "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json",
        "mesa-vulkan-drivers",
        "running WGSL on the processor in the tests",
    ),
    (
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
        "libc6-dev-arm64-cross",
        "the tests' aarch64 host program",
    ),
];

const GB: u64 = 1_000_000_000;
/// What `make test` takes of the disk from a clean clone as CI runs it: 17 GB, half of them the test cluster's Go builds.
const TESTS_BYTES: u64 = 20 * GB;
/// What `make demo` takes.
const PROGRAMS_BYTES: u64 = 8 * GB;

/// Arguments of `setup`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Also what the tests need.
    #[arg(long)]
    tests: bool,
}

/// Installs what is missing, or says what to install where it cannot.
pub fn run(arguments: &Arguments) -> Result<()> {
    warn_of_little_disk(arguments.tests);
    let lists = if arguments.tests { vec![PACKAGES, TEST_PACKAGES] } else { vec![PACKAGES] };
    let missing: Vec<_> =
        lists.into_iter().flatten().filter(|(file, ..)| !Path::new(file).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for (_, package, purpose) in &missing {
        println!("setup: {package} is missing ({purpose})");
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "this system has no apt-get: install the equivalents of {} (LLVM 19 with headers, lld 19) \
             and run the command again",
            packages.join(", ")
        );
    }
    println!("setup: installing {} with apt-get", packages.join(" "));
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-y", "-qq", "--no-install-recommends"], packages.as_slice()].concat())
}

/// Says so where the disk may not hold what is about to be built: elsewhere that shows as a build or test that fails late.
fn warn_of_little_disk(tests: bool) {
    let (needed, purpose) =
        if tests { (TESTS_BYTES, "the tests") } else { (PROGRAMS_BYTES, "the programs") };
    let Ok(disk) = rustix::fs::statvfs(repository::root()) else { return };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed {
        println!(
            "setup: {} GB of disk are free, {purpose} take {} GB where nothing is built yet",
            free / GB,
            needed / GB
        );
    }
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    // As root directly, else through sudo, which may ask.
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.starts_with(b"0"));
    let mut command = if root {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg("apt-get");
        sudo
    };
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.status().context("apt-get could not be started")?;
    if !status.success() {
        bail!("apt-get {} failed: {status}", arguments.join(" "));
    }
    Ok(())
}
