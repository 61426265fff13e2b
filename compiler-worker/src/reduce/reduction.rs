//! The whole way from a model that fails to a small one that fails alike.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_driver::onnx::edit;
use hone_driver::onnx::proto::ModelProto;
use hone_driver::{Bytes, ImportOptions};
use prost::Message;

use super::attempt::{Attempts, Flags};
use super::cleaned::cleaned;
use super::fixed_sizes::with_fixed_sizes;
use super::outcome::{End, Outcome};
use super::subgraph::ValueTypes;
use super::trials::Trials;
use super::value_types::value_types;
use super::{anonymous, seeded, steps, stored};
use crate::failure::{Failure, Result};
use crate::storage::local;

/// What is reduced, and how.
#[derive(Debug)]
pub struct Settings<'a> {
    /// The model's file.
    pub model: &'a Path,
    /// Where the smallest model that fails alike is written.
    pub out: PathBuf,
    /// What it is compiled with.
    pub flags: Flags,
    /// The sizes among the flags.
    pub sizes: Vec<Input>,
    /// Whether names and stored numbers are replaced.
    pub anonymous: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Reduced {
    /// Nodes of the graph before and after.
    pub nodes: (usize, usize),
    /// Bytes before, with tensors that are stored elsewhere, and after; `None` where no other model failed alike.
    pub bytes: (u64, Option<u64>),
    /// How many models were compiled.
    pub attempts: usize,
    /// How the smallest fails.
    pub outcome: Outcome,
    /// Options of `hone compile` that show it.
    pub options: Vec<OsString>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Why it ended early.
    pub ended: Option<Failure>,
}

/// Reduces a model.
///
/// # Errors
/// `Usage` for a model that does not fail; a failure that has nothing to do with it; `Interrupted` before any other model
/// was tried.
pub fn reduce(settings: &Settings<'_>, attempts: &Attempts) -> Result<Reduced> {
    let all = settings.sizes.iter().map(|size| size.name.as_str()).collect::<Vec<_>>();
    let options = settings.flags.of(|name| all.contains(&name));
    let outcome = attempts.compile(settings.model, &options)?;
    refuse_other_ends(settings.model, &outcome)?;
    eprintln!("{}", first_line(&outcome));
    let model = read(settings.model)?;
    let before = (node_count(&model), model.encoded_len() as u64);
    let flags = settings.flags.clone();
    let mut trials = Trials::new(attempts, flags, settings.out.clone(), (model, outcome));
    let mut notes = Vec::new();
    let ended = all_steps(settings, &mut trials, &mut notes).err();
    let is_over = ended.as_ref().is_none_or(|entry| entry.reason == Reason::Interrupted);
    match ended {
        Some(failure) if !is_over || trials.bytes.is_none() => Err(failure),
        ended => Ok(Reduced {
            nodes: (before.0, trials.nodes()),
            bytes: (before.1, trials.bytes.map(|bytes| bytes as u64)),
            attempts: trials.count,
            options: trials.options(),
            outcome: trials.outcome,
            notes,
            ended,
        }),
    }
}

/// A failure is reduced only where a smaller model could have it too.
fn refuse_other_ends(model: &Path, outcome: &Outcome) -> Result<()> {
    let model = model.display();
    match outcome.end {
        End::Code(0) => {
            let message = format!(
                "model '{model}' compiles: there is nothing to reduce; give the flags with which it fails"
            );
            Err(Failure::new(Reason::Usage, message))
        }
        end if end.is_of_model() => Ok(()),
        end => {
            let reason = match end {
                End::Code(code) => Reason::from_code(code),
                _ => None,
            };
            let stderr =
                outcome.message.split_once("]: ").map_or(&*outcome.message, |entry| entry.1);
            let message = format!("model '{model}' is not what fails: {stderr}");
            Err(Failure::new(reason.unwrap_or(Reason::InternalError), message))
        }
    }
}

/// How the model fails, in a line.
fn first_line(outcome: &Outcome) -> String {
    let line = outcome.message.lines().next().unwrap_or_default();
    match line.starts_with("error[") {
        true => line.to_owned(),
        false => format!("{}: {line}", outcome.end),
    }
}

/// A model with the tensors that it stores elsewhere, its nodes in an order in which they run.
fn read(path: &Path) -> Result<ModelProto> {
    let bytes = Bytes::from(local::read(path, u64::MAX)?);
    let folder =
        path.parent().filter(|entry| !entry.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let options = ImportOptions { folder: Some(folder.to_path_buf()), ..ImportOptions::default() };
    let unusable = |error| {
        let message = format!("model '{}' cannot be taken apart", path.display());
        Failure::because(Reason::InvalidModel, message, error)
    };
    let mut model = edit::decode(&bytes).map_err(unusable)?;
    edit::bring_data_inside(&mut model, &options).map_err(unusable)?;
    if let Some(graph) = &mut model.graph {
        graph.node = edit::sorted(std::mem::take(&mut graph.node));
    }
    Ok(model)
}

fn node_count(model: &ModelProto) -> usize {
    model.graph.as_ref().map_or(0, |graph| graph.node.len())
}

/// All steps, until none finds anything.
fn all_steps(
    settings: &Settings<'_>,
    trials: &mut Trials<'_>,
    notes: &mut Vec<String>,
) -> Result<()> {
    begin(trials)?;
    let fixed = with_fixed_sizes(trials.best(), &settings.sizes);
    let types = match fixed {
        Some(fixed) => {
            let types = value_types(trials.attempts(), &cleaned(fixed.clone()))?;
            if !trials.is_alike(fixed)? {
                notes.push("the failure needs dimensions that are open".to_owned());
            }
            types
        }
        None => value_types(trials.attempts(), trials.best())?,
    };
    stored::all_to_inputs(trials)?;
    loop {
        let before = trials.best().encoded_len();
        round(trials, &types)?;
        if trials.best().encoded_len() == before {
            break;
        }
    }
    if settings.anonymous {
        make_anonymous(trials, notes)?;
    }
    Ok(())
}

/// The model itself, in one file, without what nothing reads.
fn begin(trials: &mut Trials<'_>) -> Result<()> {
    let model = trials.best().clone();
    if trials.is_alike(model.clone())? {
        return Ok(());
    }
    trials.prunes = false;
    // Of more than the format's 2 GiB, the first candidate that fails alike is a part.
    let is_whole = model.encoded_len() < i32::MAX as usize;
    if is_whole && !trials.is_alike(model)? {
        let message = "the model does not fail alike when it is compiled again: its failure cannot be followed to a smaller one";
        return Err(Failure::new(Reason::Usage, message));
    }
    Ok(())
}

fn round(trials: &mut Trials<'_>, types: &ValueTypes) -> Result<()> {
    steps::outputs(trials)?;
    steps::cut_behind(trials, types)?;
    steps::outputs(trials)?;
    steps::cut_before(trials, types)?;
    steps::nodes(trials, types)?;
    steps::outputs(trials)?;
    steps::pass_through(trials, types)?;
    stored::to_inputs(trials)?;
    stored::to_one_number(trials)?;
    steps::declarations(trials)
}

/// Takes names and numbers away, and says which could not be.
fn make_anonymous(trials: &mut Trials<'_>, notes: &mut Vec<String>) -> Result<()> {
    let renamed = anonymous::renamed(trials.best());
    if !trials.is_alike(renamed)? {
        notes.push("names are still in it: without them it does not fail alike".to_owned());
    }
    let kept = seeded::seed(trials)?;
    if kept > 0 {
        notes.push(format!(
            "{kept} stored tensors or lists keep what they held: with other numbers it does not fail alike"
        ));
    }
    Ok(())
}
