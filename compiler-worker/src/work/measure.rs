//! How fast the artifact is on this machine, against naive schedules where asked for.

use std::time::Duration;

use hone_artifact::exit_code::Reason;
use hone_artifact::report::LatencyReport;
use hone_artifact::request::Compile;
use hone_driver::Target;
use hone_runtime::{Options, Profile, RunError, Sizes};

use super::verify::random_inputs;
use super::{Build, Outcome, Worker, build};
use crate::compiler::{Model, Recipe};
use crate::device;
use crate::failure::{Failure, Result};
use crate::images;
use crate::inputs::SEEDS;
use crate::measure::{interleaved, summarize};
use crate::random::Random;
use crate::texts;

/// Measures and writes latencies, steps and peaks into `outcome`.
///
/// # Errors
/// `NoisyDevice` where the target bounds the noise and two tries are beyond it.
pub fn measure(
    worker: &Worker<'_>,
    request: &Compile,
    model: &Model,
    built: &Build,
    target: &Target,
    outcome: &mut Outcome,
) -> Result<()> {
    let naive = match worker.options.baseline {
        true => Some(build(worker, model, &request.inputs, target, &Recipe::naive())?),
        false => None,
    };
    worker.progress.stage("measure");
    let mut subject = Subject::load(&built.path, worker.options.threads)?;
    let mut rival = match &naive {
        Some(naive) => Some(Subject::load(&naive.path, worker.options.threads)?),
        None => None,
    };
    let labels = subject.labels();
    for sizes in 0..labels.len() {
        subject.select(sizes);
        if let Some(rival) = &mut rival {
            rival.select(sizes);
        }
        let (latency, ours, theirs) = latency(worker, request, &mut subject, &mut rival)?;
        if let Some(own) = outcome.report.sizes.get_mut(sizes) {
            own.latency = latency.clone();
        }
        if sizes == 0 {
            outcome.report.latency = latency;
            outcome.details.latencies = ours;
            outcome.details.naive_latencies = theirs;
            outcome.details.threads = subject.model.threads();
            outcome.details.step_times(&subject.profile(9)?);
        }
    }
    if labels.len() > 1 {
        let note = format!("times of steps are those of the largest sizes, {}", labels[0]);
        outcome.details.notes.push(note);
    }
    let code_for = &subject.model.variant().target;
    outcome.report.fingerprint = Some(device::fingerprint_of(code_for));
    outcome.details.peaks =
        device::peaks_of(&subject.model.variant().target, subject.model.threads());
    Ok(())
}

/// Latencies at one size, of the subject and of its rival; where the spread is bounded, those of the second of two
/// tries at most.
fn latency(
    worker: &Worker<'_>,
    request: &Compile,
    subject: &mut Subject,
    rival: &mut Option<Subject>,
) -> Result<(Option<LatencyReport>, Vec<u64>, Vec<u64>)> {
    let budget = request.target.noise_budget;
    let mut found = (None, Vec::new(), Vec::new());
    for last in [false, true] {
        let mut naive_run = rival.as_mut().map(|rival| || rival.run());
        let naive_run = naive_run.as_mut().map(|run| run as &mut dyn FnMut() -> _);
        let (ours, theirs) = interleaved(worker.options.effort, || subject.run(), naive_run)?;
        let Some(summary) = summarize(&ours) else { continue };
        let untuned = summarize(&theirs).map(|summary| summary.p50);
        found = (Some(summary.report(untuned)), ours, theirs);
        match budget {
            Some(budget) if summary.spread() > budget && last => {
                return Err(noisy(&request.target.name, summary.spread(), budget));
            }
            Some(budget) if summary.spread() > budget => {}
            _ => break,
        }
    }
    Ok(found)
}

fn noisy(target: &str, spread: f64, budget: f64) -> Failure {
    let message = format!(
        "target '{target}': latencies spread by {:.1} %, the pool's noise budget is {:.1} %: quieten the machine, or raise the budget",
        spread * 1e2,
        budget * 1e2
    );
    Failure::new(Reason::NoisyDevice, message)
}

/// A loaded model with inputs and outputs of its own.
#[derive(Debug)]
pub struct Subject {
    /// The model.
    pub model: hone_runtime::Model,
    /// Its inputs.
    pub inputs: Vec<Vec<u8>>,
    /// What the last run gave.
    pub outputs: Vec<Vec<u8>>,
}

impl Subject {
    /// Loads an artifact with random inputs.
    ///
    /// # Errors
    /// As for [`hone_runtime::Model::load`].
    pub fn load(path: &std::path::Path, threads: usize) -> Result<Self> {
        let options = Options { threads, ..Options::default() };
        let mut model = hone_runtime::Model::load(path, &options)?;
        texts::teach_model(&mut model);
        let mut inputs = random_inputs(model.inputs(), SEEDS[0]);
        texts::fill(&model.members(false), &mut inputs);
        images::fill_model(&model, &mut inputs, &mut Random::new(SEEDS[0]));
        let outputs = model.outputs().iter().map(|t| vec![0; t.bytes as usize]).collect();
        Ok(Self { model, inputs, outputs })
    }

    /// The sizes of each variant in words, the largest first; an empty text where there is one.
    pub fn labels(&self) -> Vec<String> {
        let label = |own: Sizes<'_>| own.shapes.map(ToString::to_string).unwrap_or_default();
        self.model.sizes().map(label).collect()
    }

    /// Goes over to other sizes, by their place in [`Subject::labels`], with random inputs.
    pub fn select(&mut self, sizes: usize) {
        let shapes = self.model.sizes().nth(sizes).map(|sizes| {
            sizes.inputs.iter().map(|tensor| tensor.shape.clone()).collect::<Vec<_>>()
        });
        // They are those of a variant, which the model takes.
        if let Some(shapes) = shapes {
            let _ = self.set_shapes(&shapes);
        }
    }

    /// Goes over to the sizes at which the inputs have these shapes, with random inputs.
    ///
    /// # Errors
    /// Shapes that the artifact does not take.
    pub fn set_shapes(&mut self, shapes: &[Vec<u64>]) -> Result<()> {
        let shapes: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
        self.model.set_input_shapes(&shapes)?;
        self.inputs = random_inputs(self.model.inputs(), SEEDS[0]);
        texts::fill(&self.model.members(false), &mut self.inputs);
        images::fill_model(&self.model, &mut self.inputs, &mut Random::new(SEEDS[0]));
        self.outputs = self.model.outputs().iter().map(|t| vec![0; t.bytes as usize]).collect();
        Ok(())
    }

    /// One run.
    ///
    /// # Errors
    /// Inputs that do not fit.
    pub fn run(&mut self) -> std::result::Result<(), RunError> {
        let (inputs, mut outputs) = slices(&self.inputs, &mut self.outputs);
        self.model.run(&inputs, &mut outputs)
    }

    /// One run, with the times that `profile` asks for.
    ///
    /// # Errors
    /// As for [`Subject::run`].
    pub fn run_profiled(&mut self, profile: &mut Profile) -> std::result::Result<(), RunError> {
        let (inputs, mut outputs) = slices(&self.inputs, &mut self.outputs);
        self.model.run_profiled(&inputs, &mut outputs, profile)
    }

    /// The median time of each step over some runs, and behind them of each function of the runtime, in the order of
    /// [`super::steps`].
    ///
    /// # Errors
    /// As for [`Subject::run`].
    pub fn profile(&mut self, runs: usize) -> Result<Vec<Duration>> {
        let mut profile = Profile::new(&self.model);
        let count = profile.steps.len() + profile.hosts.len();
        let mut times = vec![Vec::with_capacity(runs); count];
        for _ in 0..runs {
            self.run_profiled(&mut profile)?;
            let steps = profile.steps.iter().chain(&profile.hosts);
            for (times, step) in times.iter_mut().zip(steps) {
                times.push(step.time);
            }
        }
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        };
        Ok(times.into_iter().map(median).collect())
    }
}

fn slices<'a>(
    inputs: &'a [Vec<u8>],
    outputs: &'a mut [Vec<u8>],
) -> (Vec<&'a [u8]>, Vec<&'a mut [u8]>) {
    let inputs = inputs.iter().map(Vec::as_slice).collect();
    (inputs, outputs.iter_mut().map(Vec::as_mut_slice).collect())
}
