//! Runs the official ONNX operator cases, which `cargo xtask onnx-tests` writes.
//!
//! A case is a model with inputs and expected outputs. It is imported, run by a [`Backend`], and
//! compared under the case's own tolerance. A case that fails must stand in `ignored.txt` with a
//! reason, and a case that stands there must fail: the list cannot grow stale.

mod case;
mod compare;
mod compiled;
mod ignored;
mod report;

pub use case::{Case, Values, load};
pub use compiled::{Compiled, Machine};
pub use ignored::Ignored;
pub use report::{Outcome, Report};

use anyhow::{Context, Result, ensure};
use hone_import::{ImportOptions, InputBinding};
use hone_ops::Graph;
use hone_types::{Tensor, TensorType};
use std::path::{Path, PathBuf};

/// Something that computes a graph.
pub trait Backend: Sync {
    /// Name for the report.
    fn name(&self) -> &'static str;

    /// The outputs of `graph` for `inputs`, both in the graph's order; `None` where the graph can be
    /// compiled but nothing can run the code.
    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>>;
}

/// The reference interpreter.
pub struct Interpreter;

impl Backend for Interpreter {
    fn name(&self) -> &'static str {
        "interpreter"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        let mut evaluation = hone_ops::Evaluation::new(graph, inputs)?;
        graph.nodes().ids().try_for_each(|node| evaluation.compute(node))?;
        let mut outputs = evaluation.outputs();
        for (extent, actual) in graph.extents().iter().zip(evaluation.extents()) {
            let output = &mut outputs[extent.output];
            let mut shape = output.shape().to_vec();
            shape[extent.axis] = actual as usize;
            let actual = TensorType::new(output.dtype(), shape);
            *output =
                Tensor::from_bytes(actual.clone(), output.bytes()[..actual.bytes()].to_vec())?;
        }
        Ok(Some(outputs))
    }
}

/// The folder of the cases: `HONE_ONNX_TESTS`, or where `cargo xtask onnx-tests` puts them.
pub fn folder() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.hone/onnx-node-tests");
    std::env::var_os("HONE_ONNX_TESTS").map_or(default, PathBuf::from)
}

/// Names of the operators whose cases the shorter suite runs.
pub fn shorter_suite() -> Vec<&'static str> {
    let lines = include_str!("../operators.txt").lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Runs those of `cases` that `chosen` names, on all processors, and reports.
pub fn run(backend: &dyn Backend, cases: &[Case], chosen: impl Fn(&Case) -> bool) -> Report {
    let chosen: Vec<&Case> = cases.iter().filter(|case| chosen(case)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Each takes every so manieth case: neighbours are of one operator and cost alike.
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|first| {
                let share: Vec<&Case> =
                    chosen.iter().skip(first).step_by(threads).copied().collect();
                scope.spawn(move || run_share(backend, &share))
            })
            .collect();
        let mut report = Report::default();
        for thread in started {
            match thread.join() {
                Ok(share) => report.merge(share),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        report
    })
}

fn run_share(backend: &dyn Backend, cases: &[&Case]) -> Report {
    let ignored = Ignored::read(backend.name());
    let mut report = Report::default();
    for case in cases {
        let outcome = match case.values() {
            Err(reason) => Outcome::NotApplicable(format!("{reason:#}")),
            Ok((inputs, outputs)) => match attempt(backend, case, &inputs, &outputs) {
                Ok(Some(fixed)) => Outcome::Passed { fixed },
                Ok(None) => Outcome::Compiled,
                Err(reason) => Outcome::Failed(format!("{reason:#}")),
            },
        };
        let passed = matches!(outcome, Outcome::Passed { .. });
        report.add(case, outcome, ignored.reason(case, passed));
    }
    report
}

/// Imports, runs and compares a case. Returns the number of inputs that had to be made constants, or
/// `None` where it could not be run.
fn attempt(
    backend: &dyn Backend,
    case: &Case,
    inputs: &Values,
    expected: &Values,
) -> Result<Option<usize>> {
    let (graph, fixed) = import(case, inputs)?;
    let mut given = Vec::new();
    for port in graph.inputs() {
        let tensor = inputs.tensor(&port.name).cloned();
        given.push(tensor.with_context(|| format!("input '{}' has no value", port.name))?);
    }
    let Some(results) = backend.run(&graph, &given)? else { return Ok(None) };
    let ports = graph.outputs().iter().map(|port| &port.name);
    ensure!(
        ports.clone().eq(expected.tensors.iter().map(|(name, _)| name)),
        "it gives {:?}",
        ports.collect::<Vec<_>>()
    );
    let stated = expected.tensors.iter().zip(&results);
    for ((name, expected), result) in stated {
        let Some(expected) = expected else { continue };
        compare::compare(result, expected, case.rtol, case.atol)
            .with_context(|| format!("output '{name}'"))?;
    }
    Ok(Some(fixed))
}

/// Imports a case's model. Every input of these models is one of the graph, even those that decide
/// shapes: an input that the importer needs to know is stored in the model, as exporters do.
fn import(case: &Case, inputs: &Values) -> Result<(Graph, usize)> {
    let mut stored: Vec<String> = Vec::new();
    loop {
        let bindings = inputs.tensors.iter().filter(|(name, _)| !stored.contains(name));
        let bindings = bindings.filter_map(|(name, tensor)| {
            let shape = tensor.as_ref()?.shape().to_vec();
            Some(InputBinding { name: name.clone(), shape, dtype: None })
        });
        let options = ImportOptions {
            bindings: bindings.collect(),
            forms: inputs.forms.clone(),
            ..ImportOptions::default()
        };
        let error = match hone_import::import(&case.model_with(&stored)?, &options) {
            Ok(imported) => return Ok((imported.graph, stored.len())),
            Err(error) => error,
        };
        let needed = error.decided_by().unwrap_or_default();
        let names = case.inputs.iter().filter(|name| !stored.contains(name));
        let more: Vec<String> = names.filter(|name| needed.contains(name)).cloned().collect();
        if more.is_empty() {
            return Err(error.into());
        }
        stored.extend(more);
    }
}
