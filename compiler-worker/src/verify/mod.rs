//! Whether an artifact computes what its model says, in parts that together prove it:
//!
//! - *by kernels* ([`kernels`]): every kernel alone, on the reference's values;
//! - *by layout* ([`layout`]): packed weights byte for byte, and the memory plan;
//! - *by passes* ([`passes`]): the graph after the passes gives the imported graph's answers;
//! - *composed* ([`ComposedCheck`]): where a dimension may have any size, a run at one that was not compiled;
//! - *end to end*: the artifact's outputs against the imported graph's. For a model that rounds to integers
//!   this error is information: the last bit of an early sum moves a late output by whole steps.

mod composed;
mod decisions;
mod kernels;
mod layout;
mod needed;
mod passes;
mod sensitivity;
mod tolerance;

use std::fmt;

use hone_artifact::Reader;
use hone_artifact::exit_code::Reason;
use hone_driver::{DataType, Graph, Options, Tensor, map_steps, rounds_to_integers};

pub use composed::ComposedCheck;
pub use decisions::MARGIN;
pub use kernels::KernelCheck;
pub use passes::PassCheck;

use crate::compare::{Comparison, DEFAULT_ATOL, Tolerance};
use crate::compiler::{self, reference_failed};
use crate::failure::{Failure, Result};
use crate::work::executor::Executor;

/// What is verified.
#[derive(Debug)]
pub struct Subject<'a> {
    /// What messages call the model.
    pub name: &'a str,
    /// The artifact's bytes.
    pub artifact: &'a [u8],
    /// Which of the artifact's variants, counted among those for different sizes: 0 for the only one.
    pub sizes: usize,
    /// The model as imported, for these sizes: the reference.
    pub imported: &'a Graph,
    /// What the artifact was compiled with; else why that is not known, and then only whole runs are
    /// compared.
    pub options: std::result::Result<&'a Options, String>,
}

/// What outputs may differ by, end to end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance, in the outputs' units; [`DEFAULT_ATOL`] of an output's largest magnitude where absent.
    pub atol: Option<f64>,
    /// Largest error as a fraction of the largest magnitude in an output, where the user set one.
    pub max_relative_error: Option<f64>,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rtol {}", self.rtol)?;
        match self.atol {
            Some(atol) => write!(f, ", atol {atol}")?,
            None => write!(f, ", atol {DEFAULT_ATOL} of the output's largest magnitude")?,
        }
        match self.max_relative_error {
            Some(bound) => write!(f, ", maxRelativeError {bound}"),
            None => Ok(()),
        }
    }
}

/// One set of inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What reports call it.
    pub name: String,
    /// Content of each input in the model's order, dense and little endian.
    pub inputs: Vec<Vec<u8>>,
    /// Whether it holds edge values: its outputs are not compared end to end, and it is left out where
    /// the reference is not finite on it.
    pub edges: bool,
}

/// What verifying found.
#[derive(Clone, Debug)]
pub struct Verification {
    /// Outputs of whole runs against the imported graph's.
    pub end_to_end: Comparison,
    /// Whether an error end to end beyond the tolerance counts: not for a model that rounds to integers, unless
    /// its user bounds that.
    pub end_to_end_counts: bool,
    /// One check for each kernel call; none where only whole runs could be compared.
    pub kernels: Vec<KernelCheck>,
    /// The passes; absent where only whole runs could be compared.
    pub passes: Option<PassCheck>,
    /// What is wrong with weights or memory plan.
    pub layout_fault: Option<String>,
    /// Why kernels, layout and passes were not checked.
    pub end_to_end_only: Option<String>,
    /// Names of the samples that were compared.
    pub samples: Vec<String>,
    /// What ran the code.
    pub executor: String,
    /// What a person should know of the comparison.
    pub notes: Vec<String>,
}

/// Verifies an artifact on samples, the first of which also decides on the passes.
///
/// # Errors
/// What cannot be computed or run at all. What is wrong with the artifact stands in the result:
/// [`Verification::judge`] turns that into a failure.
pub fn verify(
    subject: &Subject<'_>,
    samples: &[Sample],
    settings: Settings,
    executor: &mut dyn Executor,
) -> Result<Verification> {
    let reader = Reader::new(subject.artifact).map_err(|error| {
        Failure::because(Reason::InvalidArtifact, "the artifact cannot be read", error)
    })?;
    let place = reader.manifest().siblings(0).get(subject.sizes).copied();
    let variant = place.and_then(|place| reader.manifest().variants.get(place));
    let variant = variant.ok_or_else(|| Failure::internal("the artifact has no such variant"))?;
    executor.select(subject.sizes)?;
    let mut found = Verification::new(executor.description());
    let padded = reader.manifest().padded.as_ref();
    let map = match &subject.options {
        Ok(options) => match map_steps(subject.imported, padded, options, &variant.steps) {
            Ok(map) => Some((map, *options)),
            Err(error) => {
                found.end_to_end_only = Some(error.to_string());
                None
            }
        },
        Err(why) => {
            found.end_to_end_only = Some(why.clone());
            None
        }
    };
    if let Some((map, _)) = &map {
        let weights = reader.weights(variant.weights).unwrap_or_default();
        found.layout_fault = layout::check(map, variant, weights).err();
        found.kernels = kernels::unchecked(map, variant);
    }
    // What lies in the wrong place spoils every kernel and says nothing about them.
    let sound = found.layout_fault.is_none();
    let tolerance = found.tolerance(subject, settings);
    let manifest = reader.manifest();
    let ports = (manifest.inputs_of(variant), manifest.outputs_of(variant));
    let samples = samples.iter().map(|sample| needed::at_taken_size(sample, padded, &ports));
    for sample in samples {
        let want = compiler::evaluate(subject.imported, &sample.inputs)?;
        let mut comparison = found.end_to_end.clone();
        let ports = compiler::ports(subject.imported, true)?;
        let mut got = executor.run(&sample.inputs)?;
        let size = needed::size(sample.inputs.last().map(Vec::as_slice));
        for (place, ((port, got), want)) in ports.iter().zip(&mut got).zip(&want).enumerate() {
            let shape: Vec<usize> = port.shape.iter().map(|extent| *extent as usize).collect();
            let need = needed::of_output(padded, place, &shape);
            let length = padded.and_then(|padded| padded.length(place));
            let size = length.map_or(size, |length| length.at(size as u64) as usize);
            let bytes = port.dtype.bytes_of(&[]).unwrap_or(1) as usize;
            let want = needed::without(got, want, &need, (size, bytes));
            comparison.add(port, got, &want, tolerance);
        }
        if sample.edges {
            // Beside magnitudes of a thousand an absolute tolerance means nothing: kernels decide.
            if comparison.not_finite.is_some() || map.is_none() {
                let why =
                    if map.is_none() { "checked by kernels only" } else { "not finite there" };
                found.notes.push(format!("{} left out: {why}", sample.name));
                continue;
            }
        } else {
            found.end_to_end = comparison;
        }
        found.samples.push(sample.name.clone());
        if let (Some((map, options)), true) = (&map, sound && found.end_to_end.not_finite.is_none())
        {
            let inputs = compiler::tensors(subject.imported, &sample.inputs)?;
            let outputs = kernels::check(map, variant, &inputs, executor, &mut found.kernels)?;
            if !sample.edges {
                let graphs = (&*inputs, &*want, &*outputs);
                found.check_passes(subject.imported, options, graphs, settings)?;
            }
        }
    }
    found.note_tolerance(settings);
    Ok(found)
}

impl Verification {
    fn new(executor: String) -> Self {
        Self {
            end_to_end: Comparison::default(),
            end_to_end_counts: true,
            kernels: Vec::new(),
            passes: None,
            layout_fault: None,
            end_to_end_only: None,
            samples: Vec::new(),
            executor,
            notes: Vec::new(),
        }
    }

    /// The tolerance end to end, and whether it counts.
    fn tolerance(&mut self, subject: &Subject<'_>, settings: Settings) -> Tolerance {
        let Settings { rtol, atol, max_relative_error } = settings;
        let reduced = subject.options.as_ref().is_ok_and(|own| own.precision != DataType::F32);
        let rounds = rounds_to_integers(subject.imported);
        self.end_to_end_counts =
            !rounds || max_relative_error.is_some() || self.end_to_end_only.is_some();
        let applies = reduced || rounds || self.end_to_end_only.is_some();
        let fraction = max_relative_error.filter(|_| applies).unwrap_or(0.0);
        Tolerance { rtol, atol, fraction }
    }

    fn check_passes(
        &mut self,
        imported: &Graph,
        options: &Options,
        (inputs, want, prepared): (&[Tensor], &[Vec<u8>], &[Tensor]),
        settings: Settings,
    ) -> Result<()> {
        let lifted = rounds_to_integers(imported);
        let reduced = options.precision != DataType::F32;
        // In f64, or for reduced precision, the graph is computed once more: on the first sample.
        if (lifted || reduced) && self.passes.is_some() {
            return Ok(());
        }
        let Settings { rtol, atol, .. } = settings;
        let tolerance = Tolerance { rtol, atol, fraction: 0.0 };
        let check = if lifted {
            passes::check_lifted(imported, options, inputs)?
        } else if reduced {
            let observe: &mut dyn FnMut(&'static str, &Graph) = &mut |_, _| {};
            let exact = hone_driver::prepare_exactly(imported, options, DataType::F32, observe)
                .map_err(|error| reference_failed(Box::new(error)))?;
            let got = compiler::evaluate_tensors(&exact, inputs)?;
            passes::check(imported, want, &got, tolerance)?
        } else {
            passes::check(imported, want, prepared, tolerance)?
        };
        match &mut self.passes {
            Some(known) if known.fault.is_some() => {}
            Some(known) => {
                let error = known.error.max(check.error);
                *known = PassCheck { error, ..check };
            }
            none => *none = Some(check),
        }
        Ok(())
    }

    fn note_tolerance(&mut self, settings: Settings) {
        if let Some(atol) = settings.atol
            && let Some((name, largest)) = self.end_to_end.smallest_output(100.0 * atol)
        {
            self.notes.push(format!(
                "the largest magnitude of output '{name}' is {largest:.1e}, where errors up to atol {atol:.1e} pass end to end: set atol to a hundredth of it or less"
            ));
        }
        let missed: Vec<&KernelCheck> = self.kernels.iter().filter(|own| !own.reached).collect();
        if let Some(first) = missed.first().filter(|_| !self.samples.is_empty()) {
            let (count, all, nodes) = (missed.len(), self.kernels.len(), first.nodes.join(", "));
            self.notes.push(format!(
                "{count} of {all} kernels were not checked, since no sample takes their branch, the first of {nodes}: give samples that do (correctness.samples)"
            ));
        }
        if let Some(why) = self.passes.as_ref().and_then(|passes| passes.unchecked.as_ref()) {
            self.notes.push(format!("the passes were not checked: {why}"));
        }
        if let Some(why) = &self.end_to_end_only {
            self.notes.push(format!("verified end to end only, not by kernels: {why}"));
        }
    }

    /// The kernel with the largest error relative to its bound.
    pub fn worst_kernel(&self) -> Option<&KernelCheck> {
        self.kernels.iter().max_by(|a, b| a.error.total_cmp(&b.error))
    }

    /// Elements that a kernel gave a step off, over all kernels.
    pub fn steps_off(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.steps_off).sum()
    }

    /// Whether nothing is wrong.
    pub fn passed(&self) -> bool {
        self.fault().is_none()
            && self.end_to_end.not_finite.is_none()
            && (!self.end_to_end_counts || self.end_to_end.outside == 0)
    }

    /// What is wrong beside errors end to end, in words.
    fn fault(&self) -> Option<String> {
        if let Some(fault) = &self.layout_fault {
            return Some(fault.clone());
        }
        let wrong: Vec<&KernelCheck> =
            self.kernels.iter().filter(|own| own.fault.is_some()).collect();
        if let Some(first) = wrong.first() {
            let (count, all) = (wrong.len(), self.kernels.len());
            let (step, nodes) = (first.step, first.nodes.join(", "));
            let fault = first.fault.as_deref().unwrap_or_default();
            return Some(format!(
                "{count} of {all} kernels compute what the reference does not; step {step}, of {nodes}: {fault}"
            ));
        }
        let fault = self.passes.as_ref().and_then(|passes| passes.fault.as_ref());
        fault.map(|fault| format!("the passes changed the model's answers: {fault}"))
    }

    /// Turns what is wrong into a failure.
    ///
    /// # Errors
    /// `NonFiniteOutput` where the reference itself is not finite, `WrongCode` where a part of the artifact does
    /// not compute what the model says, `CorrectnessBreach` where its parts do and its answers are out of tolerance.
    pub fn judge(&self, name: &str, settings: Settings) -> Result<()> {
        if let Some(place) = &self.end_to_end.not_finite {
            let message = format!(
                "model '{name}' gives no finite answer, by the reference interpreter itself: {place}; correct the model, or give inputs for which it is finite (correctness.samples)"
            );
            return Err(Failure::new(Reason::NonFiniteOutput, message));
        }
        if let Some(fault) = self.fault() {
            let message =
                format!("model '{name}' compiles to wrong code: {fault}; please report this");
            return Err(Failure::new(Reason::WrongCode, message));
        }
        if self.passed() {
            return Ok(());
        }
        let Comparison { outside, elements, worst, .. } = &self.end_to_end;
        let worst = worst.as_deref().unwrap_or("no element named");
        let message = format!(
            "model '{name}' compiles to answers out of tolerance ({settings}): {outside} of {elements} elements, worst at {worst}; loosen spec.correctness if that is near enough, else please report this"
        );
        Err(Failure::new(Reason::CorrectnessBreach, message))
    }
}
