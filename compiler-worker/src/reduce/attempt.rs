//! Compiling a candidate in a process of its own, as a person would.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, setrlimit};
use tempfile::TempDir;

use super::outcome::{End, Outcome};
use crate::failure::{Failure, Result};
use crate::tune::Interrupt;

/// Bytes of standard error that are read, from its end.
const MOST_SAID: u64 = 1 << 20;
/// Longest pause between two looks at a process.
const PAUSE: Duration = Duration::from_millis(20);

/// What decides about the outcome beside the model.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Options of `hone compile`, each with its value.
    pub options: Vec<OsString>,
    /// Values of `--shape`.
    pub shapes: Vec<String>,
}

impl Flags {
    /// The options for a model that has no inputs or dimensions but those `is_there` knows.
    pub fn of(&self, is_there: impl Fn(&str) -> bool) -> Vec<OsString> {
        let mut words = self.options.clone();
        for shape in &self.shapes {
            if shape.rsplit_once('=').is_some_and(|(name, _)| is_there(name)) {
                words.extend(["--shape".into(), shape.into()]);
            }
        }
        words
    }
}

/// Runs this program, one call after the other.
#[derive(Debug)]
pub struct Attempts {
    program: PathBuf,
    records: PathBuf,
    timeout: Duration,
    folder: TempDir,
    /// The candidates' file name, which messages have.
    name: OsString,
    interrupt: Interrupt,
}

/// How a process ended, and the end of what it wrote to standard error.
struct Ended {
    end: End,
    stderr: String,
}

impl Attempts {
    /// Each call takes at most `timeout`; `records` are the tuning records that compiling uses, `name` is what candidates'
    /// files are called.
    ///
    /// # Errors
    /// Where there is no room for temporary files.
    pub fn new(
        records: PathBuf,
        name: &OsStr,
        timeout: Duration,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let program = std::env::current_exe();
        let program = program
            .map_err(|error| Failure::io("the compiling process cannot be started", error))?;
        let folder = tempfile::tempdir().map_err(no_folder)?;
        // Crashes are expected; their memory is not kept.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        Ok(Self { program, records, timeout, folder, name: name.to_owned(), interrupt })
    }

    /// Where candidates are written.
    pub fn candidate(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Compiles a model with these options of `hone compile`, without measuring, with an empty cache.
    ///
    /// # Errors
    /// `Interrupted`; where no process can be started.
    pub fn compile(&self, model: &Path, options: &[OsString]) -> Result<Outcome> {
        let folder = tempfile::tempdir_in(self.folder.path()).map_err(no_folder)?;
        let mut command = Command::new(&self.program);
        command.arg("compile").arg(model).arg("--no-measure").args(options);
        command.arg("--out").arg(folder.path().join("out"));
        command.arg("--cache").arg(folder.path().join("cache"));
        command.arg("--records").arg(&self.records);
        let ended = self.run(command.stdout(Stdio::null()))?;
        Ok(Outcome::new(ended.end, &ended.stderr))
    }

    /// What a hidden form of this command writes to standard output about a model, as far as it comes.
    ///
    /// # Errors
    /// As for [`Attempts::compile`].
    pub fn value_types(&self, model: &Path) -> Result<Vec<u8>> {
        let mut out = tempfile::tempfile_in(self.folder.path()).map_err(no_folder)?;
        let shared = out.try_clone().map_err(no_folder)?;
        let mut command = Command::new(&self.program);
        command.arg("reduce").arg(model).arg("--value-types");
        self.run(command.stdout(shared))?;
        read_from(&mut out, 0).map_err(no_folder)
    }

    /// Runs a command to its end, or to the time limit.
    fn run(&self, command: &mut Command) -> Result<Ended> {
        let mut stderr = tempfile::tempfile_in(self.folder.path()).map_err(no_folder)?;
        let shared = stderr.try_clone().map_err(no_folder)?;
        command.stdin(Stdio::null()).stderr(shared).env("RUST_BACKTRACE", "0");
        // With all that it starts; and Ctrl-C is for this process, which ends that one.
        let child = command.process_group(0).spawn();
        let mut child =
            child.map_err(|error| Failure::io("the compiling process cannot be started", error))?;
        let end = self.wait(&mut child);
        if !matches!(end, Ok(End::Code(_))) {
            end_group(&mut child);
        }
        let bytes = read_from(&mut stderr, MOST_SAID).map_err(no_folder)?;
        Ok(Ended { end: end?, stderr: String::from_utf8_lossy(&bytes).into_owned() })
    }

    fn wait(&self, child: &mut Child) -> Result<End> {
        let (begin, mut pause) = (Instant::now(), Duration::from_millis(1));
        loop {
            if self.interrupt.is_asked() {
                return Err(Failure::new(Reason::Interrupted, "the reduction was interrupted"));
            }
            let status = child.try_wait();
            let status = status
                .map_err(|error| Failure::io("the compiling process cannot be awaited", error))?;
            match status {
                Some(status) => return Ok(End::of(status)),
                None if begin.elapsed() > self.timeout => return Ok(End::TimeLimit),
                None => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(PAUSE);
        }
    }
}

/// Ends a process and those that it started.
fn end_group(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // Where nothing is left of the group there is nothing to end.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// The last `most` bytes of a file, or all for 0.
fn read_from(file: &mut File, most: u64) -> std::io::Result<Vec<u8>> {
    let length = file.seek(SeekFrom::End(0))?;
    let begin = if most == 0 { 0 } else { length.saturating_sub(most) };
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn no_folder(error: std::io::Error) -> Failure {
    Failure::io("temporary files cannot be written", error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ended(script: &str, timeout: Duration) -> Ended {
        let name = OsStr::new("model.onnx");
        let attempts = Attempts::new(PathBuf::new(), name, timeout, Interrupt::default()).unwrap();
        attempts.run(Command::new("sh").args(["-c", script]).stdout(Stdio::null())).unwrap()
    }

    #[test]
    fn every_end_is_told_apart() {
        let long = Duration::from_secs(60);
        let failed = ended("echo host: parse >&2; echo why >&2; exit 12", long);
        assert_eq!((failed.end, failed.stderr.as_str()), (End::Code(12), "host: parse\nwhy\n"));
        assert_eq!(ended("kill -SEGV $$", long).end, End::Signal(11));
        // What the process started ends with it.
        let begin = Instant::now();
        assert_eq!(ended("sleep 100 & sleep 100", Duration::from_millis(200)).end, End::TimeLimit);
        assert!(begin.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn shapes_of_what_is_gone_are_left_out() {
        let flags = Flags {
            options: vec!["--no-verify".into()],
            shapes: vec!["x=1,3".into(), "batch=4".into(), "a=b=2".into()],
        };
        let there = |name: &str| ["x", "a=b"].contains(&name);
        assert_eq!(flags.of(there), ["--no-verify", "--shape", "x=1,3", "--shape", "a=b=2"]);
    }
}
