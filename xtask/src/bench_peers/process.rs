//! A peer's process, and talking to it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::peer::Peer;
use crate::python;

/// What a peer says when its model is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The peer's version.
    pub version: String,
    /// How it was set up.
    pub settings: String,
    /// What has to be done once per model, in milliseconds.
    pub compile_ms: f64,
    /// What every new process does, in milliseconds.
    pub load_ms: f64,
}

/// A peer that has loaded a model. Ends with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// What it said when it was ready.
    pub ready: Ready,
}

impl Process {
    /// Starts `peer` on the last `threads` processors: the first has more of the system's own work.
    pub fn start(
        peer: &Peer,
        model: &Path,
        inputs: &Path,
        threads: usize,
        processors: usize,
        messages: &Path,
    ) -> Result<Self> {
        let pinned = format!("{}-{}", processors - threads, processors - 1);
        let errors = fs::File::create(messages)
            .with_context(|| format!("cannot write {}", messages.display()))?;
        let mut child = Command::new("taskset")
            .args(["--cpu-list", &pinned])
            .args(&peer.program)
            .args([model, inputs])
            .arg(threads.to_string())
            .args(&peer.last)
            .env("OMP_NUM_THREADS", threads.to_string())
            .env("TVM_NUM_THREADS", threads.to_string())
            .env("TOKENIZERS_PARALLELISM", "false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot start taskset (from the package util-linux)")?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.context("a child without output")?);
        let ready = Ready {
            version: String::new(),
            settings: String::new(),
            compile_ms: 0.0,
            load_ms: 0.0,
        };
        let mut process = Self { child, requests, answers, ready };
        let answer = process.answer().map_err(|error| {
            let said = fs::read_to_string(messages).unwrap_or_default();
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("");
            error.context(last.to_owned())
        })?;
        process.ready = serde_json::from_value(answer).context("not a line of a peer")?;
        Ok(process)
    }

    /// Latencies of `count` runs, in nanoseconds.
    pub fn run(&mut self, count: usize) -> Result<Vec<u64>> {
        let latencies: Vec<u64> = serde_json::from_value(self.ask(&format!("run {count}"))?)
            .context("latencies are not a list of integers")?;
        if latencies.len() != count {
            bail!("asked for {count} runs, got {} latencies", latencies.len());
        }
        Ok(latencies)
    }

    /// Gives the process precedence over everything else on its processors, or takes it back.
    ///
    /// Needs the right to do so (root).
    pub fn precede(&self, precede: bool) -> Result<()> {
        let policy: &[&str] =
            if precede { &["--rr", "--pid", "1"] } else { &["--other", "--pid", "0"] };
        let set = || {
            let process = self.child.id().to_string();
            let mut command = Command::new("chrt");
            command.arg("--all-tasks").args(policy).arg(process);
            python::check("set the scheduling of a peer", &mut command)
        };
        // A thread that ends meanwhile makes it fail.
        set().or_else(|_| set()).or_else(|_| set())
    }

    /// Writes the last run's outputs.
    pub fn outputs(&mut self, path: &Path) -> Result<()> {
        self.ask(&format!("outputs {}", path.display()))?;
        Ok(())
    }

    /// The most memory that the process has held so far, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        // taskset replaces itself by the peer, so this is the peer's own.
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kibibytes: u64 = kibibytes.context("no VmHWM of the peer's process")?.parse()?;
        Ok(kibibytes * 1024)
    }

    fn ask(&mut self, request: &str) -> Result<Value> {
        let requests = self.requests.as_mut().context("the peer was told to end")?;
        writeln!(requests, "{request}").context("the peer has ended")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the peer ended without an answer");
        }
        serde_json::from_str(&line).with_context(|| format!("not an answer: {line}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input asks it to end; whoever does not listen is made to.
        drop(self.requests.take());
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
