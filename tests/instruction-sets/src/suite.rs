//! On every instruction set that Hone makes code for, or the named ones, all official ONNX operator
//! cases and whole networks are compiled, run and compared with what they should give:
//!
//!     cargo test -p hone-instruction-set-tests --test instruction-sets -- [--cases PREFIX] [NAME...]
//!
//! Code for this machine's own architecture runs on it, with no more features than the set has; code
//! for another runs in an emulator. What nothing here can run is compiled, and counted apart.

mod models;
mod sets;

use anyhow::{Result, bail};
use clap::Parser;
use hone_onnx_tests::{Case, Compiled, Machine, folder, load, run};
use models::Model;
use sets::{InstructionSet, SETS};
use std::time::Instant;

#[derive(Parser)]
struct Arguments {
    /// Only the operator cases whose names begin so.
    #[arg(long, default_value = "")]
    cases: String,
    /// Which sets: sse, avx2, avx512, amx, neon, neon-dot, neon-i8mm, rvv; all without a name.
    names: Vec<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(unknown) = arguments.names.iter().find(|name| sets::named(name).is_none()) {
        let known: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        bail!("there is no instruction set '{unknown}': use {}", known.join(", "));
    }
    let chosen = |set: &&InstructionSet| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| name == set.name)
    };
    let cases = load(&folder())?;
    let models = models::all()?;
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for set in SETS.iter().filter(chosen) {
        let outcome = check(set, &cases, &arguments.cases, &models)?;
        println!("{}", outcome.line);
        lines.push(outcome.line);
        if !outcome.is_good {
            failed.push(set.name);
        }
    }
    println!("\ninstruction sets:\n{}", lines.join("\n"));
    if !failed.is_empty() {
        bail!("not everything came out as expected on {}", failed.join(", "));
    }
    Ok(())
}

/// What came of one instruction set.
struct Outcome {
    line: String,
    is_good: bool,
}

fn check(set: &InstructionSet, cases: &[Case], prefix: &str, models: &[Model]) -> Result<Outcome> {
    let start = Instant::now();
    let (target, machine, how) = set.machine()?;
    println!("== {}: {how}", set.title);
    let backend = Compiled::new(target, machine);
    let is_whole = set.only.is_none();
    let report = run(&backend, cases, |case| is_whole && case.name.starts_with(prefix));
    println!("{report}");
    let (mut right, mut compiled, mut wrong) = (0, 0, 0);
    let chosen = |model: &&Model| set.only.is_none_or(|only| model.name.starts_with(only));
    for model in models.iter().filter(chosen) {
        match model.check(&backend) {
            Ok(Some(difference)) => {
                right += 1;
                println!("{}: {difference}", model.name);
            }
            Ok(None) => compiled += 1,
            Err(error) => {
                wrong += 1;
                println!("failed: {}: {error:#}", model.name);
            }
        }
    }
    if let Some(intrinsic) = set.intrinsic {
        let mut uses =
            models.iter().filter(chosen).map(|model| model.has_intrinsic(&backend, intrinsic));
        if !uses.try_fold(false, |any, one| anyhow::Ok(any || one?))? {
            wrong += 1;
            println!("failed: no schedule has {intrinsic}");
        }
    }
    let is_run = !matches!(backend.machine(), Machine::None);
    let found = match is_run {
        true => format!("{} operator cases and {right} models right", report.passed()),
        false => format!("{} operator cases and {compiled} models compiled", report.compiled()),
    };
    let line = format!(
        "{} ({how}): {found}, {} failed, {:.0} s",
        set.title,
        report.failed.len() + report.stale.len() + wrong,
        start.elapsed().as_secs_f64()
    );
    // Without cases a report has nothing to be good about.
    let is_good = wrong == 0 && if is_whole { report.is_good() } else { right + compiled > 0 };
    Ok(Outcome { line, is_good })
}
