//! The artifact's answers held against the reference interpreter.

use hone_artifact::TensorInfo;
use hone_artifact::exit_code::Reason;
use hone_artifact::report::CorrectnessReport;
use hone_artifact::request::{Compile, CorrectnessRequest};
use hone_driver::Graph;

use super::executor::Executor;
use super::{Build, Outcome, Worker};
use crate::compare::{Comparison, Tolerance};
use crate::compiler::{self, Model};
use crate::failure::{Failure, Result};
use crate::npz::{self, Array};
use crate::random::{self, Random};

/// The seed of the inputs that answers are compared on; fixed, so that everybody compares on the same.
pub const SEED: u64 = 0x686f_6e65;

/// What is granted to a model that rounds to integers inside, in multiples of what its own answers move by
/// when its constants move in their last bits, and at most.
const UNSTEADY: f64 = 3.0;
const MOST_GRANTED: f64 = 0.5;

/// Runs both on the same inputs and writes the errors into `outcome`. Beside the tolerance that was
/// asked for, errors may be `share` of an output's largest magnitude.
///
/// # Errors
/// `NonFiniteOutput` where the reference itself is not finite, `CorrectnessBreach` where the answers
/// are out of tolerance.
pub fn verify(
    worker: &Worker<'_>,
    request: &Compile,
    model: &Model,
    build: &Build,
    (executor, share): (&mut dyn Executor, f64),
    outcome: &mut Outcome,
) -> Result<()> {
    let imported;
    let graph = match &build.reference {
        Some(graph) => graph,
        None => {
            imported = compiler::reference(model, &request.inputs)?;
            &imported
        }
    };
    let inputs = inputs(worker, request, graph)?;
    let CorrectnessRequest { rtol, atol, .. } = request.correctness;
    let tolerance = Tolerance { rtol, atol, share };
    let comparison = compare(executor, graph, &inputs, tolerance)?;
    let executed_by = Some(executor.description());
    outcome.report.correctness = Some(CorrectnessReport { executed_by, ..comparison.report() });
    outcome.details.elements_compared = comparison.elements;
    outcome.details.max_share = comparison.max_share;
    if comparison.granted > share {
        outcome.details.notes.push(format!(
            "the model rounds to integers inside, and its own answers move when its constants do in their last bits: errors may be {:.1e} of an output's largest magnitude",
            comparison.granted
        ));
    }
    judge(&model.name, &comparison, tolerance)
}

/// The model's inputs: samples where there are some, else seeded random ones.
pub(super) fn inputs(
    worker: &Worker<'_>,
    request: &Compile,
    graph: &Graph,
) -> Result<Vec<Vec<u8>>> {
    let ports = compiler::ports(graph, false)?;
    match &request.correctness.samples {
        None => Ok(random_inputs(&ports, SEED)),
        Some(samples) => {
            let bytes = worker.access.fetch(samples)?;
            let arrays = npz::read_bytes(&bytes, &samples.uri)?;
            arrange(&ports, arrays, &samples.uri)
        }
    }
}

/// Random content for every input, from one seed.
pub fn random_inputs(ports: &[TensorInfo], seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    ports.iter().map(|port| random::content(port, &mut random)).collect()
}

/// Arrays by name in the model's order.
///
/// # Errors
/// `InvalidInput` naming the array that is missing, of another type, of another shape, or unknown.
pub fn arrange(ports: &[TensorInfo], arrays: Vec<Array>, file: &str) -> Result<Vec<Vec<u8>>> {
    let refuse = |why: String| {
        Failure::because(Reason::InvalidInput, format!("'{file}' does not fit the model"), why)
    };
    let mut arrays: Vec<Option<Array>> = arrays.into_iter().map(Some).collect();
    let mut ordered = Vec::new();
    for port in ports {
        let place = arrays.iter_mut().find(|a| a.as_ref().is_some_and(|a| a.name == port.name));
        let wanted = npz::describe(port.dtype, &port.shape);
        let found = place.and_then(Option::take);
        let array = found.ok_or_else(|| {
            refuse(format!("it has no array '{}', which the model takes as {wanted}", port.name))
        })?;
        // A bool may be written as any byte, and bfloat16 crosses as two raw bytes.
        if array.dtype != port.dtype || array.shape != port.shape {
            let found = array.description();
            return Err(refuse(format!(
                "array '{}' is {found}, the model takes {wanted}: convert it before saving",
                port.name
            )));
        }
        ordered.push(array.bytes);
    }
    if let Some(extra) = arrays.into_iter().flatten().next() {
        let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        return Err(refuse(format!(
            "array '{}' is no input of the model: those are {}",
            extra.name,
            names.join(", ")
        )));
    }
    Ok(ordered)
}

/// The artifact's answers against the reference's.
///
/// # Errors
/// Where either cannot be run.
pub fn compare(
    executor: &mut dyn Executor,
    graph: &Graph,
    inputs: &[Vec<u8>],
    tolerance: Tolerance,
) -> Result<Comparison> {
    let want = compiler::evaluate(graph, inputs)?;
    let own = UNSTEADY * compiler::unsteadiness(graph, inputs, &want)?;
    let own = own.min(MOST_GRANTED);
    let tolerance = Tolerance { share: tolerance.share.max(own), ..tolerance };
    let got = executor.run(inputs)?;
    Ok(compare_outputs(&compiler::ports(graph, true)?, &got, &want, tolerance))
}

/// A loaded model's answers against those of the reference.
///
/// # Errors
/// Inputs that do not fit.
pub(super) fn compare_with(
    model: &mut hone_runtime::Model,
    want: &[Vec<u8>],
    inputs: &[Vec<u8>],
    tolerance: Tolerance,
) -> Result<Comparison> {
    let got = run(model, inputs)?;
    Ok(compare_outputs(model.outputs(), &got, want, tolerance))
}

fn compare_outputs(
    tensors: &[TensorInfo],
    got: &[Vec<u8>],
    want: &[Vec<u8>],
    tolerance: Tolerance,
) -> Comparison {
    let mut comparison = Comparison::new();
    comparison.granted = tolerance.share;
    for ((tensor, got), want) in tensors.iter().zip(got).zip(want) {
        comparison.add(tensor, got, want, tolerance);
    }
    comparison
}

/// One run with outputs of its own.
///
/// # Errors
/// Inputs that do not fit.
pub fn run(model: &mut hone_runtime::Model, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let mut outputs: Vec<Vec<u8>> =
        model.outputs().iter().map(|tensor| vec![0; tensor.bytes as usize]).collect();
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    model.run(&borrowed, &mut places)?;
    Ok(outputs)
}

/// Turns a comparison that fails into a failure.
///
/// # Errors
/// See [`verify`].
pub fn judge(name: &str, comparison: &Comparison, tolerance: Tolerance) -> Result<()> {
    if let Some(place) = &comparison.not_finite {
        let message = format!(
            "model '{name}' gives no finite answer, by the reference interpreter itself: {place}; correct the model, or give inputs for which it is finite (correctness.samples)"
        );
        return Err(Failure::new(Reason::NonFiniteOutput, message));
    }
    if comparison.passed() {
        return Ok(());
    }
    let Tolerance { rtol, atol, .. } = tolerance;
    let Comparison { outside, elements, worst, .. } = comparison;
    let worst = worst.as_deref().unwrap_or("no element named");
    let message = format!(
        "model '{name}' compiles to answers out of tolerance (rtol {rtol}, atol {atol}): {outside} of {elements} elements, worst at {worst}; loosen spec.correctness if that is near enough, else please report this"
    );
    Err(Failure::new(Reason::CorrectnessBreach, message))
}
