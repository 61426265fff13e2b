//! `hone bench --simulate-threads`: what a run would take on other numbers of threads.

use std::path::Path;
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;
use hone_machine::{CORES_THAT_FILL_MEMORY, MEMORY_BYTES_PER_NS};
use hone_runtime::Profile;
use serde_json::json;

use super::common::{print, print_json};
use crate::device;
use crate::failure::{Failure, Result};
use crate::show::{table, units};
use crate::simulate::{Assumptions, Costs, Prediction, StepTimes, TaskTimes, predict};
use crate::work::measure::Subject;
use crate::work::{StepDetail, steps};

/// Parts that a step's tasks are timed in.
const PARTS: usize = 256;

/// Runs that are measured at least.
const LEAST_RUNS: usize = 5;

/// Steps that the table shows.
const SHOWN: usize = 12;

/// Costs of threads as `cargo bench -p hone-runtime` shows them: about 180 ns to hand a step to one worker
/// and to await it, where no line has to cross between sockets.
const COSTS: Costs = Costs { post: 60.0, start: 100.0, settle: 40.0, claim: 20.0, look: 50.0 };

/// What to simulate.
#[derive(Debug)]
pub struct Simulation<'a> {
    /// The artifact.
    pub path: &'a Path,
    /// Numbers of threads.
    pub threads: &'a [usize],
    /// Bandwidth of memory in bytes per nanosecond, where it is given.
    pub bandwidth: Option<f64>,
    /// Time to measure for.
    pub budget: Duration,
    /// Print JSON.
    pub json: bool,
}

/// Measures on one thread, simulates, prints.
///
/// # Errors
/// As for `hone run`.
pub fn run(simulation: &Simulation<'_>) -> Result<()> {
    let (details, steps, runs) = measure(simulation.path, simulation.budget)?;
    // What is typical, where this machine has no probe for it.
    let core = device::peaks(1).map_or(MEMORY_BYTES_PER_NS, |peaks| peaks.bandwidth * 1e-9);
    let bytes_per_nanosecond = simulation.bandwidth.unwrap_or(CORES_THAT_FILL_MEMORY * core);
    let assumptions = Assumptions { costs: COSTS, bytes_per_nanosecond };
    let predictions: Vec<Prediction> =
        simulation.threads.iter().map(|threads| predict(&steps, *threads, &assumptions)).collect();
    match simulation.json {
        true => print_json(&as_json(&details, &steps, &assumptions, &predictions, runs)),
        false => print(&as_text(&details, &steps, &assumptions, &predictions, runs)),
    }
}

/// The least time of each step, and of each part of its tasks, over some runs on one thread; and the
/// number of runs.
fn measure(path: &Path, budget: Duration) -> Result<(Vec<StepDetail>, Vec<StepTimes>, usize)> {
    let mut subject = Subject::load(path, 1)?;
    if let Some(accelerator) = subject.model.variant().target.accelerator {
        let message = format!(
            "artifact '{}' is for accelerator '{accelerator}', whose lanes are no threads: leave out --simulate-threads",
            path.display()
        );
        return Err(Failure::new(Reason::NotSupportedYet, message));
    }
    let mut whole = Profile::new(&subject.model);
    let mut in_parts = Profile::in_parts(&subject.model, PARTS);
    let count = whole.steps.len();
    let mut least = vec![f64::INFINITY; count];
    let mut least_parts = vec![[f64::INFINITY; PARTS]; count];
    subject.run()?;
    let (begin, mut runs) = (Instant::now(), 0);
    while runs < LEAST_RUNS || begin.elapsed() < budget {
        subject.run_profiled(&mut whole)?;
        subject.run_profiled(&mut in_parts)?;
        for step in 0..count {
            least[step] = least[step].min(nanoseconds(whole.steps[step].time));
            for (least, time) in least_parts[step].iter_mut().zip(in_parts.parts(step)) {
                *least = least.min(nanoseconds(*time));
            }
        }
        runs += 1;
    }
    let variant = subject.model.variant();
    let mut details = steps(variant);
    let mut table = Vec::new();
    for (index, step) in variant.steps.iter().enumerate() {
        details[index].nanoseconds = least[index] as u64;
        table.push(StepTimes {
            times: TaskTimes::new(step.tasks, &least_parts[index], least[index]),
            min_tasks_per_thread: step.min_tasks_per_thread,
            bytes: step.bytes_read + step.bytes_written,
        });
    }
    Ok((details, table, runs))
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn as_json(
    details: &[StepDetail],
    steps: &[StepTimes],
    assumptions: &Assumptions,
    predictions: &[Prediction],
    runs: usize,
) -> serde_json::Value {
    let steps = details.iter().zip(steps).map(|(detail, step)| {
        json!({
            "nodes": detail.nodes,
            "kernel": detail.kernel,
            "tasks": step.times.tasks(),
            "minTasksPerThread": step.min_tasks_per_thread,
            "bytes": step.bytes,
            "singleThreadNanoseconds": step.times.total(),
        })
    });
    json!({
        "simulation": "predicted from times on one thread; not measured",
        "assumptions": assumptions,
        "runsMeasured": runs,
        "steps": steps.collect::<Vec<_>>(),
        "predictions": predictions,
    })
}

fn as_text(
    details: &[StepDetail],
    steps: &[StepTimes],
    assumptions: &Assumptions,
    predictions: &[Prediction],
    runs: usize,
) -> String {
    let Assumptions { costs, bytes_per_nanosecond } = assumptions;
    let mut text = format!(
        "SIMULATION, not a measurement: from the least times of {runs} runs on one thread.\n\
         Assumed: {} ns to hand a step to a worker, {} ns until it begins, {} ns to await it, {} ns a claim, \
         {} ns to look at\nanother thread's tasks; {} of memory bandwidth for all threads together. Left out: \
         clocks that fall when\nmany cores work, shared caches, several memory nodes.\n\n",
        costs.post,
        costs.start,
        costs.settle,
        costs.claim,
        costs.look,
        units::rate(bytes_per_nanosecond * 1e9, "B"),
    );
    text.push_str(&counts(predictions));
    let Some(most) = predictions.iter().max_by_key(|prediction| prediction.threads) else {
        return text;
    };
    if most.threads > 1 {
        text.push_str(&format!("\n\nSteps that lose most on {} threads:\n", most.threads));
        text.push_str(&losses(details, steps, most));
    }
    text
}

/// One line a number of threads, with where the time goes.
fn counts(predictions: &[Prediction]) -> String {
    let causes = predictions.first().map(|first| first.lost.causes().map(|(name, _)| name));
    let mut head = vec!["threads", "predicted", "speed-up", "efficiency"];
    head.extend(causes.into_iter().flatten());
    let mut lines = table::table(&head);
    for prediction in predictions {
        let mut row = vec![
            prediction.threads.to_string(),
            units::time(prediction.nanoseconds as u64),
            units::digits(prediction.speed_up),
            units::share(prediction.speed_up / prediction.threads as f64),
        ];
        let part = |lost: f64| units::share((lost / prediction.nanoseconds).max(0.0));
        row.extend(prediction.lost.causes().map(|(_, lost)| part(lost)));
        lines.add_row(row);
    }
    lines.to_string()
}

fn losses(details: &[StepDetail], steps: &[StepTimes], prediction: &Prediction) -> String {
    let head = ["nodes", "tasks", "least a thread", "one thread", "predicted", "lost", "of all"];
    let mut lines = table::table(&head);
    let mut order: Vec<usize> = (0..steps.len()).collect();
    let lost = |index: usize| prediction.steps_lost[index];
    order.sort_by(|a, b| lost(*b).total_cmp(&lost(*a)));
    for index in order.into_iter().take(SHOWN) {
        lines.add_row(vec![
            table::short(&details[index].nodes),
            steps[index].times.tasks().to_string(),
            steps[index].min_tasks_per_thread.to_string(),
            units::time(details[index].nanoseconds),
            units::time(prediction.steps[index] as u64),
            units::time(lost(index).max(0.0) as u64),
            units::share(lost(index).max(0.0) / prediction.nanoseconds),
        ]);
    }
    lines.to_string()
}
