//! What a search for schedules needs of the compiler: the programs of a model, and code of candidates to
//! measure. The search itself is `hone-search`.

use crate::artifact::manifest_target;
use crate::kernels::lower_groups;
use crate::pipeline::prepare_deciding;
use crate::schedule::prescribed;
use crate::{CompileError, Options, prepare};
use hone_artifact::{
    Access, Argument, BUFFER_ALIGNMENT, Manifest, OLDEST_SCHEMA_VERSION, Slot, Step, TensorInfo,
    Variant, Writer,
};
use hone_codegen::{Kernel, Unit};
use hone_machine::Machine;
use hone_ops::Graph;
use hone_passes::GraphDecision;
use hone_schedule::ScheduleError;
use hone_tensor::{Builder, Expr, Program, Role, Scope};
use hone_tune::{Prescription, structural_digest, work};
use hone_types::{DataType, TensorType};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A program of a model, as it is before scheduling.
#[derive(Clone, Debug)]
pub struct TuningTask {
    /// The plain program.
    pub program: Program,
    /// What records know it by.
    pub digest: String,
    /// Names of the nodes of its first use.
    pub nodes: String,
    /// Kernels that it is, by number: programs that differ in names alone are several.
    pub kernels: Vec<usize>,
    /// How often a run of the model computes it.
    pub uses: usize,
}

/// The distinct programs of a model, in order of first use, and what the analytic model knows of the target.
pub fn tuning_tasks(
    imported: &Graph,
    options: &Options,
) -> Result<(Vec<TuningTask>, Machine), CompileError> {
    crate::device::refuse_tuning(options)?;
    let graph = prepare(imported, options)?;
    let (lowered, programs) = lower_groups(&graph, (None, options))?;
    let mut tasks: Vec<TuningTask> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut of_kernel = Vec::with_capacity(programs.len());
    for (kernel, unscheduled) in programs.into_iter().enumerate() {
        let digest = structural_digest(&unscheduled.program);
        let index = *places.entry(digest.clone()).or_insert_with(|| {
            tasks.push(TuningTask {
                program: unscheduled.program,
                digest,
                nodes: unscheduled.nodes,
                kernels: Vec::new(),
                uses: 0,
            });
            tasks.len() - 1
        });
        tasks[index].kernels.push(kernel);
        of_kernel.push(index);
    }
    for call in lowered.calls() {
        tasks[of_kernel[call.kernel]].uses += 1;
    }
    // A model without a kernel of its own has one that nothing calls.
    tasks.retain(|task| task.uses > 0);
    Ok((tasks, options.target.machine()))
}

/// The decisions about a model's graph that may be measured, by the structure that each is about.
pub fn graph_decisions(
    imported: &Graph,
    options: &Options,
) -> Result<BTreeMap<String, GraphDecision>, CompileError> {
    let decisions = options.graph_decisions();
    prepare_deciding(imported, options, &decisions)?;
    Ok(decisions.into_taken())
}

/// Candidates of one program as an artifact: every candidate is some steps of it, after a step that fills the
/// second-level cache with other data. All of them have the same arguments first, which lie in the arena as
/// most values of a network do, aligned as there: those that are only read are the program's inputs, those
/// that are only written its outputs. The artifact itself has neither inputs nor outputs.
#[derive(Debug)]
pub struct TrialArtifact {
    /// The artifact's bytes.
    pub bytes: Vec<u8>,
    /// The program's inputs in the order of its parameters.
    pub inputs: Vec<TensorInfo>,
    /// Its outputs.
    pub outputs: Vec<TensorInfo>,
    /// The steps of each candidate, or why there is no code of it.
    pub candidates: Vec<Result<Range<usize>, CompileError>>,
}

/// How a candidate is scheduled.
#[derive(Clone, Debug)]
pub enum Trial {
    /// In the plain loop order: what answers are compared with.
    Plain,
    /// Without tuning.
    Untuned,
    /// As decided.
    Decided(Prescription),
}

/// Makes code of candidates of a program, given by its text form. `evict` says whether every candidate comes
/// after a step that reads and writes as much as the second-level cache holds.
pub fn trial_artifact(
    program: &str,
    trials: &[Trial],
    evict: bool,
    options: &Options,
) -> Result<TrialArtifact, CompileError> {
    let program = hone_tensor::parse(program).map_err(|error| CompileError::Schedule {
        nodes: "a trial".to_owned(),
        source: Box::new(ScheduleError::Syntax {
            text: "the program".to_owned(),
            reason: error.to_string(),
        }),
    })?;
    let machine = options.target.machine();
    let scheduled: Vec<_> =
        trials.iter().map(|trial| scheduled(&program, trial, &machine)).collect();
    let evicting = evict.then(|| eviction(&machine)).transpose()?;
    let programs = scheduled.iter().flatten().chain(&evicting);
    let symbols: Vec<String> =
        (0..trials.len() + 1).map(|number| format!("hone_t{number}")).collect();
    let units: Vec<Unit<'_>> =
        programs.zip(&symbols).map(|(program, symbol)| Unit { symbol, program }).collect();
    let objects =
        hone_codegen::compile(&units, &options.target, &hone_codegen::Options::default())?;
    let shared_object = hone_codegen::link(&objects, &options.target)?;
    let mut made =
        objects.iter().map(|object| object.kernels.as_slice()).collect::<Vec<_>>().into_iter();
    let kernels: Vec<_> = scheduled
        .into_iter()
        .map(|trial| trial.map(|program| (program, made.next().unwrap_or_default())))
        .collect();
    let evicting = evicting.map(|program| (program, made.next().unwrap_or_default()));
    let mut table = Table::new(&program);
    let mut candidates = Vec::with_capacity(trials.len());
    for candidate in kernels {
        candidates.push(candidate.map(|(program, kernels)| {
            if let Some((program, kernels)) = &evicting {
                table.add_apart(program, kernels);
            }
            table.add(&program, kernels)
        }));
    }
    let functions = objects.iter().flat_map(|object| &object.kernels);
    let scratch = functions.map(|function| function.scratch_bytes).max().unwrap_or(0);
    let (inputs, outputs) = (table.inputs.clone(), table.outputs.clone());
    let bytes = table.artifact(options, shared_object, scratch)?;
    Ok(TrialArtifact { bytes, inputs, outputs, candidates })
}

fn scheduled(program: &Program, trial: &Trial, machine: &Machine) -> Result<Program, CompileError> {
    let program = program.clone();
    let scheduled = match trial {
        Trial::Plain => hone_tune::schedule_naively(program),
        Trial::Untuned => hone_tune::schedule(program, machine),
        Trial::Decided(prescription) => prescribed(program, machine, prescription),
    };
    let verified =
        scheduled.and_then(|scheduled| scheduled.schedule.verify().map(|()| scheduled.schedule));
    verified.map(|schedule| schedule.into_program()).map_err(|source| CompileError::Schedule {
        nodes: "a trial".to_owned(),
        source: Box::new(source),
    })
}

/// A program that reads and writes as many bytes as the second-level cache holds, together.
fn eviction(machine: &Machine) -> Result<Program, CompileError> {
    let tensor = TensorType::new(DataType::F32, [machine.l2_bytes / 8]);
    let mut builder = Builder::new();
    let from = builder.input("from", &tensor);
    let to = builder
        .map("to", &tensor, |i| Expr::Load(from, i.to_vec()) + Expr::Constant(1.0, DataType::F32));
    builder.output(to);
    scheduled(&builder.finish(), &Trial::Untuned, machine)
}

/// The steps of a trial artifact.
struct Table {
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    /// The parameters, which all candidates have.
    parameters: Vec<Argument>,
    /// Where they end in the arena; what else a step needs lies behind.
    begin: u64,
    arena_bytes: u64,
    steps: Vec<Step>,
}

impl Table {
    fn new(program: &Program) -> Self {
        let mut table = Self {
            inputs: Vec::new(),
            outputs: Vec::new(),
            parameters: Vec::new(),
            begin: 0,
            arena_bytes: 0,
            steps: Vec::new(),
        };
        for parameter in program.parameters() {
            let buffer = &program.buffers[parameter];
            let is_input = matches!(buffer.role, Role::Input(_));
            let list = if is_input { &mut table.inputs } else { &mut table.outputs };
            let shape = buffer.shape.iter().map(|extent| *extent as u64).collect();
            let index = list.len() as u32;
            let dtype = crate::artifact::data_type(buffer.dtype);
            list.extend(TensorInfo::new(format!("p{index}"), dtype, shape));
            let (slot, bytes) = (Slot::Arena { offset: table.begin }, buffer.bytes() as u64);
            let access = if is_input { Access::Read } else { Access::Write };
            table.parameters.push(Argument { slot, bytes, access });
            table.begin += bytes.next_multiple_of(BUFFER_ALIGNMENT);
        }
        table.arena_bytes = table.begin;
        table
    }

    /// Adds the steps of a candidate.
    fn add(&mut self, program: &Program, kernels: &[Kernel]) -> Range<usize> {
        self.add_steps(program, kernels, self.parameters.clone())
    }

    /// Adds the steps of another program.
    fn add_apart(&mut self, program: &Program, kernels: &[Kernel]) {
        let mut end = self.begin;
        let mut arguments = Vec::new();
        for parameter in program.parameters() {
            let bytes = program.buffers[parameter].bytes() as u64;
            let slot = Slot::Arena { offset: end };
            arguments.push(Argument { slot, bytes, access: Access::ReadWrite });
            end += bytes.next_multiple_of(BUFFER_ALIGNMENT);
        }
        self.arena_bytes = self.arena_bytes.max(end);
        self.add_steps(program, kernels, arguments);
    }

    fn add_steps(
        &mut self,
        program: &Program,
        kernels: &[Kernel],
        mut arguments: Vec<Argument>,
    ) -> Range<usize> {
        let mut end = self.begin;
        for (_, buffer) in program.buffers.iter() {
            if buffer.role == Role::Temporary && buffer.scope == Scope::Global {
                let bytes = buffer.bytes() as u64;
                let slot = Slot::Arena { offset: end };
                arguments.push(Argument { slot, bytes, access: Access::ReadWrite });
                end += bytes.next_multiple_of(BUFFER_ALIGNMENT);
            }
        }
        self.arena_bytes = self.arena_bytes.max(end);
        let begin = self.steps.len();
        self.steps.extend(kernels.iter().zip(&program.body).map(|(kernel, statement)| Step {
            nodes: vec!["trial".to_owned()],
            kernel: kernel.symbol.clone(),
            tasks: kernel.tasks,
            min_tasks_per_thread: work(program, statement).min_tasks_per_thread(kernel.tasks),
            beside: None,
            waves: None,
            arguments: arguments.clone(),
            flops: 0,
            bytes_read: 0,
            bytes_written: 0,
        }));
        begin..self.steps.len()
    }

    fn artifact(
        self,
        options: &Options,
        shared_object: Vec<u8>,
        scratch: u64,
    ) -> Result<Vec<u8>, CompileError> {
        let mut writer = Writer::new();
        let code = writer.code(shared_object);
        let weights = writer.weights(Vec::new());
        let variant = Variant {
            target: manifest_target(&options.target),
            code,
            weights,
            weights_bytes: 0,
            arena_bytes: self.arena_bytes,
            scratch_bytes_per_thread: scratch,
            steps: self.steps,
            program: Vec::new(),
            extents: Vec::new(),
            shapes: None,
            device: None,
            recipe: None,
        };
        let version = env!("CARGO_PKG_VERSION");
        let manifest = Manifest::without_model(OLDEST_SCHEMA_VERSION, version, variant);
        Ok(writer.to_bytes(&manifest)?)
    }
}
