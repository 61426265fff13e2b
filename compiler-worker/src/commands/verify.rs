//! `hone verify`: whether an artifact is what it says and computes what it should.

use std::path::PathBuf;

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_runtime::Options;

use super::common::{model, print, reader};
use crate::compare::Tolerance;
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::npz;
use crate::show::units;
use crate::storage::local;
use crate::work::Machine;
use crate::work::executor::{Executor, Native};
use crate::work::verify::{arrange, compare, judge, random_inputs};

/// What `hone verify` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The artifact.
    pub artifact: PathBuf,
    /// The model that it was compiled from: answers are held against the reference interpreter.
    #[arg(long)]
    pub model: Option<PathBuf>,
    /// Arrays to compare on; random ones without it.
    #[arg(long, value_name = "FILE.npz", requires = "model")]
    pub inputs: Option<PathBuf>,
    /// The seed of random inputs.
    #[arg(long, default_value_t = crate::work::verify::SEED, conflicts_with = "inputs")]
    pub seed: u64,
    /// Relative tolerance.
    #[arg(long, default_value_t = 1e-3)]
    pub rtol: f64,
    /// Absolute tolerance.
    #[arg(long, default_value_t = 1e-4)]
    pub atol: f64,
    /// Tolerance relative to the largest magnitude in an output, for arithmetic below f32.
    #[arg(long, default_value_t = 0.0)]
    pub max_relative_error: f64,
}

/// Checks and says each thing that holds.
///
/// # Errors
/// The first thing that does not hold.
pub fn run(arguments: &Arguments) -> Result<()> {
    let bytes = local::read(&arguments.artifact, u64::MAX)?;
    let reader = reader(&arguments.artifact, &bytes)?;
    let mut lines = vec![
        format!("whole: {} sections match their checksums", reader.sections().len()),
        format!("digest: {}", reader.digest()),
    ];
    let machine = Machine::for_artifact(reader.manifest());
    let mut executor = match machine.load(&arguments.artifact)? {
        Some(executor) => executor,
        // Says what this machine lacks.
        None => Box::new(Native::load(&arguments.artifact, &Options::default())?),
    };
    let target = &reader.manifest().variants[0].target;
    let runs = match &machine {
        Machine::Emulated(emulator) => format!("runs by {}", emulator.name()),
        Machine::Here | Machine::Missing(_) => "runs here".to_owned(),
    };
    lines.push(format!("{runs}: {} ({})", target.triple, target.cpu));
    if let Some(path) = &arguments.model {
        lines.push(answers(arguments, path, reader.manifest(), &mut *executor)?);
    }
    print(&lines.join("\n"))
}

fn answers(
    arguments: &Arguments,
    path: &std::path::Path,
    manifest: &hone_artifact::Manifest,
    executor: &mut dyn Executor,
) -> Result<String> {
    let (model, _) = model(path, &[])?;
    if model.digest != manifest.model_digest {
        let message = format!(
            "artifact '{}' was compiled from {}, model '{}' is {}: give the model that it was compiled from",
            arguments.artifact.display(),
            manifest.model_digest,
            path.display(),
            model.digest
        );
        return Err(Failure::new(Reason::DigestMismatch, message));
    }
    // The artifact knows the shapes that open dimensions were bound to.
    let bound = manifest.inputs.iter().map(|input| Input {
        name: input.name.clone(),
        shape: input.shape.iter().map(|extent| *extent as i64).collect(),
        dtype: None,
    });
    let graph = compiler::reference(&model, &bound.collect::<Vec<_>>())?;
    let ports = compiler::ports(&graph, false)?;
    let inputs = match &arguments.inputs {
        Some(path) => arrange(&ports, npz::read(path)?, &path.display().to_string())?,
        None => random_inputs(&ports, arguments.seed),
    };
    let Arguments { rtol, atol, max_relative_error: share, .. } = *arguments;
    let tolerance = Tolerance { rtol, atol, share };
    let comparison = compare(executor, &graph, &inputs, tolerance)?;
    judge(&model.name, &comparison, tolerance)?;
    Ok(format!(
        "answers: {} elements within rtol {} and atol {} of the reference; largest error {} absolute, {} relative",
        comparison.elements,
        tolerance.rtol,
        tolerance.atol,
        units::error(comparison.max_abs),
        units::error(comparison.max_rel)
    ))
}
