//! `hone-mutation --seed 1 --faults 200`: puts single faults into generated code and packed weights of small
//! networks and counts how many of them `hone verify` catches; and verifies the sound artifacts, none of
//! which may be refused.
//!
//! A fault in code is one change of one loop program after scheduling, from which code is made as usual; the
//! interpreter of loop programs says that it changes what is computed, inside of the program's buffers. A fault
//! of either kind counts only where the answers of the artifact show it: in at least one bit of what it gives
//! for inputs that verification does not use. Every fault is tried in a process of its own, since wrong code
//! may end it: that is caught as well.

mod program;
mod subjects;
mod weights;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use hone_model_builder::Random;
use hone_tensor::Program;
use hone_worker::inputs::SEEDS;
use hone_worker::verify::{Settings, verify};
use hone_worker::work::executor::{Executor, Native};
use hone_worker::work::verify::standard_samples;
use subjects::Subject;

/// Fewest faults caught, in percent.
const CAUGHT_PERCENT: usize = 99;
/// Draws that may fail before a fault is found.
const DRAWS: u64 = 200;
/// Seeds of the inputs on which a fault must show. Verification draws its inputs from others.
const SHOWN_ON: std::ops::Range<u64> = 1..17;
/// The artifact refused; other codes are those of errors.
const CAUGHT: i32 = 40;
const MISSED: i32 = 41;
const NO_FAULT: i32 = 42;

/// Counts which faults verification catches.
#[derive(Parser)]
struct Arguments {
    /// What networks, faults and inputs are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many faults.
    #[arg(long, default_value_t = 200)]
    faults: u64,
    /// Tries one fault alone, as a process of this program does, and ends with what became of it.
    #[arg(long, hide = true)]
    only: Option<u64>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(index) = arguments.only {
        let code = one(arguments.seed, index)?;
        return Ok(ExitCode::from(code as u8));
    }
    let (refused, sound) = check_sound(arguments.seed)?;
    let outcomes = check_faults(&arguments)?;
    let caught = outcomes.iter().filter(|caught| **caught).count();
    let all = outcomes.len();
    println!("{caught} of {all} faults caught, {refused} of {sound} sound artifacts refused");
    let passed = refused == 0 && caught * 100 >= all * CAUGHT_PERCENT;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Verifies every network as it is compiled: how many were refused, of how many.
fn check_sound(seed: u64) -> Result<(usize, usize)> {
    let subjects = subjects::all(seed)?;
    let mut refused = 0;
    for subject in &subjects {
        let artifact = compile(subject, &mut |_, _| {})?;
        if let Some(reason) = refusal(subject, &artifact)? {
            println!("sound, but refused: {}: {reason}", subject.name);
            refused += 1;
        }
    }
    Ok((refused, subjects.len()))
}

/// Tries every fault, two at a time: whether each was caught.
fn check_faults(arguments: &Arguments) -> Result<Vec<bool>> {
    let program = std::env::current_exe()?;
    let next = Mutex::new(0..arguments.faults);
    let work = || -> Result<Vec<bool>> {
        let mut outcomes = Vec::new();
        while let Some(index) = next.lock().ok().and_then(|mut next| next.next()) {
            outcomes.push(try_fault(&program, arguments.seed, index)?);
        }
        Ok(outcomes)
    };
    let workers: Vec<Result<Vec<bool>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let mut outcomes = Vec::new();
    for worker in workers {
        outcomes.extend(worker?);
    }
    ensure!(outcomes.len() as u64 == arguments.faults, "a worker ended early");
    Ok(outcomes)
}

/// Tries one fault in a process of its own: whether it was caught.
fn try_fault(program: &Path, seed: u64, index: u64) -> Result<bool> {
    let output = Command::new(program)
        .args(["--seed", &seed.to_string(), "--only", &index.to_string()])
        .output()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.trim().lines().last().unwrap_or("").to_owned();
    match output.status.code() {
        Some(CAUGHT) => Ok(true),
        Some(MISSED) => {
            println!("missed: fault {index}: {text}");
            Ok(false)
        }
        Some(NO_FAULT) => anyhow::bail!("fault {index}: none was found in {DRAWS} draws"),
        // Ended by a signal: after the fault stood in the artifact that is a fault that shows.
        None if text.starts_with("verifying") => Ok(true),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::bail!("fault {index} cannot be tried ({}): {said}", output.status)
        }
    }
}

/// Draws a fault, puts it in and verifies.
fn one(seed: u64, index: u64) -> Result<i32> {
    let subjects = subjects::all(seed)?;
    let subject = &subjects[index as usize % subjects.len()];
    for draw in 0..DRAWS {
        let mut random = Random::new(seed ^ (index << 20) ^ (draw << 8));
        let faulty = match index.is_multiple_of(4) {
            true => weights::draw(&compile(subject, &mut |_, _| {})?, &mut random)?,
            false => faulty_code(subject, &mut random),
        };
        let Some((artifact, description)) = faulty else { continue };
        println!("verifying {}: {description}", subject.name);
        if !shows(subject, &artifact)? {
            continue;
        }
        return Ok(match refusal(subject, &artifact)? {
            Some(_) => CAUGHT,
            None => MISSED,
        });
    }
    Ok(NO_FAULT)
}

/// An artifact with a fault in the code of one kernel; `None` where the drawn one changes nothing, leaves the
/// program's buffers, or cannot be compiled.
fn faulty_code(subject: &Subject, random: &mut Random) -> Option<(Vec<u8>, String)> {
    let mut programs: Vec<Program> = Vec::new();
    let sound = compile(subject, &mut |_, program| programs.push(program.clone())).ok()?;
    let chosen = program::below(random, programs.len());
    let fault = program::draw(&programs[chosen], random)?;
    let calls = weights::of_kernel(&sound, chosen).ok()?;
    let is_fault = calls.iter().any(|weights| {
        let weights: Vec<Option<&[u8]>> = weights.iter().map(Option::as_deref).collect();
        program::changes(&programs[chosen], &fault.program, &weights, random)
    });
    if !is_fault {
        return None;
    }
    let mut edit = |kernel: usize, program: &mut Program| {
        if kernel == chosen {
            *program = fault.program.clone();
        }
    };
    let artifact = compile(subject, &mut edit).ok()?;
    Some((artifact, format!("kernel {chosen}: {}", fault.description)))
}

/// Whether an artifact answers otherwise than the sound one, in any bit, on inputs of its kind.
fn shows(subject: &Subject, faulty: &[u8]) -> Result<bool> {
    let sound = compile(subject, &mut |_, _| {})?;
    let ports = hone_worker::compiler::ports(&subject.graph, false)?;
    let seeds: Vec<u64> = SHOWN_ON.collect();
    let options = hone_runtime::Options::default();
    let mut sound = Native::from_bytes(sound, &options)?;
    let mut faulty = Native::from_bytes(faulty.to_vec(), &options)?;
    for sample in standard_samples(&subject.graph, &ports, &seeds, true) {
        let answers = faulty.run(&sample.inputs);
        if answers.is_err() || answers? != sound.run(&sample.inputs)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The artifact of a network, its scheduled programs changed by `edit`.
fn compile(subject: &Subject, edit: &mut dyn FnMut(usize, &mut Program)) -> Result<Vec<u8>> {
    let Subject { graph, model, options, .. } = subject;
    let compiled = hone_driver::compile_edited(graph.clone(), model, options, edit)
        .with_context(|| format!("{} cannot be compiled", subject.name))?;
    Ok(compiled.artifact)
}

/// Why verification refuses an artifact; `None` where it does not.
fn refusal(subject: &Subject, artifact: &[u8]) -> Result<Option<String>> {
    let what = hone_worker::verify::Subject {
        name: &subject.name,
        artifact,
        sizes: 0,
        imported: &subject.graph,
        options: Ok(&subject.options),
    };
    // As `hone compile --precision bf16 --max-relative-error 0.1` would ask for reduced precision.
    let reduced = subject.options.precision != hone_driver::DataType::F32;
    let settings =
        Settings { rtol: 1e-3, atol: Some(1e-4), max_relative_error: reduced.then_some(0.1) };
    let ports = hone_worker::compiler::ports(&subject.graph, false)?;
    // What `hone verify` compares on, without its options.
    let samples = standard_samples(&subject.graph, &ports, &SEEDS, true);
    let mut executor = Native::from_bytes(artifact.to_vec(), &hone_runtime::Options::default())?;
    let verification = verify(&what, &samples, settings, &mut executor)?;
    Ok(verification.judge(&subject.name, settings).err().map(|failure| failure.to_string()))
}
