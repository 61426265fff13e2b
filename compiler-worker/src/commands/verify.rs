//! `hone verify`: whether an artifact is what it says and computes what it should.

use std::path::PathBuf;

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_artifact::{Manifest, Reader};
use hone_driver::Graph;
use hone_runtime::Options;

use super::common::{model, print, reader};
use crate::binding::Arrays;
use crate::cache;
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::inputs::SEEDS;
use crate::maps;
use crate::npz;
use crate::show::table;
use crate::storage::local;
use crate::verify::{ComposedCheck, Sample, Settings, Subject, verify};
use crate::work::Machine;
use crate::work::executor::{Executor, Native};
use crate::work::verify::{arrange, sentences, standard_samples};

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
    /// The seed of random inputs, and of edge values among them; three fixed ones without it.
    #[arg(long, conflicts_with = "inputs")]
    pub seed: Option<u64>,
    /// Relative tolerance.
    #[arg(long, default_value_t = 1e-3)]
    pub rtol: f64,
    /// Absolute tolerance; a thousandth of an output's largest magnitude without it.
    #[arg(long)]
    pub atol: Option<f64>,
    /// Tolerance relative to the largest magnitude in an output, for arithmetic below f32 and for models that
    /// round to integers.
    #[arg(long)]
    pub max_relative_error: Option<f64>,
    /// Print the kernels with the largest errors.
    #[arg(long, requires = "model")]
    pub kernels: bool,
}

/// Checks and says each thing that holds.
///
/// # Errors
/// The first thing that does not hold.
pub fn run(arguments: &Arguments) -> Result<()> {
    let bytes = local::map(&arguments.artifact)?;
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
        Machine::Device(title) => format!("runs on {title}"),
        Machine::Here | Machine::Missing(_) => "runs here".to_owned(),
    };
    lines.push(format!("{runs}: {} ({})", target.triple, target.cpu));
    if let Some(path) = &arguments.model {
        lines.extend(answers(arguments, path, &bytes, &reader, &mut *executor)?);
    }
    print(&lines.join("\n"))
}

/// What holds of the artifact's answers, or the failure that they are.
fn answers(
    arguments: &Arguments,
    path: &std::path::Path,
    artifact: &[u8],
    reader: &Reader<'_>,
    executor: &mut dyn Executor,
) -> Result<Vec<String>> {
    let manifest = reader.manifest();
    let (model, _) = model(path, &[], None, &cache::folder_for_large_files())?;
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
    let Arguments { rtol, atol, max_relative_error, .. } = *arguments;
    let settings = Settings { rtol, atol, max_relative_error };
    let known = options(manifest);
    let mut lines = Vec::new();
    for (sizes, place) in chosen(arguments, manifest)? {
        let variant = &manifest.variants[place];
        let label = variant.shapes.as_ref().map(ToString::to_string).unwrap_or_default();
        let name = match label.as_str() {
            "" => model.name.clone(),
            label => format!("{} ({label})", model.name),
        };
        // The artifact knows the shapes that open dimensions were bound to.
        let graph = compiler::reference_of_variant(&model, manifest, variant)?;
        let samples = samples(arguments, &graph)?;
        let options = known.as_ref().map_err(String::clone);
        let subject = Subject { name: &name, artifact, sizes, imported: &graph, options };
        let found = verify(&subject, &samples, settings, executor)?;
        if arguments.kernels {
            print(&table::kernels(&found.kernels, KERNELS_SHOWN))?;
        }
        found.judge(&name, settings)?;
        if !label.is_empty() {
            lines.push(format!("at {label}:"));
        }
        lines.extend(sentences(&found, settings));
    }
    let composed = ComposedCheck::run(&model, manifest, known.as_ref().ok(), settings, executor)?;
    if let Some(found) = composed {
        found.judge(&model.name)?;
        lines.push(found.sentence());
    }
    Ok(lines)
}

/// The variants to verify, by their places among those for different sizes and in the manifest: all, or those whose
/// inputs have the shapes of the arrays given.
///
/// # Errors
/// `InvalidInput` where the arrays fit none.
fn chosen(arguments: &Arguments, manifest: &Manifest) -> Result<Vec<(usize, usize)>> {
    let all: Vec<(usize, usize)> = manifest.siblings(0).into_iter().enumerate().collect();
    let Some(path) = &arguments.inputs else { return Ok(all) };
    let arrays = Arrays::read(path)?;
    let place = arrays.sizes(all.iter().map(|own| manifest.inputs_of(&manifest.variants[own.1])));
    Ok(vec![all[place]])
}

/// Most kernels in the table of the worst.
const KERNELS_SHOWN: usize = 20;

fn samples(arguments: &Arguments, graph: &Graph) -> Result<Vec<Sample>> {
    let ports = compiler::ports(graph, false)?;
    match (&arguments.inputs, arguments.seed) {
        (Some(path), _) => {
            let name = path.display().to_string();
            let arrays = maps::laid_out(npz::read(path)?, &maps::of_graph(graph), &name)?;
            let inputs = arrange(&ports, arrays, &name)?;
            Ok(vec![Sample { name, inputs, edges: false }])
        }
        (None, Some(seed)) => Ok(standard_samples(graph, &ports, &[seed], true)),
        (None, None) => Ok(standard_samples(graph, &ports, &SEEDS, true)),
    }
}

/// What the artifact was compiled with, or why that cannot be known.
fn options(manifest: &Manifest) -> std::result::Result<hone_driver::Options, String> {
    let ours = env!("CARGO_PKG_VERSION");
    if manifest.compiler_version != ours {
        let theirs = &manifest.compiler_version;
        return Err(format!("it was compiled by version {theirs}, this is {ours}"));
    }
    let variant = manifest.variants.first();
    let options = variant.and_then(hone_driver::Options::of_variant);
    options.ok_or_else(|| "its manifest does not say how it was compiled".to_owned())
}
