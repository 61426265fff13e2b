//! The verification of one build, and what the report says of it.

use hone_artifact::TensorInfo;
use hone_artifact::exit_code::Reason;
use hone_artifact::report::{CorrectnessReport, KernelsReport};
use hone_artifact::request::{Compile, CorrectnessRequest};
use hone_driver::{Graph, Options};

use super::executor::Executor;
use super::{Build, Outcome, Worker};
use crate::compiler::{self, Model};
use crate::failure::{Failure, Result};
use crate::inputs::{CHEAP_FLOPS, SEEDS, edges, seeded};
use crate::maps;
use crate::npz::{self, Array};
use crate::random::{self, Random};
use crate::show::units;
use crate::verify::{self, ComposedCheck, MARGIN, Sample, Settings, Subject, Verification};

/// Most bytes of the name of a kernel's nodes in a report.
const LONGEST_NAME: usize = 96;

/// Verifies a build by what `executor` runs, at each of its sizes, and writes what was found into `outcome`. `bound` is
/// the largest error as a fraction of the largest magnitude in an output, where one is set.
///
/// # Errors
/// `NonFiniteOutput` where the reference itself is not finite, `WrongCode` where the artifact is wrong,
/// `CorrectnessBreach` where its answers are out of tolerance.
pub fn verify(
    worker: &Worker<'_>,
    request: &Compile,
    (model, build): (&Model, &Build),
    options: &Options,
    bound: Option<f64>,
    executor: &mut dyn Executor,
    outcome: &mut Outcome,
) -> Result<()> {
    let imported: Vec<Graph>;
    let graphs = match &build.references {
        Some(graphs) => graphs,
        None => {
            imported = compiler::references(model, &build.manifest()?)?;
            &imported
        }
    };
    let bytes = build.bytes()?;
    let labels = build.sizes()?;
    let cheap = outcome.details.flops() < CHEAP_FLOPS;
    let samples = samples(worker, request, graphs, cheap)?;
    let CorrectnessRequest { rtol, atol, .. } = request.correctness;
    let settings = Settings { rtol, atol, max_relative_error: bound };
    for (sizes, (imported, samples)) in graphs.iter().zip(&samples).enumerate() {
        let label = labels.get(sizes).filter(|label| !label.is_empty());
        let name = label.map_or(model.name.clone(), |label| format!("{} ({label})", model.name));
        let subject =
            Subject { name: &name, artifact: &bytes, sizes, imported, options: Ok(options) };
        let found = verify::verify(&subject, samples, settings, executor)?;
        let details = &mut outcome.details;
        details.elements_compared += found.end_to_end.elements;
        details.max_fraction = details.max_fraction.max(found.end_to_end.max_fraction);
        for note in &found.notes {
            let note = label.map_or(note.clone(), |label| format!("{label}: {note}"));
            details.notes.push(note);
        }
        let report = report(&found);
        let known = &mut outcome.report.correctness;
        *known = Some(match known.take() {
            Some(known) => both(known, report),
            None => report,
        });
        found.judge(&name, settings)?;
    }
    let manifest = build.manifest()?;
    let composed = ComposedCheck::run(model, &manifest, Some(options), settings, executor)?;
    if let Some(found) = composed {
        found.judge(&model.name)?;
        let details = &mut outcome.details;
        details.elements_compared += found.comparison.elements;
        details.max_fraction = details.max_fraction.max(found.comparison.max_fraction);
        details.notes.push(found.sentence());
    } else if let Some(open) = &manifest.open {
        let note = format!("sizes of '{}' that are composed were not run here", open.name);
        outcome.details.notes.push(note);
    }
    Ok(())
}

/// What holds of two sizes together: the larger errors, all kernels.
fn both(a: CorrectnessReport, b: CorrectnessReport) -> CorrectnessReport {
    let larger = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
    let kernels = match (a.kernels, b.kernels) {
        (Some(a), Some(b)) => {
            let worse = b.worst_error > a.worst_error || b.worst_error.is_nan();
            let (checked, elements) = (a.checked + b.checked, a.elements + b.elements);
            let steps_off = a.steps_off + b.steps_off;
            let worst = if worse { b } else { a };
            Some(KernelsReport { checked, elements, steps_off, ..worst })
        }
        _ => None,
    };
    let mut samples = a.samples;
    for name in b.samples {
        if !samples.contains(&name) {
            samples.push(name);
        }
    }
    CorrectnessReport {
        max_abs: larger(a.max_abs, b.max_abs),
        max_rel: larger(a.max_rel, b.max_rel),
        passed: a.passed && b.passed,
        executed_by: b.executed_by,
        end_to_end_counts: a.end_to_end_counts || b.end_to_end_counts,
        kernels,
        passes: a.passes.and(b.passes),
        passes_unchecked: a.passes_unchecked.or(b.passes_unchecked),
        samples,
    }
}

/// The model's inputs at each of its sizes: samples where there are some of these shapes, else seeded ones; one seed
/// where a run takes long.
pub(super) fn samples(
    worker: &Worker<'_>,
    request: &Compile,
    graphs: &[Graph],
    cheap: bool,
) -> Result<Vec<Vec<Sample>>> {
    let given = match &request.correctness.samples {
        Some(source) => Some((worker.access.fetch(source, worker.cache.folder())?.bytes, source)),
        None => None,
    };
    let (mut all, mut refused) = (Vec::new(), None);
    for graph in graphs {
        let ports = compiler::ports(graph, false)?;
        let seeds = &SEEDS[..if cheap { SEEDS.len() } else { 1 }];
        let Some((bytes, source)) = &given else {
            all.push(standard_samples(graph, &ports, seeds, cheap));
            continue;
        };
        let arrays = npz::read_bytes(bytes, &source.uri)?;
        let arrays = maps::laid_out(arrays, &maps::of_graph(graph), &source.uri);
        match arrays.and_then(|arrays| arrange(&ports, arrays, &source.uri)) {
            Ok(inputs) => {
                let name = "correctness.samples".to_owned();
                all.push(vec![Sample { name, inputs, edges: false }]);
            }
            Err(failure) => {
                refused.get_or_insert(failure);
                all.push(standard_samples(graph, &ports, seeds, cheap));
            }
        }
    }
    let has_given = |own: &Vec<Sample>| own.iter().any(|own| own.name == "correctness.samples");
    match refused {
        // Samples are of one size: the others are verified on seeded inputs.
        Some(failure) if !all.iter().any(has_given) => Err(failure),
        _ => Ok(all),
    }
}

/// A sample of each seed, and one with edge values where `with_edges`.
pub fn standard_samples(
    graph: &Graph,
    ports: &[TensorInfo],
    seeds: &[u64],
    with_edges: bool,
) -> Vec<Sample> {
    let mut samples: Vec<Sample> = seeds.iter().map(|seed| seeded(graph, ports, *seed)).collect();
    if with_edges {
        samples.push(edges(graph, ports, seeds.first().copied().unwrap_or(SEEDS[0])));
    }
    samples
}

/// The first sample's inputs: what precisions are compared on.
pub(super) fn inputs(
    worker: &Worker<'_>,
    request: &Compile,
    graph: &Graph,
) -> Result<Vec<Vec<u8>>> {
    let samples = samples(worker, request, std::slice::from_ref(graph), false)?;
    Ok(samples.into_iter().flatten().next().map(|sample| sample.inputs).unwrap_or_default())
}

/// What was found, as it stands in reports.
pub fn report(found: &Verification) -> CorrectnessReport {
    let kernels = found.worst_kernel().map(|worst| KernelsReport {
        checked: found.kernels.len() as u64,
        elements: found.kernels.iter().map(|kernel| kernel.elements).sum(),
        worst: bounded(&worst.nodes.join(", ")),
        worst_error: worst.error,
        steps_off: found.steps_off(),
        step_margin: MARGIN,
    });
    let unchecked = found.passes.as_ref().and_then(|passes| passes.unchecked.as_deref());
    let passes = found.passes.as_ref().filter(|passes| passes.unchecked.is_none());
    let passes = passes.map(|passes| if passes.lifted { "f64" } else { "f32" }.to_owned());
    CorrectnessReport {
        max_abs: found.end_to_end.max_abs,
        max_rel: found.end_to_end.max_rel,
        passed: found.passed(),
        end_to_end_counts: found.end_to_end_counts,
        kernels,
        passes,
        passes_unchecked: unchecked.map(bounded),
        samples: found.samples.iter().map(|name| bounded(name)).collect(),
        executed_by: Some(bounded(&found.executor)),
    }
}

fn bounded(text: &str) -> String {
    let mut end = text.len().min(LONGEST_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// What holds, in sentences for a terminal.
pub fn sentences(found: &Verification, settings: Settings) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(worst) = found.worst_kernel() {
        let elements: u64 = found.kernels.iter().map(|kernel| kernel.elements).sum();
        lines.push(format!(
            "kernels: {} kernel calls, {elements} elements, each within its bound of the reference on the reference's own operands; the worst error is {} of its bound ({})",
            found.kernels.len(),
            units::error(worst.error),
            bounded(&worst.nodes.join(", "))
        ));
        if found.steps_off() > 0 {
            lines.push(format!(
                "rounding: {} elements are a step off where the reference itself lies between two steps",
                found.steps_off()
            ));
        }
        lines.push("weights: equal to the model's constants byte for byte; no value is overwritten before it is read".to_owned());
    }
    if let Some(passes) = found.passes.as_ref().filter(|passes| passes.unchecked.is_none()) {
        let arithmetic = if passes.lifted { ", computed in f64" } else { "" };
        lines.push(format!(
            "passes: the optimised graph gives the imported graph's answers{arithmetic}; largest error {} of the largest output",
            units::error(passes.error)
        ));
    }
    let end = &found.end_to_end;
    let verdict = match found.end_to_end_counts {
        true => format!("within {settings} of the reference"),
        false => "compared for information, since the model rounds to integers".to_owned(),
    };
    lines.push(format!(
        "answers: {} elements {verdict}; largest error {} absolute, {} relative",
        end.elements,
        units::error(end.max_abs),
        units::error(end.max_rel)
    ));
    lines.push(format!("samples: {}; run by {}", found.samples.join(", "), found.executor));
    lines.extend(found.notes.iter().map(|note| format!("note: {note}")));
    lines
}

/// Random content for every input of an artifact whose model is not at hand, from one seed.
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

/// One run, its outputs allocated here.
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
