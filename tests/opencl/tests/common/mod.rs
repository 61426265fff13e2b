//! Runs the kernels of graphs on an OpenCL device: groups of nodes, loop programs, schedules for a device, OpenCL C.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use anyhow::{Context, Result, ensure};
use hone_codegen_text::{EmitError, Module, OpenClC, emit, source};
use hone_onnx_tests::Backend;
use hone_opencl_tests::{Device, run};
use hone_ops::{Evaluation, Graph};
use hone_passes as passes;
use hone_tensor::{Limits, Program, interpret};
use hone_tune::schedule_for_device;
use hone_types::{DataType, Tensor, TensorType};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

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
struct Job {
    bound: Program,
    module: Module,
    runs: Vec<Run>,
}

struct Run {
    name: String,
    inputs: Vec<Tensor>,
    expected: Vec<Tensor>,
}

/// Computes cases by the interpreter of loop programs, and keeps what a device then computes again.
#[derive(Default)]
pub struct Collector {
    counts: Mutex<Counts>,
    /// By the text of the plain program; what was refused is kept as `None`.
    jobs: Mutex<BTreeMap<String, Option<Job>>>,
}

/// A program with more multiplied extents than this is not run lane by lane in the interpreter: the device runs it.
const MOST_POINTS: usize = 1 << 14;

impl Backend for Collector {
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

impl Collector {
    fn group(
        &self,
        graph: &Graph,
        nodes: &[hone_graph::NodeId],
        evaluation: &mut Evaluation<'_>,
    ) -> Result<()> {
        let last = *nodes.last().context("an empty group")?;
        let node = &graph.nodes()[last];
        let regions = nodes.iter().any(|own| !graph.nodes()[*own].operation.regions().is_empty());
        let lowered = match regions {
            true => None,
            false => hone_lower::lower(graph, nodes, &node.outputs).ok(),
        };
        let Some(lowered) = lowered else {
            for own in nodes {
                evaluation.compute(*own)?;
            }
            *self
                .counts
                .lock()
                .unwrap()
                .others
                .entry(node.operation.name().to_string())
                .or_default() += 1;
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
                let own = TensorType::new(value.dtype(), shape);
                Ok(Tensor::from_bytes(own, value.bytes().to_vec())?)
            })
            .collect::<Result<_>>()?;
        let name = format!("node '{}' ({})", node.name, node.operation.name());
        let results = self.kernel(&lowered.program, inputs, &name).context(name)?;
        let results = results.into_iter().zip(&node.outputs);
        let results = results.map(|(own, value)| {
            Tensor::from_bytes(graph.tensor_type(*value).clone(), own.bytes().to_vec())
        });
        evaluation.supply(last, results.collect::<Result<_, _>>()?);
        Ok(())
    }

    fn kernel(&self, plain: &Program, inputs: Vec<Tensor>, name: &str) -> Result<Vec<Tensor>> {
        let expected = interpret(plain, &inputs)?;
        let mut jobs = self.jobs.lock().unwrap();
        let number = jobs.len();
        let job = jobs.entry(plain.to_string()).or_insert_with(|| self.job(plain, number));
        if let Some(job) = job {
            if job.runs.is_empty() && points(&job.bound, &job.module) <= MOST_POINTS {
                let lanes =
                    interpret(&job.bound, &inputs).with_context(|| job.bound.to_string())?;
                compare(&job.bound, &lanes, &expected)
                    .with_context(|| format!("lane by lane: {}", job.bound))?;
                self.counts.lock().unwrap().lanes += 1;
            }
            job.runs.push(Run { name: name.to_string(), inputs, expected: expected.clone() });
        }
        Ok(expected)
    }

    fn job(&self, plain: &Program, number: usize) -> Option<Job> {
        let mut counts = self.counts.lock().unwrap();
        let scheduled = schedule_for_device(plain.clone(), &Limits::PORTABLE);
        let emitted = scheduled.map_err(|reason| format!("schedule: {reason}")).and_then(|own| {
            let bound = own.schedule.into_program();
            let module = emit(&bound, &OpenClC, &Limits::PORTABLE, &format!("k{number}"));
            module.map(|module| (own.template, bound, module)).map_err(|reason| kind(&reason))
        });
        match emitted {
            Ok((template, bound, module)) => {
                *counts.templates.entry(template).or_default() += 1;
                Some(Job { bound, module, runs: Vec::new() })
            }
            Err(reason) => {
                *counts.refused.entry(reason).or_default() += 1;
                None
            }
        }
    }
}

/// Modules that are built at once: a device's compiler reads its headers for each text anew.
const TOGETHER: usize = 100;

/// Runs jobs on a device, and gives how many runs came out right, and what did not.
fn run_share(device: &Device, jobs: &[Job]) -> (usize, Vec<String>) {
    let (mut right, mut wrong) = (0, Vec::new());
    for jobs in jobs.chunks(TOGETHER) {
        let modules: Vec<&Module> = jobs.iter().map(|job| &job.module).collect();
        let kernels = device.build(&source(&OpenClC, &modules)).unwrap();
        for (job, own) in jobs.iter().flat_map(|job| job.runs.iter().map(move |own| (job, own))) {
            let results = run(device, &kernels, &job.bound, &job.module, &own.inputs);
            match results.and_then(|results| compare(&job.bound, &results, &own.expected)) {
                Ok(()) => right += 1,
                Err(error) => wrong.push(format!("{}: {error:#}\n{}", own.name, job.module.text)),
            }
        }
    }
    (right, wrong)
}

fn kind(reason: &EmitError) -> String {
    match reason {
        EmitError::Operation { operation, dtype, .. } => format!("{operation} of {dtype}"),
        EmitError::Verify(reason) => format!("verifier: {reason}"),
        other => other.to_string(),
    }
}

/// About how often a program's blocks run, over all lanes.
fn points(program: &Program, module: &Module) -> usize {
    let lanes = module
        .kernels()
        .into_iter()
        .map(|own| own.groups.iter().product::<usize>() * own.items.iter().product::<usize>());
    let blocks = program.blocks_in_order().into_iter().map(|block| {
        let iterators = program.blocks[block].iterators.iter();
        iterators.map(|own| own.extent).product::<usize>()
    });
    lanes.sum::<usize>() + blocks.sum::<usize>()
}

/// How far a device's functions may be off: a few units in the last place of each, summed over a few steps, in the
/// narrowest floating-point type of the program.
fn precision(program: &Program) -> f64 {
    let types = program.buffers.iter().map(|(_, own)| match own.dtype {
        DataType::F64 => 1e-12,
        DataType::F32 => 2e-5,
        DataType::F16 => 2e-3,
        DataType::BF16 => 2e-2,
        _ => 0.0,
    });
    types.fold(0.0, f64::max)
}

/// Whole numbers are equal, but for one in fifty that may be the other neighbour of what was rounded.
fn compare(program: &Program, results: &[Tensor], expected: &[Tensor]) -> Result<()> {
    let relative = precision(program);
    for (place, (result, expected)) in results.iter().zip(expected).enumerate() {
        let (result, expected, dtype) = (result.to_f64(), expected.to_f64(), expected.dtype());
        let largest =
            expected.iter().filter(|own| own.is_finite()).fold(0f64, |a, b| a.max(b.abs()));
        let mut neighbours = 0;
        for (element, (a, b)) in result.iter().zip(&expected).enumerate() {
            let equal = a == b || (a.is_nan() && b.is_nan());
            let near = match dtype.is_float() {
                true => (a - b).abs() <= relative * (b.abs() + 0.1 * largest),
                false => relative > 0.0 && dtype != DataType::Bool && (a - b).abs() == 1.0,
            };
            ensure!(equal || near, "output {place}, element {element}: {a}, expected {b}");
            neighbours += usize::from(!equal && !dtype.is_float());
        }
        let most = 1 + expected.len() / 50;
        ensure!(
            neighbours <= most,
            "output {place}: {neighbours} of {} are one off",
            expected.len()
        );
    }
    Ok(())
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

impl Collector {
    /// Runs on a device, by two threads, all that was collected.
    pub fn run_all(self, device: &Device) -> Outcome {
        let jobs: Vec<Job> = self.jobs.into_inner().unwrap().into_values().flatten().collect();
        let (first, second) = jobs.split_at(jobs.len() / 2);
        let (right, wrong) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run_share(device, second));
            let (right, mut wrong) = run_share(device, first);
            let (more, other) = other.join().unwrap();
            wrong.extend(other);
            (right + more, wrong)
        });
        let counts = self.counts.into_inner().unwrap();
        Outcome { programs: jobs.len(), right, wrong, counts }
    }
}
