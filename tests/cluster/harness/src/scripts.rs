//! Where the scripts are, and how they and other programs are run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The directory `tests/cluster` of this checkout.
pub fn scripts_dir() -> &'static Path {
    // The manifest lies in tests/cluster/harness, so a parent always exists.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The directory of what `setup.sh` has built.
fn build_dir() -> PathBuf {
    std::env::var_os("HONE_CLUSTER_BUILD")
        .map_or_else(|| scripts_dir().join(".build"), PathBuf::from)
}

/// The path of a program that `setup.sh` has built, such as `helm`, `kstatus` or `kubectl`.
pub fn program(name: &str) -> PathBuf {
    build_dir().join("bin").join(name)
}

/// Runs a program that `setup.sh` has built, with `input` on its standard input, and returns what it
/// printed on its standard output.
///
/// # Errors
/// When it cannot be run or fails; the error holds what it printed on its standard error.
pub fn tool(name: &str, arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(program(name));
    command.args(arguments);
    run(command, input)
}

/// Runs one of the scripts of `tests/cluster`.
pub(crate) fn script(name: &str, arguments: &[&str]) -> Result<String> {
    script_with(name, arguments, &[])
}

/// The same, with further environment variables.
pub(crate) fn script_with(
    name: &str,
    arguments: &[&str],
    environment: &[(&str, String)],
) -> Result<String> {
    let mut command = Command::new(scripts_dir().join(name));
    command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
    run(command, "")
}

/// Runs `command` to its end and returns its standard output; a failure is an error that tells the
/// command and what it printed on its standard error.
pub(crate) fn run(mut command: Command, input: &str) -> Result<String> {
    use std::io::Write;

    let shown = shown(&command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    // A thread, because a program may print more than a pipe holds before it has read its input.
    let writer = child.stdin.take().map(|mut pipe| {
        let input = input.to_owned();
        // A program that ends without reading its input is no error of ours.
        std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())))
    });
    let output = child.wait_with_output().with_context(|| format!("cannot wait for {shown}"))?;
    if let Some(writer) = writer {
        drop(writer.join());
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{shown} failed ({}): {}{}",
            output.status,
            stderr.trim(),
            if stdout.trim().is_empty() {
                String::new()
            } else {
                format!("\nits output: {}", stdout.trim())
            }
        );
    }
    Ok(stdout)
}

/// The program's file name and its arguments, for messages.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut shown =
        program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for argument in command.get_args() {
        shown.push(' ');
        shown.push_str(&argument.to_string_lossy());
    }
    shown
}
