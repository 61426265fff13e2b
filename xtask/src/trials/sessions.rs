//! Simulated sessions: they say that they are there and answer orders as `hone session` does, with times that are made up.
//! A candidate's time depends on the candidate alone, so all of them agree. They read and write the store's files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Time between two beats, as sessions have it.
const BEAT: Duration = Duration::from_secs(1);
/// Time between two looks at the orders.
const LOOK: Duration = Duration::from_millis(10);
/// Nanoseconds of a program with the schedule that is taken without tuning: longer than any kernel needs, so that no time is
/// one that cannot be.
const UNTUNED: f64 = 5e7;
/// Nanoseconds of a step of the network.
const STEP: u64 = 100_000;
/// Runs of a comparison of networks.
const RUNS: usize = 20;

/// The sessions of one pool.
pub struct Sessions {
    /// Where they meet with searches, as files.
    pub folder: PathBuf,
    /// How many there are.
    pub count: usize,
    /// How long each takes for a round.
    pub round: Duration,
    /// What they run code for, as a real session of this machine announces it.
    pub target: String,
    /// The program that shows what is in an artifact.
    pub hone: PathBuf,
}

/// An order under way.
struct Busy {
    name: String,
    order: Value,
    since: Instant,
}

impl Sessions {
    /// Answers until `ended`; `candidates` counts those that were answered.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn run(&self, ended: &AtomicBool, candidates: &AtomicUsize) -> Result<()> {
        for folder in ["sessions", "work", "results"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        let mut busy: BTreeMap<usize, Busy> = BTreeMap::new();
        let (mut beat, mut beaten) = (0, None::<Instant>);
        while !ended.load(Ordering::Relaxed) {
            if beaten.is_none_or(|at| at.elapsed() >= BEAT) {
                (beat, beaten) = (beat + 1, Some(Instant::now()));
                for session in 0..self.count {
                    self.announce(session, busy.get(&session), beat)?;
                }
            }
            for session in 0..self.count {
                match busy.get(&session) {
                    Some(order) if order.since.elapsed() < self.round => continue,
                    Some(_) => {}
                    None => {
                        busy.extend(self.next(session).map(|order| (session, order)));
                        continue;
                    }
                }
                if let Some(order) = busy.remove(&session) {
                    candidates.fetch_add(self.answer(session, &order)?, Ordering::Relaxed);
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn announce(&self, session: usize, busy: Option<&Busy>, beat: usize) -> Result<()> {
        let announcement = json!({
            "session": name(session), "instance": format!("i{session}"), "machine": machine(),
            "target": self.target, "kind": "simulated", "compares": true,
            "doing": busy.map_or("", |order| &order.name), "beat": beat,
        });
        write(&self.folder.join(format!("sessions/{}.json", name(session))), &announcement)
    }

    /// The next order of a session. One that is not whole yet is seen the next time.
    fn next(&self, session: usize) -> Option<Busy> {
        let folder = self.folder.join("work").join(name(session));
        let names = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| name.ends_with(".json") && !name.starts_with('.'));
        let first = names.into_iter().min()?;
        let order = serde_json::from_slice(&fs::read(folder.join(&first)).ok()?).ok()?;
        let name = first.trim_end_matches(".json").to_owned();
        Some(Busy { name, order, since: Instant::now() })
    }

    /// Answers an order: how many candidates it had.
    fn answer(&self, session: usize, busy: &Busy) -> Result<usize> {
        let trials = &busy.order["trials"];
        let (answer, count) = match trials["candidates"].as_array() {
            Some(candidates) => {
                let program = trials["digest"].as_str().unwrap_or_default();
                let measured: Vec<Value> =
                    candidates.iter().map(|candidate| measured(program, candidate)).collect();
                (json!({"measured": measured, "refused": null}), measured.len())
            }
            None => (self.compared(&busy.order["compare"])?, 0),
        };
        let name = format!("{}/{}.json", name(session), busy.name);
        write(&self.folder.join("results").join(&name), &answer)?;
        // The tuner may have taken it back.
        let _ = fs::remove_file(self.folder.join("work").join(&name));
        Ok(count)
    }

    /// Two artifacts that take the same time, each step as long as every other.
    fn compared(&self, order: &Value) -> Result<Value> {
        let times = |name: &str| -> Result<(Vec<u64>, Vec<Value>)> {
            let steps = self.steps(order[name].as_str().context("no artifact is named")?)?;
            Ok((vec![steps.len() as u64 * STEP; RUNS], steps))
        };
        let ((ours, our_steps), (theirs, their_steps)) = (times("ours")?, times("theirs")?);
        let compared = json!({
            "ours": ours, "theirs": theirs, "our_steps": our_steps, "their_steps": their_steps,
        });
        Ok(json!({"measured": [], "compared": compared, "refused": null}))
    }

    fn steps(&self, artifact: &str) -> Result<Vec<Value>> {
        let path = self.folder.join(format!("artifacts/{artifact}.hone"));
        let shown = Command::new(&self.hone).args(["inspect", "--json"]).arg(path).output()?;
        ensure!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        let shown: Value = serde_json::from_slice(&shown.stdout)?;
        let steps = shown["manifest"]["variants"][0]["steps"].as_array().cloned();
        let times = vec![STEP; RUNS];
        let step =
            |step: Value| json!({"kernel": step["kernel"], "nodes": step["nodes"], "times": times});
        Ok(steps.unwrap_or_default().into_iter().map(step).collect())
    }
}

/// The kind of machine that all of them are on.
fn machine() -> String {
    Sha256::digest("simulated")
        .iter()
        .fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn name(session: usize) -> String {
    format!("s{session}")
}

/// What a candidate is said to take: from half to twice of what the schedule without tuning takes.
fn measured(program: &str, candidate: &Value) -> Value {
    let digest = Sha256::digest(format!("{program} {candidate}"));
    let ratio = 0.5 + 1.5 * f64::from(digest[0]) / 255.0;
    json!({
        "class": "Ok", "nanoseconds": UNTUNED * ratio, "ratio": [ratio, 0.99 * ratio, 1.01 * ratio], "cause": null,
    })
}

/// Writes a file as a whole.
fn write(path: &Path, value: &Value) -> Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".{}", path.file_name().unwrap_or_default().to_string_lossy()));
    fs::write(&new, value.to_string())?;
    fs::rename(&new, path).with_context(|| path.display().to_string())
}
