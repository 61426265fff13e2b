//! Runs of a comparison, kept per processor and set, and pooled.
//!
//! Always true: runs are pooled only where they measured the same programs on the same processor, and they
//! count as different ones only where 40 minutes lie between their beginnings.
//!
//! Every run is kept in the scratch folder, which git ignores, so that no checkout and no commit loses one;
//! those of which a table is made are published beside it in `docs/benchmarks`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::machine::{Machine, Rates};
use super::measure::{Group, Measured};
use super::statistics::median;
use crate::{python, repository};

/// Runs that a table needs.
pub const WANTED: usize = 3;
/// Seconds between the beginnings of runs that count as different ones.
const APART: u64 = 40 * 60;

/// One run of the comparison.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    /// The machine, and when.
    pub machine: Machine,
    /// What was measured, as [`code`] says.
    pub code: String,
    /// The commit that was checked out, followed by `+` where files differed from it.
    #[serde(default)]
    pub commit: String,
    /// What came out.
    pub groups: Vec<Group>,
}

/// All runs of a set on a processor, the newest last.
#[derive(Debug, Serialize, Deserialize)]
pub struct Runs {
    schema: u32,
    runs: Vec<Run>,
}

impl Default for Runs {
    fn default() -> Self {
        Self { schema: 2, runs: Vec::new() }
    }
}

impl Runs {
    /// Those of `set` on `processor`: the kept ones, else those that are published, else none.
    pub fn read(processor: &str, set: &str) -> Result<Self> {
        let path = kept(processor, set);
        if path.exists() { Self::parse(&path) } else { Self::published(processor, set) }
    }

    /// Those of `set` on `processor` of which a table was made; none where there is no file.
    pub fn published(processor: &str, set: &str) -> Result<Self> {
        let path = folder(processor).join(format!("{set}.json"));
        if path.exists() { Self::parse(&path) } else { Ok(Self::default()) }
    }

    fn parse(path: &Path) -> Result<Self> {
        let runs: Self = serde_json::from_str(&fs::read_to_string(path)?)
            .with_context(|| format!("{} is no file of runs", path.display()))?;
        if runs.schema != 2 {
            bail!("{} has schema {}, this program writes 2", path.display(), runs.schema);
        }
        Ok(runs)
    }

    /// Adds a run, or brings the one that began at the same second up to date.
    pub fn keep(&mut self, run: Run) {
        self.runs.retain(|old| old.machine.began != run.machine.began);
        self.runs.push(run);
    }

    /// The runs that measured what the newest one did: those of other programs say nothing of it.
    pub fn into_poolable(mut self) -> Self {
        if let Some(code) = self.runs.last().map(|run| run.code.clone()) {
            self.runs.retain(|run| run.code == code);
        }
        self
    }

    /// Whether a table can be made of them.
    pub fn suffice(&self) -> bool {
        !self.keys().is_empty()
    }

    /// The runs.
    pub fn all(&self) -> &[Run] {
        &self.runs
    }

    /// The newest run.
    pub fn into_newest(self) -> Result<Run> {
        self.runs.into_iter().last().context("no run was kept")
    }

    /// Writes all of them to where runs are kept.
    pub fn write(&self, processor: &str, set: &str) -> Result<()> {
        self.write_to(&kept(processor, set))
    }

    /// Writes them beside the table that is made of them.
    pub fn publish(&self, processor: &str, set: &str) -> Result<()> {
        self.write_to(&folder(processor).join(format!("{set}.json")))
    }

    fn write_to(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        python::write(path, &(serde_json::to_string(self)? + "\n"))
    }

    /// How many runs lie [`APART`] or more.
    pub fn apart(&self) -> usize {
        apart(self.runs.iter())
    }

    /// Models and numbers of threads of which [`WANTED`] runs that lie [`APART`] have undisturbed rounds: in the newest
    /// one's order, then those that older ones alone have, since numbers of threads may be measured in runs of their own.
    pub fn keys(&self) -> Vec<(String, usize)> {
        let mut keys: Vec<(String, usize)> = Vec::new();
        for group in self.runs.iter().rev().flat_map(|run| &run.groups) {
            let key = (group.model.clone(), group.threads);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let models: Vec<String> = keys.iter().map(|(model, _)| model.clone()).collect();
        keys.sort_by_key(|(model, threads)| {
            (models.iter().position(|other| other == model), *threads)
        });
        let count = |key: &(String, usize)| {
            apart(self.runs.iter().filter(|run| run.undisturbed_group(key).is_some()))
        };
        keys.retain(|key| count(key) >= WANTED);
        keys
    }

    /// The best rates that any run's probe found with `threads` threads.
    pub fn best(&self, threads: usize) -> Rates {
        let rates = self.runs.iter().map(|run| run.best(threads));
        rates.fold(Rates::default(), Rates::at_best)
    }
}

impl Run {
    /// Rounds that are left out because the machine was disturbed.
    pub fn dropped(&self) -> usize {
        let kept = self.groups.iter().flat_map(|group| group.undisturbed(self.best(group.threads)));
        kept.filter(|kept| !kept).count()
    }

    /// The best rates that the probe found with `threads` threads.
    pub fn best(&self, threads: usize) -> Rates {
        let groups = self.groups.iter().filter(|group| group.threads == threads);
        groups.fold(Rates::default(), |best, group| best.at_best(group.best()))
    }

    /// The group of a model and a number of threads, and which of its rounds were undisturbed; `None` where none was.
    pub fn undisturbed_group(&self, key: &(String, usize)) -> Option<(&Group, Vec<bool>)> {
        let group = self.group(key)?;
        let kept = group.undisturbed(self.best(key.1));
        kept.contains(&true).then_some((group, kept))
    }

    /// The group of a model and a number of threads.
    pub fn group(&self, (model, threads): &(String, usize)) -> Option<&Group> {
        self.groups.iter().find(|group| group.model == *model && group.threads == *threads)
    }
}

/// How many of `runs` begin [`APART`] or more from one another.
fn apart<'a>(runs: impl Iterator<Item = &'a Run>) -> usize {
    let mut begins: Vec<u64> = runs.map(|run| run.machine.began).collect();
    begins.sort_unstable();
    let mut last: Option<u64> = None;
    begins.retain(|begin| {
        let counts = last.is_none_or(|last| *begin >= last + APART);
        last = if counts { Some(*begin) } else { last };
        counts
    });
    begins.len()
}

/// One peer's figures over all runs.
pub struct Pooled<'a> {
    /// The newest run's, for what does not change: versions, memory, error.
    pub newest: &'a Measured,
    /// Median of the runs' medians, in milliseconds.
    pub latency: f64,
    /// The lowest and the highest run's median.
    pub spread: (f64, f64),
    /// How many times faster the fastest exact peer was, in each run; below 1 where this one was faster.
    pub behind: Vec<f64>,
}

/// The peers of one model and number of threads over all runs. `exact` is the largest error of a peer that
/// others are compared with.
pub fn pool<'a>(runs: &'a Runs, key: &(String, usize), exact: f64) -> Vec<Pooled<'a>> {
    let groups: Vec<(&Group, Vec<bool>)> =
        runs.runs.iter().filter_map(|run| run.undisturbed_group(key)).collect();
    let Some((newest, _)) = groups.last() else { return Vec::new() };
    let of = |group: &'a Group, peer: &str| group.results.iter().find(|r| r.peer == peer);
    let pooled = newest.results.iter().filter_map(|result| {
        let mut latencies = Vec::new();
        let mut behind = Vec::new();
        for (group, kept) in &groups {
            let latency = of(group, &result.peer)?.latency(kept)?;
            let others = group.results.iter().filter(|r| !is_ours(&r.peer) && r.error <= exact);
            let best = others.filter_map(|r| r.latency(kept)).fold(f64::INFINITY, f64::min);
            latencies.push(latency);
            behind.push(latency / best);
        }
        let bounds = |f: fn(f64, f64) -> f64, start: f64| latencies.iter().copied().fold(start, f);
        Some(Pooled {
            newest: result,
            latency: median(&latencies)?,
            spread: (bounds(f64::min, f64::INFINITY), bounds(f64::max, 0.0)),
            behind,
        })
    });
    pooled.collect()
}

/// Whether a peer is a form of Hone.
pub fn is_ours(peer: &str) -> bool {
    peer.split('-').next() == Some("hone")
}

/// Where a processor's published results lie.
pub fn folder(processor: &str) -> PathBuf {
    repository::root().join("docs/benchmarks").join(slug(processor))
}

/// Where every run of a set on a processor is kept.
fn kept(processor: &str, set: &str) -> PathBuf {
    let folder = repository::scratch().join("bench-peers/runs").join(slug(processor));
    folder.join(format!("{set}.json"))
}

/// What can name a folder: letters and digits of the processor's name, joined by hyphens.
pub fn slug(processor: &str) -> String {
    let words = processor.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).map(str::to_lowercase);
    words.collect::<Vec<_>>().join("-")
}

/// What is measured: the first digits of the SHA-256 of the `hone` program and of the runtime's library.
pub fn code(program: &Path, library: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    for path in [program, library] {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        digest.update(Sha256::digest(&bytes));
    }
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(hex.chars().take(16).collect())
}

/// The commit that is checked out, for people: `+` says that files differ from it.
pub fn commit() -> Result<String> {
    let git = |arguments: &[&str]| -> Result<String> {
        let output =
            Command::new("git").args(arguments).current_dir(repository::root()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(git(&["rev-parse", "--short=12", "HEAD"])? + if changed { "+" } else { "" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bench_peers::process::Ready;

    fn measured(peer: &str, rounds: &[f64], error: f64) -> Measured {
        let ready = Ready {
            version: String::new(),
            settings: String::new(),
            compile_ms: 0.0,
            load_ms: 0.0,
        };
        let rounds = rounds.iter().map(|latency| vec![*latency]).collect();
        Measured { peer: peer.into(), ready, first_ms: 1.0, rounds, peak_memory: 0, error }
    }

    fn run(began: u64, hone: f64) -> Run {
        let results = vec![
            // The second round was disturbed: its probe is low.
            measured("hone", &[hone, 100.0], 0.0),
            measured("exact", &[3.0, 0.1], 1e-5),
            measured("rough", &[1.0, 1.0], 1e-1),
        ];
        let group = Group {
            model: "net".into(),
            threads: 1,
            gflop: None,
            fma_peaks: vec![100.0, 90.0],
            addition_peaks: Vec::new(),
            results,
            left_out: Vec::new(),
        };
        let machine = Machine::named("Some CPU @ 3", began);
        Run { machine, code: "a".into(), commit: String::new(), groups: vec![group] }
    }

    #[test]
    fn runs_are_pooled_without_disturbed_rounds_and_rough_peers() {
        let mut runs = Runs { schema: 2, runs: Vec::new() };
        for (began, hone) in [(0, 2.0), (10, 1.0), (4000, 1.5)] {
            runs.keep(run(began, hone));
        }
        assert_eq!((runs.all().len(), runs.apart()), (3, 2));
        let pooled = pool(&runs, &("net".into(), 1), 1e-3);
        assert_eq!((pooled[0].latency, pooled[0].spread), (1.5, (1.0, 2.0)));
        assert_eq!(pooled[0].behind, [2.0 / 3.0, 1.0 / 3.0, 0.5]);
        assert!(!runs.suffice());
        runs.keep(run(7000, 1.0));
        assert!(runs.suffice());
        // A newer run of other networks hides nothing of the older ones.
        runs.keep(Run { groups: Vec::new(), ..run(8000, 1.0) });
        assert_eq!(runs.keys(), [("net".into(), 1)]);
        runs.keep(Run { code: "b".into(), ..run(9000, 1.0) });
        assert_eq!(runs.all().len(), 6);
        assert_eq!(runs.into_poolable().all().len(), 1);
    }

    #[test]
    fn processors_name_folders() {
        assert_eq!(slug("Intel(R) Xeon(R) @ 2.1GHz"), "intel-r-xeon-r-2-1ghz");
    }
}
