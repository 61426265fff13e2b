//! `hone reduce`: from a model that fails to a small one that fails alike.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hone_artifact::exit_code::Reason;

use super::common::{is_artifact, print};
use super::proposal::quoted;
use super::tune::duration;
use crate::cache::Cache;
use crate::failure::{Failure, Result};
use crate::reduce::{Attempts, Flags, Reduced, Settings, reduce, tell_value_types};
use crate::show::units;
use crate::spec;
use crate::tune::Interrupt;

/// What `hone reduce` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The model on which `hone compile` fails, an ONNX file.
    pub model: PathBuf,
    /// Where the smallest model that fails alike is written, from the first one on; MODEL.reduced.onnx beside the model.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Longest time of one attempt, such as 90s; one that takes longer fails by that.
    #[arg(long, default_value = "120s", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// Replace names by v0, v1, … and weights by seeded numbers, where it fails alike.
    #[arg(long)]
    pub anonymous: bool,
    /// What code is made for: host, or os/arch with an optional :cpu.
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// What runs the model in place of the processor, as for hone compile.
    #[arg(long, value_name = "NAME")]
    pub accelerator: Option<String>,
    /// The shape of an input or the size of a dimension, as for hone compile. May be repeated.
    #[arg(long, value_name = "NAME=1,2,…")]
    pub shape: Vec<String>,
    /// Arithmetic below f32, as for hone compile.
    #[arg(long, value_name = "TYPE", requires = "max_relative_error")]
    pub precision: Option<String>,
    /// Largest error that narrower arithmetic may have.
    #[arg(long, value_name = "SHARE", requires = "precision")]
    pub max_relative_error: Option<f64>,
    /// Do not compare with the reference.
    #[arg(long)]
    pub no_verify: bool,
    /// Where tuning records lie; by default those of hone compile.
    #[arg(long, env = "HONE_RECORDS", value_name = "DIR")]
    pub records: Option<PathBuf>,
    /// Write the types of the model's values to standard output: the process in which they are found.
    #[arg(long, hide = true)]
    pub value_types: bool,
}

/// Reduces and tells what came out.
///
/// # Errors
/// `Usage` for a model that does not fail; a failure that a smaller model would have too; `Interrupted`, with the smallest
/// model so far kept.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.value_types {
        return tell_value_types(&arguments.model);
    }
    let model = arguments.model.as_path();
    if is_artifact(model)? {
        let message = format!("'{}' is an artifact: give the model itself", model.display());
        return Err(Failure::new(Reason::Usage, message));
    }
    let out = arguments.out.clone().unwrap_or_else(|| model.with_extension("reduced.onnx"));
    if is_same(model, &out) {
        let message = format!("'{}' is the model itself: name another with --out", out.display());
        return Err(Failure::new(Reason::Usage, message));
    }
    let target = arguments.target.as_deref().unwrap_or("host");
    let spec = spec::from_model(model, target, &arguments.shape, Path::new("."))?;
    let sizes = spec.requests.into_iter().flat_map(|request| request.inputs).collect();
    let Some(name) = out.file_name().map(ToOwned::to_owned) else {
        let message = format!("'{}' names no file: give one with --out", out.display());
        return Err(Failure::new(Reason::Usage, message));
    };
    let settings =
        Settings { model, out, flags: flags(arguments), sizes, anonymous: arguments.anonymous };
    let records = Cache::open(None, true)?.with_records(arguments.records.as_deref());
    let interrupt =
        Interrupt::on_signals("note: the reduction ends; the smallest model so far is kept");
    let attempts = Attempts::new(records.records_folder(), &name, arguments.timeout, interrupt)?;
    let begin = Instant::now();
    let reduced = reduce(&settings, &attempts)?;
    print(&text(&reduced, &settings, begin.elapsed()))?;
    reduced.ended.map_or(Ok(()), Err)
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some() && real(one) == real(other)
}

/// What decides about the outcome, as options of `hone compile`.
fn flags(arguments: &Arguments) -> Flags {
    let with_value = [
        ("--target", arguments.target.clone()),
        ("--accelerator", arguments.accelerator.clone()),
        ("--precision", arguments.precision.clone()),
        ("--max-relative-error", arguments.max_relative_error.map(|share| share.to_string())),
    ];
    let mut options: Vec<OsString> = Vec::new();
    for (name, value) in with_value {
        if let Some(value) = value {
            options.extend([name.into(), value.into()]);
        }
    }
    if arguments.no_verify {
        options.push("--no-verify".into());
    }
    Flags { options, shapes: arguments.shape.clone() }
}

fn text(reduced: &Reduced, settings: &Settings<'_>, took: Duration) -> String {
    let (Reduced { nodes, bytes, attempts, outcome, .. }, out) = (reduced, &settings.out);
    let message = outcome.message.replace('\n', "\n          ");
    let mut call = vec!["hone compile".to_owned(), quoted(&out.to_string_lossy())];
    call.push("--no-measure".to_owned());
    call.extend(reduced.options.iter().map(|word| quoted(&word.to_string_lossy())));
    let mut text = format!(
        "reduced   {}\nnodes     {} of {}\nbytes     {} of {}\nattempts  {attempts} in {}\nfailure   {}\n          {message}\nagain     {}\n",
        out.display(),
        nodes.1,
        nodes.0,
        bytes.1.unwrap_or(bytes.0),
        bytes.0,
        units::time(took.as_nanos() as u64),
        outcome.end,
        call.join(" "),
    );
    for note in &reduced.notes {
        text.push_str(&format!("note      {note}\n"));
    }
    text
}
