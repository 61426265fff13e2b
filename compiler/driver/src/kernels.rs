//! Groups to kernels: lower, schedule, generate code. Equal programs are compiled once.

use crate::{CompileError, Options, SchedulePolicy};
use hone_codegen::{Kernel, Unit};
use hone_graph::ValueId;
use hone_lower::{Lowered, lower};
use hone_ops::{Graph, Reshape};
use hone_passes::Group;
use hone_tensor::{Program, Role, Scope};
use hone_tune::{Machine, Scheduled};
use std::collections::HashMap;
use std::thread;

/// Everything the code generator made, and which group uses what.
#[derive(Debug)]
pub struct CompiledKernels {
    /// Distinct kernels in order of first use.
    pub kernels: Vec<KernelInfo>,
    /// One shared object with all kernels.
    pub shared_object: Vec<u8>,
    /// For each group that computes something: its kernel and its values.
    pub calls: Vec<Call>,
    /// Groups that only rename memory: the value they make, and the one it is.
    pub aliases: Vec<(ValueId, ValueId)>,
}

/// A distinct kernel: one scheduled program, which may be several functions run in turn.
#[derive(Debug)]
pub struct KernelInfo {
    /// Symbol stem.
    pub symbol: String,
    /// The scheduled program.
    pub program: Program,
    /// Name of the template that scheduled it.
    pub template: &'static str,
    /// The schedule as text.
    pub trace: String,
    /// One function per top-level statement of the program.
    pub functions: Vec<Kernel>,
}

/// One use of a kernel.
#[derive(Debug)]
pub struct Call {
    /// Index of the kernel.
    pub kernel: usize,
    /// Values of the kernel's parameters.
    pub parameters: Vec<ValueId>,
    /// Names of the nodes it computes.
    pub nodes: Vec<String>,
    /// Floating-point operations.
    pub flops: u64,
}

/// Lowers, schedules and compiles every group. `lap` is told the name of each finished stage.
pub(crate) fn compile_kernels(
    graph: &Graph,
    groups: &[Group],
    options: &Options,
    lap: &mut dyn FnMut(&'static str),
) -> Result<CompiledKernels, CompileError> {
    let mut distinct: HashMap<[u8; 32], usize> = HashMap::new();
    let mut programs: Vec<(Program, String)> = Vec::new();
    let (mut calls, mut aliases) = (Vec::new(), Vec::new());
    for group in groups {
        if let Some(alias) = alias(graph, group) {
            aliases.push(alias);
            continue;
        }
        let last = &graph.nodes()[*group.nodes.last().unwrap_or(&group.nodes[0])];
        let Lowered { program, parameters } = lower(graph, &group.nodes, &last.outputs)?;
        let nodes = node_names(graph, group);
        let kernel = match distinct.entry(digest(&program)) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                programs.push((program, nodes.join(", ")));
                *new.insert(programs.len() - 1)
            }
        };
        calls.push(Call { kernel, parameters, nodes, flops: group_flops(graph, group) });
    }
    lap("lower");
    let scheduled = schedule_all(programs, options)?;
    lap("schedule");
    let symbols: Vec<String> = (0..scheduled.len()).map(|index| format!("hone_k{index}")).collect();
    let units: Vec<Unit> = symbols
        .iter()
        .zip(&scheduled)
        .map(|(symbol, scheduled)| Unit { symbol, program: scheduled.schedule.program() })
        .collect();
    let objects =
        hone_codegen::compile(&units, &options.target, &hone_codegen::Options::default())?;
    lap("code generation");
    let shared_object = hone_codegen::link(&objects, &options.target)?;
    lap("link");
    let kernels = symbols
        .into_iter()
        .zip(scheduled)
        .zip(objects)
        .map(|((symbol, scheduled), object)| KernelInfo {
            symbol,
            template: scheduled.template,
            trace: scheduled.schedule.trace().to_string(),
            program: scheduled.schedule.into_program(),
            functions: object.kernels,
        })
        .collect();
    Ok(CompiledKernels { kernels, shared_object, calls, aliases })
}

impl KernelInfo {
    /// Sizes in bytes of the temporaries that the caller provides after the parameters.
    pub fn temporaries(&self) -> Vec<u64> {
        let buffers = self.program.buffers.iter();
        buffers
            .filter(|(_, buffer)| buffer.role == Role::Temporary && buffer.scope == Scope::Global)
            .map(|(_, buffer)| buffer.bytes() as u64)
            .collect()
    }
}

/// A group of reshapes alone computes nothing: its result is its input's memory.
fn alias(graph: &Graph, group: &Group) -> Option<(ValueId, ValueId)> {
    let mut nodes = group.nodes.iter().map(|id| &graph.nodes()[*id]);
    if !nodes.clone().all(|node| node.operation.downcast::<Reshape>().is_some()) {
        return None;
    }
    let first = nodes.next()?;
    let last = &graph.nodes()[*group.nodes.last()?];
    Some((last.outputs[0], first.inputs[0]?))
}

fn node_names(graph: &Graph, group: &Group) -> Vec<String> {
    let mut names: Vec<String> =
        group.nodes.iter().map(|id| graph.nodes()[*id].name.clone()).collect();
    names.dedup();
    names
}

fn group_flops(graph: &Graph, group: &Group) -> u64 {
    let flops = group.nodes.iter().map(|id| {
        let node = &graph.nodes()[*id];
        let inputs: Vec<_> =
            node.inputs.iter().map(|input| input.map(|value| graph.tensor_type(value))).collect();
        let outputs: Vec<_> =
            node.outputs.iter().map(|value| graph.tensor_type(*value).clone()).collect();
        node.operation.flops(&inputs, &outputs)
    });
    flops.sum()
}

/// Programs are equal when their plain forms are.
fn digest(program: &Program) -> [u8; 32] {
    *blake3::hash(format!("{program:?}").as_bytes()).as_bytes()
}

/// Schedules on as many threads as the machine has, in order.
fn schedule_all(
    programs: Vec<(Program, String)>,
    options: &Options,
) -> Result<Vec<Scheduled>, CompileError> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let share = programs.len().div_ceil(threads).max(1);
    let scheduled: Vec<Result<Scheduled, CompileError>> = thread::scope(|scope| {
        let handles: Vec<_> = programs
            .chunks(share)
            .map(|chunk| {
                scope.spawn(move || {
                    let scheduled = chunk.iter().map(|(program, nodes)| {
                        schedule_one(program.clone(), options).map_err(|source| {
                            CompileError::Schedule {
                                nodes: nodes.clone(),
                                source: Box::new(source),
                            }
                        })
                    });
                    scheduled.collect::<Vec<_>>()
                })
            })
            .collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap_or_default()).collect()
    });
    scheduled.into_iter().collect()
}

fn schedule_one(
    program: Program,
    options: &Options,
) -> Result<Scheduled, hone_schedule::ScheduleError> {
    match options.schedules {
        SchedulePolicy::Naive => hone_tune::schedule_naively(program),
        SchedulePolicy::Analytic => {
            hone_tune::schedule(program, &Machine::with_vectors(options.target.vector_bytes))
        }
    }
}
