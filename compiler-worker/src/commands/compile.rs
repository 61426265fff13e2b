//! `hone compile`: from a YAML file or a model to a measured artifact.

use std::path::PathBuf;

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_artifact::report::Report;
use hone_artifact::request::{Compile, Subject};
use serde_json::json;

use super::common::{AccessArguments, CacheArguments, print, print_json};
use crate::failure::{Failure, Result};
use crate::show::{Progress, status, table};
use crate::spec::{self, Spec};
use crate::work::{Outcome, WorkOptions, Worker};

/// What `hone compile` takes.
#[derive(Args, Debug)]
#[command(
    override_usage = "hone compile [OPTIONS] <MODEL.onnx>\n       hone compile [OPTIONS] -f <FILE.yaml>"
)]
pub struct Arguments {
    /// The model, an ONNX file; the alternative to a YAML file.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub model: Option<PathBuf>,
    /// A ModelCompilation in YAML, as `kubectl apply` takes it.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// host, or os/arch with an optional :cpu; with -f the name of one of its targets.
    #[arg(long)]
    pub target: Option<String>,
    /// What runs the model in place of the processor: opencl, webgpu (in a browser), one of NVIDIA's architectures (sm_75,
    /// sm_80, sm_86, sm_89, sm_90a), or cuda for that of the device at hand.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub accelerator: Option<String>,
    /// The shape of an input with open dimensions, such as x=1,3,224,224. May be repeated.
    #[arg(long, value_name = "NAME=1,2,…", conflicts_with = "file")]
    pub shape: Vec<String>,
    /// Arithmetic below f32 that may be used where it is faster: bf16.
    #[arg(long, value_name = "TYPE", conflicts_with = "file", requires = "max_relative_error")]
    pub precision: Option<String>,
    /// Largest error that narrower arithmetic may have, as a share of the largest output.
    #[arg(long, value_name = "SHARE", conflicts_with = "file", requires = "precision")]
    pub max_relative_error: Option<f64>,
    /// The folder for artifacts and reports; by default that of the YAML file, or `out`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Threads to measure on; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Measure naive schedules as well, run by run in turn.
    #[arg(long)]
    pub baseline: bool,
    /// Do not measure.
    #[arg(long)]
    pub no_measure: bool,
    /// Do not compare with the reference.
    #[arg(long)]
    pub no_verify: bool,
    /// Print reports as JSON.
    #[arg(long, conflicts_with = "status")]
    pub json: bool,
    /// Print the status that a cluster would show, as YAML.
    #[arg(long)]
    pub status: bool,
    /// What may be fetched.
    #[command(flatten)]
    pub access: AccessArguments,
    /// What is kept between calls.
    #[command(flatten)]
    pub cache: CacheArguments,
}

/// Compiles every target and tells what came out, even where one fails.
///
/// # Errors
/// The first target's that failed; a missed goal.
pub fn run(arguments: &Arguments) -> Result<()> {
    let spec = spec(arguments)?;
    for note in &spec.notes {
        eprintln!("note: {note}");
    }
    let access = arguments.access.access(&spec.folder);
    let cache = arguments.cache.open()?;
    let mut failed = None;
    let mut outcomes = Vec::new();
    for request in &spec.requests {
        let subject = Subject { name: spec.name.clone(), ..Subject::default() };
        let mut outcome = Outcome::new(subject, &request.target.name);
        let progress = Progress::new(&request.target.name);
        let options = options(arguments);
        let worker = Worker { access: &access, cache: &cache, progress: &progress, options };
        if let Err(failure) = worker.run(request, &mut outcome) {
            outcome.report = outcome.report.fail(failure.reason, failure.chain());
            if spec.requests.len() > 1 {
                eprintln!(
                    "error[{}]: target '{}': {}",
                    failure.reason,
                    request.target.name,
                    failure.chain()
                );
            }
            failed.get_or_insert(failure);
        }
        outcomes.push(outcome);
    }
    tell(arguments, &spec, &outcomes)?;
    match failed {
        Some(failure) => Err(failure),
        None => goals(&spec, &outcomes),
    }
}

fn spec(arguments: &Arguments) -> Result<Spec> {
    let mut spec = match (&arguments.file, &arguments.model) {
        (Some(file), _) => spec::from_file(file)?,
        (None, Some(model)) => {
            let target = arguments.target.as_deref().unwrap_or("host");
            let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from("out"));
            let mut spec = spec::from_model(model, target, &arguments.shape, &out)?;
            for request in &mut spec.requests {
                request.precision.extend(arguments.precision.clone());
                request.max_relative_error = arguments.max_relative_error;
                if let Some(accelerator) = &arguments.accelerator {
                    request.target.name = accelerator.clone();
                    request.target.accelerator = Some(accelerator.clone());
                }
            }
            return Ok(spec);
        }
        (None, None) => return Err(Failure::new(Reason::Usage, "give a model or -f FILE.yaml")),
    };
    if let Some(wanted) = &arguments.target {
        select(&mut spec.requests, wanted)?;
    }
    if let Some(out) = &arguments.out {
        let absolute = std::path::absolute(out)
            .map_err(|error| Failure::io(format!("'{}' is no folder", out.display()), error))?;
        for request in &mut spec.requests {
            request.output.uri = format!("file://{}", absolute.display());
        }
    }
    Ok(spec)
}

fn select(requests: &mut Vec<Compile>, wanted: &str) -> Result<()> {
    let names: Vec<String> = requests.iter().map(|request| request.target.name.clone()).collect();
    requests.retain(|request| request.target.name == wanted);
    match requests.is_empty() {
        false => Ok(()),
        true => {
            let message = format!("the file has no target '{wanted}': it has {}", names.join(", "));
            Err(Failure::new(Reason::Usage, message))
        }
    }
}

fn options(arguments: &Arguments) -> WorkOptions {
    WorkOptions {
        threads: arguments.threads,
        verify: !arguments.no_verify,
        measure: !arguments.no_measure,
        baseline: arguments.baseline,
        ..WorkOptions::default()
    }
}

fn tell(arguments: &Arguments, spec: &Spec, outcomes: &[Outcome]) -> Result<()> {
    if arguments.json {
        let reports: Vec<_> = outcomes
            .iter()
            .map(|Outcome { report, details, page, .. }| {
                json!({"report": report, "details": details, "page": page})
            })
            .collect();
        return print_json(&json!({"name": spec.name, "targets": reports}));
    }
    if arguments.status {
        let status = json!({"status": status::status(outcomes, &spec.goals)});
        return print(&serde_yaml::to_string(&status).unwrap_or_default());
    }
    if outcomes.iter().all(|outcome| outcome.report.artifact.is_none()) {
        return Ok(());
    }
    let mut text = table::results(outcomes);
    text.push('\n');
    for Outcome { report, details, page, .. } in outcomes {
        text.push_str(&lines(report, page.as_deref()));
        if let Some(table) = table::sizes(&report.sizes) {
            text.push_str(&format!("{table}\n"));
        }
        for note in &details.notes {
            text.push_str(&format!("{}: {note}\n", report.target));
        }
    }
    print(&text)
}

/// Where things are.
fn lines(report: &Report, page: Option<&str>) -> String {
    let Some(artifact) = &report.artifact else { return String::new() };
    let plain = |uri: &str| uri.strip_prefix("file://").unwrap_or(uri).to_owned();
    let page = page.map_or(String::new(), |page| format!("  report    {}\n", plain(page)));
    format!(
        "{}\n  artifact  {}\n  digest    {}\n{page}",
        report.target,
        plain(&artifact.uri),
        artifact.digest
    )
}

fn goals(spec: &Spec, outcomes: &[Outcome]) -> Result<()> {
    let missed = outcomes.iter().filter_map(|outcome| status::missed(&outcome.report, &spec.goals));
    let missed: Vec<String> = missed.collect();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            Reason::GoalMissed,
            format!("{}; the artifact is kept", missed.join("; ")),
        )),
    }
}
