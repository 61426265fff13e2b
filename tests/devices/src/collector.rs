//! Kernels of graphs: groups of nodes, loop programs and schedules for a device, and what a device computes of them.

use crate::compare::compare;
use anyhow::{Context, Result};
use hone_onnx_tests::Backend;
use hone_ops::{Evaluation, Graph};
use hone_passes as passes;
use hone_tensor::{Limits, Program, Step, interpret};
use hone_tune::schedule_for_device;
use hone_types::{Tensor, TensorType};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A way to make code of bound programs, and to run it.
pub trait Device: Sync {
    /// The code of a program.
    type Code: Send + Sync;

    /// What launches may use.
    fn limits(&self) -> Limits;

    /// Code of a program, whose kernels' names begin with `stem`.
    ///
    /// # Errors
    /// Why there is none, in a few words that are the same for all programs with that reason.
    fn emit(&self, program: &Program, stem: &str) -> Result<Self::Code, String>;

    /// The order of a program's launches.
    fn steps<'a>(&self, code: &'a Self::Code) -> &'a [Step];

    /// The text of a program, for messages.
    fn text<'a>(&self, code: &'a Self::Code) -> &'a str;

    /// Runs programs, and gives for each of their runs what came out.
    fn run(&self, jobs: &[Job<Self::Code>]) -> Vec<Vec<Result<Vec<Tensor>>>>;
}

/// What became of kernels.
#[derive(Default)]
pub struct Counts {
    /// By reason.
    refused: BTreeMap<String, usize>,
    templates: BTreeMap<&'static str, usize>,
    /// Groups that the reference computes, because no loop program is made of them: by operation.
    others: BTreeMap<String, usize>,
    /// Bound programs that the interpreter ran on every lane.
    lanes: usize,
}

/// A program for the device, and what it is run on.
pub struct Job<C> {
    /// The bound program.
    pub bound: Program,
    /// What was made of it.
    pub code: C,
    /// What it is run on.
    pub runs: Vec<Run>,
}

/// One run of a program.
pub struct Run {
    /// The node that it stands for.
    pub name: String,
    /// Its inputs.
    pub inputs: Vec<Tensor>,
    /// What the interpreter of loop programs computes.
    pub expected: Vec<Tensor>,
}

/// Computes cases by the interpreter of loop programs, and keeps what a device then computes again.
pub struct Collector<'d, D: Device> {
    device: &'d D,
    counts: Mutex<Counts>,
    /// By the text of the plain program; what was refused is kept as `None`.
    jobs: Mutex<BTreeMap<String, Option<Job<D::Code>>>>,
}

/// A program with more multiplied extents than this is not run lane by lane in the interpreter: the device runs it.
const MOST_POINTS: usize = 1 << 14;

impl<D: Device> Backend for Collector<'_, D> {
    fn name(&self) -> &'static str {
        "interpreter"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        let mut graph = graph.clone();
        for pass in [
            passes::extend_precision,
            passes::decompose,
            passes::fold_constants,
            passes::simplify,
            passes::separate_outputs,
        ] {
            graph = passes::over_regions(&graph, &pass)?;
        }
        let mut evaluation = Evaluation::new(&graph, inputs)?;
        for group in passes::fuse(&graph) {
            self.group(&graph, &group.nodes, &mut evaluation)?;
        }
        Ok(Some(outputs(&graph, &evaluation)?))
    }
}

/// The outputs of a graph; those of which only a part is there cut to it.
fn outputs(graph: &Graph, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>> {
    let mut outputs = evaluation.outputs();
    for (extent, actual) in graph.extents().iter().zip(evaluation.extents()) {
        let output = &mut outputs[extent.output];
        let mut shape = output.shape().to_vec();
        shape[extent.axis] = actual as usize;
        let actual = TensorType::new(output.dtype(), shape);
        *output = Tensor::from_bytes(actual.clone(), output.bytes()[..actual.bytes()].to_vec())?;
    }
    Ok(outputs)
}

impl<'d, D: Device> Collector<'d, D> {
    /// An empty one for a device.
    pub fn new(device: &'d D) -> Self {
        Self { device, counts: Mutex::default(), jobs: Mutex::default() }
    }

    fn group(
        &self,
        graph: &Graph,
        nodes: &[hone_graph::NodeId],
        evaluation: &mut Evaluation<'_>,
    ) -> Result<()> {
        let last = *nodes.last().context("an empty group")?;
        let node = &graph.nodes()[last];
        let regions = nodes.iter().any(|node| !graph.nodes()[*node].operation.regions().is_empty());
        let lowered = match regions {
            true => None,
            false => hone_lower::lower(graph, nodes, &node.outputs).ok(),
        };
        let Some(lowered) = lowered else {
            for node in nodes {
                evaluation.compute(*node)?;
            }
            let name = node.operation.name().to_string();
            *held(&self.counts).others.entry(name).or_default() += 1;
            return Ok(());
        };
        let given = lowered.parameters.len() - node.outputs.len();
        // Axes that are always walked together are one in the program.
        let buffers = lowered.program.parameters();
        let inputs = lowered.parameters[..given].iter().zip(&buffers);
        let inputs: Vec<Tensor> = inputs
            .map(|(value, buffer)| {
                let value = evaluation.value(*value).context("a value is missing")?;
                let shape = lowered.program.buffers[*buffer].shape.clone();
                let tensor_type = TensorType::new(value.dtype(), shape);
                Ok(Tensor::from_bytes(tensor_type, value.bytes().to_vec())?)
            })
            .collect::<Result<_>>()?;
        let name = format!("node '{}' ({})", node.name, node.operation.name());
        let results = self.kernel(&lowered.program, inputs, &name).context(name)?;
        let results = results.into_iter().zip(&node.outputs);
        let results = results.map(|(result, value)| {
            Tensor::from_bytes(graph.tensor_type(*value).clone(), result.bytes().to_vec())
        });
        evaluation.supply(last, results.collect::<Result<_, _>>()?);
        Ok(())
    }

    fn kernel(&self, plain: &Program, inputs: Vec<Tensor>, name: &str) -> Result<Vec<Tensor>> {
        let expected = interpret(plain, &inputs)?;
        let mut jobs = held(&self.jobs);
        let number = jobs.len();
        let job = jobs.entry(plain.to_string()).or_insert_with(|| self.job(plain, number));
        if let Some(job) = job {
            if job.runs.is_empty()
                && points(&job.bound, self.device.steps(&job.code)) <= MOST_POINTS
            {
                let lanes =
                    interpret(&job.bound, &inputs).with_context(|| job.bound.to_string())?;
                compare(&job.bound, &lanes, &expected)
                    .with_context(|| format!("lane by lane: {}", job.bound))?;
                held(&self.counts).lanes += 1;
            }
            job.runs.push(Run { name: name.to_string(), inputs, expected: expected.clone() });
        }
        Ok(expected)
    }

    fn job(&self, plain: &Program, number: usize) -> Option<Job<D::Code>> {
        let mut counts = held(&self.counts);
        let scheduled = schedule_for_device(plain.clone(), &self.device.limits());
        let emitted =
            scheduled.map_err(|reason| format!("schedule: {reason}")).and_then(|scheduled| {
                let bound = scheduled.schedule.into_program();
                let code = self.device.emit(&bound, &format!("k{number}"))?;
                Ok((scheduled.template, bound, code))
            });
        match emitted {
            Ok((template, bound, code)) => {
                *counts.templates.entry(template).or_default() += 1;
                Some(Job { bound, code, runs: Vec::new() })
            }
            Err(reason) => {
                *counts.refused.entry(reason).or_default() += 1;
                None
            }
        }
    }

    /// Runs on the device, by two threads, all that was collected; what came of it, and the programs.
    pub fn run_all(self) -> (Outcome, Vec<Job<D::Code>>) {
        let device = self.device;
        let counts = std::mem::take(&mut *held(&self.counts));
        let jobs = self.jobs.into_inner().unwrap_or_else(PoisonError::into_inner);
        let jobs: Vec<Job<D::Code>> = jobs.into_values().flatten().collect();
        let (first, second) = jobs.split_at(jobs.len() / 2);
        let (right, wrong) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run_share(device, second));
            let (right, mut wrong) = run_share(device, first);
            // A share that panics has said why.
            let (more, other) =
                other.join().unwrap_or_else(|_| (0, vec!["a thread panicked".to_string()]));
            wrong.extend(other);
            (right + more, wrong)
        });
        (Outcome { programs: jobs.len(), right, wrong, counts }, jobs)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs jobs on a device, and gives how many runs came out right, and what did not.
fn run_share<D: Device>(device: &D, jobs: &[Job<D::Code>]) -> (usize, Vec<String>) {
    let (mut right, mut wrong) = (0, Vec::new());
    for (job, results) in jobs.iter().zip(device.run(jobs)) {
        for (one, result) in job.runs.iter().zip(results) {
            match result.and_then(|result| compare(&job.bound, &result, &one.expected)) {
                Ok(()) => right += 1,
                Err(error) => {
                    wrong.push(format!("{}: {error:#}\n{}", one.name, device.text(&job.code)));
                }
            }
        }
    }
    (right, wrong)
}

/// About how often a program's blocks run, over all lanes.
fn points(program: &Program, steps: &[Step]) -> usize {
    let lanes = Step::kernels(steps).into_iter().map(|kernel| {
        kernel.groups.iter().product::<usize>() * kernel.items.iter().product::<usize>()
    });
    let blocks = program.blocks_in_order().into_iter().map(|block| {
        let iterators = program.blocks[block].iterators.iter();
        iterators.map(|iterator| iterator.extent).product::<usize>()
    });
    lanes.sum::<usize>() + blocks.sum::<usize>()
}

/// What came of all kernels that were collected.
pub struct Outcome {
    /// Programs that were run.
    pub programs: usize,
    /// Runs that came out right.
    pub right: usize,
    /// Runs that did not, in words.
    pub wrong: Vec<String>,
    /// Kinds of what was refused, and what else there is to tell.
    counts: Counts,
}

impl Outcome {
    /// Programs that were refused.
    pub fn refused(&self) -> usize {
        self.counts.refused.values().sum()
    }

    /// How many programs were refused, by reason.
    pub fn reasons(&self) -> &BTreeMap<String, usize> {
        &self.counts.refused
    }

    /// How many programs a template took.
    pub fn by_template(&self, template: &str) -> usize {
        self.counts.templates.get(template).copied().unwrap_or(0)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counts, refused) = (&self.counts, self.refused());
        writeln!(
            formatter,
            "{} runs of {} programs right, {} wrong; {} programs lane by lane in the interpreter too; by {:?}",
            self.right,
            self.programs,
            self.wrong.len(),
            counts.lanes,
            counts.templates
        )?;
        writeln!(formatter, "{refused} programs refused: {:?}", counts.refused)?;
        write!(formatter, "computed by the reference: {:?}", counts.others)
    }
}
