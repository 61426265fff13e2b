//! Measuring the peers on one model with one number of threads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::machine::{Machine, Rates};
use super::peer::Peer;
use super::process::{Process, Ready};
use super::statistics::median;
use crate::{python, repository};

/// How much to measure.
#[derive(Debug)]
pub struct Settings {
    /// Undisturbed rounds, each with every peer once.
    pub rounds: usize,
    /// What a peer may take in a round, in milliseconds, beyond one run.
    pub turn: u64,
    /// Whether a peer precedes all other work on its processors during its turns.
    pub realtime: bool,
}

/// One model with one number of threads.
#[derive(Debug, Serialize, Deserialize)]
pub struct Group {
    /// The model's name.
    pub model: String,
    /// Threads, each on a processor of its own.
    pub threads: usize,
    /// Work of one run in 10⁹ floating-point operations, where it is known.
    pub gflop: Option<f64>,
    /// The probed peak rates of fused multiply-adds, one a round, in GFLOP/s.
    pub fma_peaks: Vec<f64>,
    /// The probed rates of additions of integers, one a round, in 10⁹ a second; none in older files.
    #[serde(default)]
    pub addition_peaks: Vec<f64>,
    /// What came out, in the order of the peers.
    pub results: Vec<Measured>,
    /// Peers that could not run this, and why.
    pub left_out: Vec<(String, String)>,
}

/// One peer's figures.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The peer's name.
    pub peer: String,
    /// What it said of itself.
    #[serde(flatten)]
    pub ready: Ready,
    /// The first run, in milliseconds.
    pub first_ms: f64,
    /// Latencies in milliseconds, one list a round.
    pub rounds: Vec<Vec<f64>>,
    /// Peak resident memory, in bytes; compiling in the same process included.
    pub peak_memory: u64,
    /// The largest difference from the reference's outputs, over the reference's largest output.
    pub error: f64,
}

/// The least rates that the probe must reach in a round that counts, as a fraction of the run's best.
const UNDISTURBED: f64 = 0.95;

/// How many times the rounds asked for are measured at most, until so many are undisturbed.
const MOST_TIMES: usize = 3;

impl Group {
    /// For each round, whether the machine was undisturbed as far as the probe can tell: neither of both rates is
    /// low beside `best`, those of the run.
    pub fn undisturbed(&self, best: Rates) -> Vec<bool> {
        let rounds = self.fma_peaks.iter().enumerate();
        rounds.map(|(round, fma)| best.are_reached(*fma, self.addition_peaks.get(round))).collect()
    }

    /// The best rates of any round.
    pub fn best(&self) -> Rates {
        let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        Rates { fma: best(&self.fma_peaks), additions: best(&self.addition_peaks) }
    }
}

impl Rates {
    /// Whether both rates of a round are at least [`UNDISTURBED`] of these; older files have no additions.
    fn are_reached(self, fma: f64, additions: Option<&f64>) -> bool {
        fma >= UNDISTURBED * self.fma
            && additions.is_none_or(|additions| *additions >= UNDISTURBED * self.additions)
    }
}

impl Measured {
    /// The median of all latencies in the rounds to keep, in milliseconds; `None` where there are none.
    pub fn latency(&self, keep: &[bool]) -> Option<f64> {
        let rounds = self.rounds.iter().zip(keep).filter(|(_, keep)| **keep);
        median(&rounds.flat_map(|(round, _)| round.iter().copied()).collect::<Vec<_>>())
    }

    /// The lowest and highest round's median, in milliseconds.
    pub fn spread(&self) -> (f64, f64) {
        let medians = self.rounds.iter().filter_map(|round| median(round));
        medians.fold((f64::INFINITY, 0.0), |(low, high), m| (low.min(m), high.max(m)))
    }
}

/// Measures `peers` in interleaved rounds.
pub fn group(
    models: &Path,
    model: &str,
    threads: usize,
    peers: Vec<Peer>,
    settings: &Settings,
    machine: &mut Machine,
) -> Result<Group> {
    let mut group = Group {
        model: model.to_owned(),
        threads,
        gflop: gflop(models, model),
        fma_peaks: Vec::new(),
        addition_peaks: Vec::new(),
        results: Vec::new(),
        left_out: Vec::new(),
    };
    let mut running = Vec::new();
    for peer in peers {
        eprintln!("bench-peers: {model}, {threads} threads: starting {}", peer.name);
        match start(models, model, threads, &peer, settings, machine.processors) {
            Ok((process, measured)) => {
                running.push(process);
                group.results.push(measured);
            }
            Err(error) => {
                eprintln!("bench-peers: {} is left out: {error:#}", peer.name);
                group.left_out.push((peer.name, format!("{error:#}")));
            }
        }
    }
    if running.is_empty() {
        bail!("no peer can run {model} with {threads} threads");
    }
    let (mut round, mut undisturbed) = (0, 0);
    while undisturbed < settings.rounds && round < MOST_TIMES * settings.rounds {
        eprintln!("bench-peers: {model}, {threads} threads: round {}", round + 1);
        let rates = machine.rates(threads)?;
        let best = machine.best(threads);
        undisturbed += usize::from(best.are_reached(rates.fma, Some(&rates.additions)));
        group.fma_peaks.push(rates.fma);
        group.addition_peaks.push(rates.additions);
        for turn in 0..running.len() {
            let index = (round + turn) % running.len();
            let measured = &mut group.results[index];
            let latencies = take_turn(&mut running[index], measured.first_ms, settings)
                .with_context(|| format!("{} failed in round {round}", measured.peer))?;
            measured.rounds.push(latencies);
        }
        round += 1;
    }
    for (process, measured) in running.iter().zip(&mut group.results) {
        measured.peak_memory = measured.peak_memory.max(process.peak_memory()?);
    }
    Ok(group)
}

/// Starts a peer, takes its first run and checks its answer.
fn start(
    models: &Path,
    model: &str,
    threads: usize,
    peer: &Peer,
    settings: &Settings,
    processors: usize,
) -> Result<(Process, Measured)> {
    let file = |kind: &str| models.join(format!("{model}.{kind}"));
    let scratch = repository::scratch().join("bench-peers");
    let messages = scratch.join(format!("{}.log", peer.name));
    let (onnx, inputs) = (file("onnx"), file("inputs.npz"));
    let launch = || Process::start(peer, &onnx, &inputs, threads, processors, &messages);
    let mut process = launch()?;
    let first = run_once(&mut process, settings)?;
    let peak_memory = process.peak_memory()?;
    let outputs = scratch.join(format!("{}.npz", peer.name));
    process.outputs(&outputs)?;
    let error = compare(&outputs, &file("outputs.npz"))?;
    let measured = Measured {
        peer: peer.name.clone(),
        ready: process.ready.clone(),
        first_ms: first,
        rounds: Vec::new(),
        peak_memory,
        error,
    };
    Ok((process, measured))
}

/// The latency of one run, in milliseconds.
fn run_once(process: &mut Process, settings: &Settings) -> Result<f64> {
    if settings.realtime {
        process.precede(true)?;
    }
    let latency = process.run(1)?[0] as f64 / 1e6;
    if settings.realtime {
        process.precede(false)?;
    }
    Ok(latency)
}

/// A warm-up and as many runs as fit in a turn, in milliseconds.
fn take_turn(process: &mut Process, first_ms: f64, settings: &Settings) -> Result<Vec<f64>> {
    // Threads of the peer before this one may spin a little before they sleep.
    std::thread::sleep(Duration::from_millis(100));
    if settings.realtime {
        process.precede(true)?;
    }
    // What takes seconds needs no warming, and there would be no time for it.
    let warm = if first_ms < 1000.0 { process.run(1)?[0] as f64 / 1e6 } else { first_ms };
    let count = (settings.turn as f64 / warm.max(1e-3)).clamp(1.0, 1000.0) as usize;
    let latencies = process.run(count)?;
    if settings.realtime {
        process.precede(false)?;
    }
    // To a microsecond: what is finer than that is not kept.
    Ok(latencies.into_iter().map(|latency| (latency as f64 / 1e3).round() / 1e3).collect())
}

/// The largest difference of two files of arrays, over the second one's largest number.
fn compare(outputs: &Path, reference: &Path) -> Result<f64> {
    let script: PathBuf = repository::root().join("tests/peers/compare.py");
    let output =
        Command::new(python::environment("onnx")?).args([&script, outputs, reference]).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("outputs cannot be compared: {}", said.lines().last().unwrap_or(""));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("not a number: {text}"))
}

fn gflop(models: &Path, model: &str) -> Option<f64> {
    let text = std::fs::read_to_string(models.join(format!("{model}.facts.json"))).ok()?;
    let facts: serde_json::Value = serde_json::from_str(&text).ok()?;
    facts["gflop"].as_f64().filter(|&gflop| gflop > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(fma: &[f64], additions: &[f64]) -> Group {
        Group {
            model: String::new(),
            threads: 1,
            gflop: None,
            fma_peaks: fma.to_vec(),
            addition_peaks: additions.to_vec(),
            results: Vec::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_round_in_which_either_rate_is_low_is_left_out() {
        let kept = |fma: &[f64], additions: &[f64]| {
            group(fma, additions).undisturbed(Rates { fma: 100.0, additions: 10.0 })
        };
        assert_eq!(kept(&[100.0, 96.0, 90.0], &[]), [true, true, false]);
        assert_eq!(kept(&[100.0, 96.0, 100.0], &[10.0, 9.8, 6.0]), [true, true, false]);
        // Where every round of a group was disturbed, none counts.
        assert_eq!(kept(&[80.0, 81.0], &[8.0, 8.1]), [false, false]);
    }
}
