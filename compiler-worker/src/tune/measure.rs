//! The measuring process: builds candidates, holds their answers against the plain program's, and times them
//! beside the schedule without tuning, all in one loop, so that what the machine does meanwhile happens to
//! all. It is a process of its own because a fatal error of LLVM or a wild store ends it.
//!
//! The state of caches: before each candidate a step reads and writes as much as the second-level cache
//! holds, so that operands come from the caches behind it, as they mostly do within a network.

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::ops::Range;
use std::time::Instant;

use hone_artifact::{Access, Manifest, Reader, TensorInfo, Writer};
use hone_driver::{Options, Target, Trial, TrialArtifact, trial_artifact};
use hone_emulator::Emulator;
use hone_runtime::{Affinity, StepArgument};
use hone_search::Class;

use super::board::Board;
use super::loaded::{Loaded, Network, reach};
use super::near::is_near;
use super::protocol::{Answer, Ask, Compare, Compared, Measured, StepTimes, Trials};
use super::statistics::paired;
use crate::failure::{Failure, Result};
use crate::random::{Random, content};

/// Fewest runs of all candidates.
const LEAST_RUNS: usize = 5;
/// Most runs of all candidates.
const MOST_RUNS: usize = 400;
/// Most rounds of two artifacts.
const MOST_ROUNDS: usize = 5000;
/// A candidate whose first run takes so many times that of the schedule without tuning is not run again.
const HOPELESS: f64 = 3.0;
/// Bytes of the plain programs' answers that are kept.
const KEPT_BYTES: usize = 512 << 20;

/// Answers requests until standard input ends.
///
/// # Errors
/// Standard input or output that fails.
pub fn serve(target: &Target, threads: usize, board: Option<&Board>) -> Result<()> {
    let board = board.map(|board| board.reached(target)).transpose()?;
    let options = Options::new(target.clone());
    let mut process = Process { options, threads, board, kept: HashMap::new() };
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| Failure::io("standard input cannot be read", error))?;
        let asked: std::result::Result<Ask, _> = serde_json::from_str(&line);
        let answer = match asked {
            Ok(Ask::Trials(trials)) => process.trials(&trials),
            Ok(Ask::Compare(compare)) => process.compare(&compare),
            Ok(Ask::Reach) => {
                process.board.as_ref().map_or(Ok(()), reach).map(|()| Answer::Reached)
            }
            Err(error) => Err(Failure::because(
                hone_artifact::exit_code::Reason::Usage,
                "the request is not understood",
                error,
            )),
        };
        say(&answer.unwrap_or_else(|failure| Answer::Failed { cause: failure.chain() }))?;
    }
    Ok(())
}

fn say(answer: &Answer) -> Result<()> {
    let mut out = stdout().lock();
    // Plain data always has a JSON form.
    let text = serde_json::to_string(answer).unwrap_or_default();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| Failure::io("standard output cannot be written", error))
}

struct Process {
    options: Options,
    threads: usize,
    /// What candidates run on, where it is not this machine.
    board: Option<Emulator>,
    /// Outputs of plain programs by digest, in the order of the program's outputs.
    kept: HashMap<String, Vec<Vec<u8>>>,
}

impl Process {
    fn runtime(&self) -> hone_runtime::Options {
        let affinity = Affinity::Pinned;
        hone_runtime::Options { threads: self.threads, affinity, ..Default::default() }
    }

    fn trials(&mut self, asked: &Trials) -> Result<Answer> {
        let needs_plain = !self.kept.contains_key(&asked.digest);
        let mut trials = vec![Trial::Untuned];
        trials.extend(asked.candidates.iter().cloned().map(Trial::Decided));
        trials.extend(needs_plain.then_some(Trial::Plain));
        let made = trial_artifact(&asked.program, &trials, true, &self.options);
        let TrialArtifact { bytes, inputs, outputs, mut candidates } = made.map_err(|error| {
            let reason = hone_artifact::exit_code::Reason::CompilerError;
            Failure::because(reason, "code cannot be made", error)
        })?;
        let mut model = Loaded::new(&bytes, self.board.as_ref(), &self.runtime())?;
        say(&Answer::Started)?;
        let inputs: Vec<Vec<u8>> = {
            let mut random = Random::new(0x5eed);
            inputs.iter().map(|tensor| content(tensor, &mut random)).collect()
        };
        if needs_plain {
            let plain = candidates.pop().and_then(std::result::Result::ok).unwrap_or(0..0);
            let (outputs, _) = once(&mut model, plain, &inputs)?;
            if self.kept.values().flatten().map(Vec::len).sum::<usize>() > KEPT_BYTES {
                self.kept.clear();
            }
            self.kept.insert(asked.digest.clone(), outputs);
        }
        let expected = &self.kept[&asked.digest];
        let mut results: Vec<Measured> = Vec::new();
        let mut chosen: Vec<(usize, Range<usize>)> = Vec::new();
        let mut untuned_time = f64::INFINITY;
        for (place, candidate) in candidates.into_iter().enumerate() {
            let steps = match candidate {
                Ok(steps) => steps,
                Err(error) => {
                    let cause = Failure::because(
                        hone_artifact::exit_code::Reason::CompilerError,
                        "code cannot be made",
                        error,
                    );
                    results.push(Measured::failed(Class::CompileError, cause.chain()));
                    continue;
                }
            };
            let answer = once(&mut model, steps.clone(), &inputs);
            let took = answer.as_ref().map_or(0.0, |(_, nanoseconds)| *nanoseconds as f64);
            results.push(match answer.map(|(found, _)| first_wrong(&outputs, expected, &found)) {
                Err(failure) => Measured::failed(Class::WrongResult, failure.chain()),
                Ok(Some(cause)) => Measured::failed(Class::WrongResult, cause),
                Ok(None) if took > HOPELESS * untuned_time => {
                    let ratio = took / untuned_time;
                    Measured {
                        class: Class::Ok,
                        nanoseconds: Some(took),
                        ratio: Some((ratio, ratio, ratio)),
                        cause: None,
                    }
                }
                Ok(None) => {
                    if place == 0 {
                        untuned_time = took;
                    }
                    chosen.push((place, steps));
                    Measured { class: Class::Ok, nanoseconds: None, ratio: None, cause: None }
                }
            });
        }
        if chosen.first().is_none_or(|(place, _)| *place != 0) {
            return Ok(without_untuned(&results));
        }
        let times = self.time(&bytes, &mut chosen, &inputs, asked.seconds)?;
        drop(model);
        for ((place, _), own) in chosen.iter().zip(&times) {
            let (ratio, interval) = paired(own, &times[0]);
            let mut sorted = own.clone();
            sorted.sort_unstable();
            let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
            results[*place].nanoseconds = Some(median.max(1) as f64);
            results[*place].ratio = Some((ratio, interval.0, interval.1));
        }
        // The schedule without tuning is first; its median is what the others are told beside.
        results.remove(0);
        Ok(Answer::Trials { trials: results })
    }

    /// Nanoseconds of each run of each chosen candidate. The others' steps are left out.
    fn time(
        &self,
        bytes: &[u8],
        chosen: &mut [(usize, Range<usize>)],
        inputs: &[Vec<u8>],
        seconds: f64,
    ) -> Result<Vec<Vec<u64>>> {
        let bytes = with_steps(bytes, chosen)?;
        let mut model = Loaded::new(&bytes, self.board.as_ref(), &self.runtime())?;
        // Inputs stay in the arena: no candidate writes them.
        if let Some((_, steps)) = chosen.first() {
            once(&mut model, steps.clone(), inputs)?;
        }
        let mut times = vec![Vec::new(); chosen.len()];
        let _pinned = Pinned::here();
        let begin = Instant::now();
        for run in 0..=MOST_RUNS {
            let over = begin.elapsed().as_secs_f64() > seconds;
            if run > LEAST_RUNS && over {
                break;
            }
            let all = model.run_all()?;
            // The first run brings in pages and wakes threads.
            if run > 0 {
                for (times, (_, steps)) in times.iter_mut().zip(chosen.iter()) {
                    times.push(all[steps.clone()].iter().sum());
                }
            }
        }
        Ok(times)
    }

    /// Whole runs first, then runs that are timed step by step; both artifacts in turn, and who is first changes.
    fn compare(&self, asked: &Compare) -> Result<Answer> {
        let board = self.board.as_ref();
        let mut ours = Network::load(&asked.ours, self.threads, board)?;
        let mut theirs = Network::load(&asked.theirs, self.threads, board)?;
        say(&Answer::Started)?;
        let _pinned = Pinned::here();
        let mut found = Compared::default();
        in_turn(0.6 * asked.seconds, |is_ours, counts| {
            let subject = if is_ours { &mut ours } else { &mut theirs };
            let took = subject.run()?;
            let times = if is_ours { &mut found.ours } else { &mut found.theirs };
            times.extend(counts.then_some(took));
            Ok(())
        })?;
        found.our_steps = steps_of(&ours);
        found.their_steps = steps_of(&theirs);
        in_turn(0.4 * asked.seconds, |is_ours, counts| {
            let (subject, steps) = match is_ours {
                true => (&mut ours, &mut found.our_steps),
                false => (&mut theirs, &mut found.their_steps),
            };
            let times = subject.run_steps()?;
            for (own, time) in steps.iter_mut().zip(times).filter(|_| counts) {
                own.times.push(time);
            }
            Ok(())
        })?;
        Ok(Answer::Compared(found))
    }
}

/// An artifact's steps, with no times yet.
fn steps_of(subject: &Network) -> Vec<StepTimes> {
    let new = |step: &hone_artifact::Step| StepTimes {
        kernel: step.kernel.clone(),
        nodes: step.nodes.clone(),
        times: Vec::new(),
    };
    subject.variant().steps.iter().map(new).collect()
}

/// Runs two in turn, as long as the seconds last and a few times at least. The first round does not count.
fn in_turn(seconds: f64, mut run: impl FnMut(bool, bool) -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    for round in 0..=MOST_ROUNDS {
        if round > LEAST_RUNS && begin.elapsed().as_secs_f64() > seconds {
            break;
        }
        for turn in 0..2 {
            run((round + turn) % 2 == 0, round > 0)?;
        }
    }
    Ok(())
}

/// Runs some steps once, with memory full of other values before; what the outputs hold then, and the nanoseconds that it took.
fn once(
    model: &mut Loaded,
    steps: Range<usize>,
    inputs: &[Vec<u8>],
) -> Result<(Vec<Vec<u8>>, u64)> {
    let step = model.variant().steps.get(steps.start);
    let table = step.map(|own| own.arguments.clone()).unwrap_or_default();
    let mut inputs = inputs.iter();
    let mut written: Vec<Vec<u8>> = table
        .iter()
        .filter(|own| own.access != Access::Read)
        .map(|own| vec![0xA5; own.bytes as usize])
        .collect();
    let mut others = written.iter_mut();
    let arguments = table.iter().map(|argument| match argument.access {
        Access::Read => inputs.next().map(|own| StepArgument::Fill(own)),
        _ => others.next().map(|own| StepArgument::Exchange(own)),
    });
    let mut arguments: Vec<StepArgument<'_>> =
        arguments.map(|own| own.unwrap_or(StepArgument::Leave)).collect();
    let nanoseconds = model.run_steps(steps, &mut arguments)?;
    drop(arguments);
    let outputs = table.iter().filter(|own| own.access != Access::Read).zip(written);
    let written = outputs.filter(|(own, _)| own.access == Access::Write);
    Ok((written.map(|(_, bytes)| bytes).collect(), nanoseconds))
}

/// What is said of candidates where the schedule without tuning, the first of the results, cannot be timed beside them. Where
/// it answers wrong, so may they: that is said of the machine as much as of any of them, and of no code that cannot be made.
fn without_untuned(results: &[Measured]) -> Answer {
    let untuned = results.first();
    let cause = untuned.and_then(|own| own.cause.clone()).unwrap_or_default();
    let cause = format!("the schedule without tuning cannot be used: {cause}");
    match untuned.map(|own| own.class) {
        Some(Class::WrongResult) => {
            let wrong = Measured::failed(Class::WrongResult, cause);
            Answer::Trials { trials: vec![wrong; results.len() - 1] }
        }
        _ => Answer::Failed { cause },
    }
}

/// The first output that is not near enough to what the plain program gives.
fn first_wrong(outputs: &[TensorInfo], expected: &[Vec<u8>], found: &[Vec<u8>]) -> Option<String> {
    let all = outputs.iter().zip(expected.iter().zip(found));
    all.enumerate().find_map(|(place, (tensor, (expected, found)))| {
        let why = is_near(tensor.dtype, expected, found).err()?;
        Some(format!("output {place}: {why}"))
    })
}

/// The artifact with the steps of the chosen candidates alone, each after the step before it, which fills the
/// cache; their ranges are put right.
fn with_steps(bytes: &[u8], chosen: &mut [(usize, Range<usize>)]) -> Result<Vec<u8>> {
    let unusable = |error| {
        let reason = hone_artifact::exit_code::Reason::InternalError;
        Failure::because(reason, "the trial's artifact cannot be read", error)
    };
    let reader = Reader::new(bytes).map_err(unusable)?;
    let mut manifest: Manifest = reader.manifest().clone();
    let Some(variant) = manifest.variants.first_mut() else {
        return Err(Failure::internal("a trial's artifact has no variant"));
    };
    let all = std::mem::take(&mut variant.steps);
    for (_, steps) in chosen.iter_mut() {
        let begin = variant.steps.len() + 1;
        variant.steps.extend_from_slice(&all[steps.start - 1..steps.end]);
        *steps = begin..variant.steps.len();
    }
    let mut writer = Writer::new();
    let code = reader.code(variant.code).unwrap_or_default().to_vec();
    variant.code = writer.code(code);
    variant.weights = writer.weights(Vec::new());
    Ok(writer.to_bytes(&manifest)?)
}

/// Keeps this thread on the processor it runs on, while it lives. The pool's threads have processors of their
/// own.
struct Pinned(Option<rustix::thread::CpuSet>);

impl Pinned {
    fn here() -> Self {
        let before = rustix::thread::sched_getaffinity(None).ok();
        let first = before
            .and_then(|set| (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)));
        if let Some(cpu) = first {
            let mut one = rustix::thread::CpuSet::new();
            one.set(cpu);
            // Where it is not allowed, times are a little noisier.
            let _ = rustix::thread::sched_setaffinity(None, &one);
        }
        Self(before)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = rustix::thread::sched_setaffinity(None, before);
        }
    }
}
