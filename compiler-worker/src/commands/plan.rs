//! `hone plan`: what `hone compile -f` would do.

use std::path::PathBuf;

use clap::Args;
use hone_artifact::request::Compile;
use hone_driver::{DataType, Target};
use serde::Serialize;

use super::common::{AccessArguments, CacheArguments, print, print_json};
use crate::compiler::{self, Recipe};
use crate::failure::Result;
use crate::show::{Progress, table, units};
use crate::spec;
use crate::work::{Machine, WorkOptions, Worker};

/// What `hone plan` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A ModelCompilation in YAML.
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// What may be fetched.
    #[command(flatten)]
    pub access: AccessArguments,
    /// What is kept between calls.
    #[command(flatten)]
    pub cache: CacheArguments,
}

/// What would be done for a target.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    target: String,
    code_for: String,
    model_digest: String,
    model_bytes: u64,
    nodes: usize,
    cache: &'static str,
    /// Whether this machine, or a device of it, runs the artifact, so that it is measured.
    runs_here: bool,
    /// Which arithmetic it will have, and what decides.
    precision: String,
    trials: u64,
    output: String,
}

/// Fetches and imports the model, so that its errors show, and says what would follow.
///
/// # Errors
/// Those of `hone compile` up to the import.
pub fn run(arguments: &Arguments) -> Result<()> {
    let spec = spec::from_file(&arguments.file)?;
    let access = arguments.access.access(&spec.folder);
    let (cache, progress) = (arguments.cache.open()?, Progress::silent());
    let options = WorkOptions::default();
    let worker = Worker { access: &access, cache: &cache, progress: &progress, options };
    let planned: Vec<Planned> =
        spec.requests.iter().map(|request| plan(&worker, request)).collect::<Result<_>>()?;
    if arguments.json {
        return print_json(&planned);
    }
    let mut table = table::table(&[
        "target",
        "code for",
        "model",
        "nodes",
        "cache",
        "trials",
        "measured here",
        "precision",
        "output",
    ]);
    for plan in &planned {
        table.add_row(vec![
            plan.target.clone(),
            plan.code_for.clone(),
            units::bytes(plan.model_bytes),
            plan.nodes.to_string(),
            plan.cache.to_owned(),
            plan.trials.to_string(),
            if plan.runs_here { "yes" } else { "no" }.to_owned(),
            plan.precision.clone(),
            plan.output.clone(),
        ]);
    }
    let notes: String = spec.notes.iter().map(|note| format!("note: {note}\n")).collect();
    print(&format!("{table}\n{notes}"))
}

fn plan(worker: &Worker<'_>, request: &Compile) -> Result<Planned> {
    let model = worker.fetch(&request.model)?;
    let target = compiler::target(&request.target)?;
    let graph = compiler::reference(&model, &request.inputs)?;
    let runs_here = Machine::of(&hone_driver::manifest_target(&target)).is_here();
    let known = worker.known(&model, &request.inputs, &target, &Recipe::analytic(DataType::F32));
    Ok(Planned {
        target: request.target.name.clone(),
        code_for: match target.accelerator {
            Some(accelerator) => format!("{} {accelerator}", target.triple),
            None => format!("{} {}", target.triple, target.cpu),
        },
        model_digest: model.digest.clone(),
        model_bytes: model.bytes.len() as u64,
        nodes: graph.nodes().len(),
        cache: if known.is_some() { "Hit" } else { "Miss" },
        runs_here,
        precision: precision(request, &target, runs_here),
        trials: 0,
        output: request.output.uri.clone(),
    })
}

/// Which arithmetic an artifact will have, and what decides.
fn precision(request: &Compile, target: &Target, runs_here: bool) -> String {
    let narrow = request.precision.iter().filter(|name| {
        let known = name.parse::<DataType>().ok();
        known.is_some_and(|own| own != DataType::F32 && target.multiplies(own))
    });
    let narrow: Vec<&str> = narrow.map(String::as_str).collect();
    let narrow = narrow.join(" or ");
    match (narrow.is_empty(), runs_here, target.accelerator) {
        (false, true, _) => format!("{narrow} where it is measured to be faster; else f32"),
        (false, false, Some(_)) => {
            format!("{narrow} where an estimate says that it pays, not measured; else f32")
        }
        _ => "f32".to_owned(),
    }
}
