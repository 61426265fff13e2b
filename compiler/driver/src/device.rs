//! Kernels for an accelerator: programs bound to blocks and lanes, their text, and how they are launched.

use crate::device_attention::Names;
use crate::error::CompileError;
use crate::kernels::{CompiledKernels, Edit, KernelInfo, LoweredGraph, symbol_stem};
use crate::options::Options;
use crate::pipeline::Pass;
use crate::schedule::{Unscheduled, in_order};
use hone_artifact::{
    Accelerator, Command, DeviceCode, DeviceKernel, DeviceLimits, Language, Launch, LaunchArgument,
};
use hone_codegen::Kernel;
use hone_codegen::nvptx::{self, Architecture, ProductOptions};
use hone_codegen_text::{Argument, Dialect, Module, OpenClC, Step, Wgsl, emit};
use hone_machine::DEVICE_BUFFER_ALIGNMENT;
use hone_ops::Graph;
use hone_passes as passes;
use hone_passes::PassError;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockBody, BufferId, Combiner, Limits, Program, Role, Scope, VarId};
use hone_tune::{DeviceSchedule, plain_for_device, schedule_for_device};
use hone_types::DataType;

/// What launches for an accelerator keep to: for OpenCL and WebGPU what every device has.
pub fn device_limits(accelerator: Accelerator) -> Limits {
    architecture(accelerator).map_or(Limits::PORTABLE, Architecture::limits)
}

/// The architecture that is one of NVIDIA's.
fn architecture(accelerator: Accelerator) -> Option<Architecture> {
    match accelerator {
        Accelerator::OpenCl | Accelerator::WebGpu => None,
        Accelerator::Sm75 => Some(Architecture::Sm75),
        Accelerator::Sm80 => Some(Architecture::Sm80),
        Accelerator::Sm86 => Some(Architecture::Sm86),
        Accelerator::Sm89 => Some(Architecture::Sm89),
        Accelerator::Sm90a => Some(Architecture::Sm90a),
    }
}

/// Whether products of a type are computed on an accelerator: on tensor cores, where it has them.
pub(crate) fn multiplies(accelerator: Accelerator, dtype: DataType) -> bool {
    let cores = architecture(accelerator).is_some_and(Architecture::has_asynchronous_copies);
    cores && matches!(dtype, DataType::BF16 | DataType::F16)
}

/// Whether a compilation's products are computed on tensor cores.
pub(crate) fn on_tensor_cores(options: &Options) -> bool {
    options.target.accelerator.is_some_and(|accelerator| multiplies(accelerator, options.precision))
}

/// What an accelerator does not compute.
///
/// # Errors
/// [`CompileError::Accelerator`] for arithmetic below `f32` where it has no instructions for it.
pub(crate) fn check_options(options: &Options) -> Result<(), CompileError> {
    match options.target.accelerator {
        Some(accelerator)
            if options.precision != DataType::F32
                && !multiplies(accelerator, options.precision) =>
        {
            let what = "this arithmetic below f32";
            let advice = "leave f32, or compile for sm_80 or later in bf16 or f16";
            Err(CompileError::Accelerator { accelerator, what, advice })
        }
        _ => Ok(()),
    }
}

/// That schedules for an accelerator cannot be searched for yet.
///
/// # Errors
/// [`CompileError::Accelerator`] where the target has one.
pub(crate) fn refuse_tuning(options: &Options) -> Result<(), CompileError> {
    match options.target.accelerator {
        None => Ok(()),
        Some(accelerator) => {
            let (what, advice) = ("tuning", "compile without it, or tune for a processor");
            Err(CompileError::Accelerator { accelerator, what, advice })
        }
    }
}

/// Whether a compilation's products of bytes are computed on tensor cores. Where arithmetic is of 16 bits, what is not
/// quantized decides on layouts.
fn multiplies_bytes(options: &Options) -> bool {
    let architecture = options.target.accelerator.and_then(architecture);
    let cores = architecture.is_some_and(Architecture::has_asynchronous_copies);
    cores && options.precision == DataType::F32
}

/// Numbers of 16 bits of a round of products on tensor cores, and of a copy: channels in a block.
const BLOCK_AND_CHUNK: [usize; 2] = [32, 8];

/// The same of bytes.
const BYTES_AND_CHUNK: [usize; 2] = [64, 16];

/// Moves quantized numbers as they are, and multiplies them as bytes, where tensor cores do.
///
/// # Errors
/// Those of the passes.
pub(crate) fn multiply_quantized(
    graph: &Graph,
    options: &Options,
    working: DataType,
) -> Result<Graph, PassError> {
    match multiplies_bytes(options) {
        true => passes::multiply_device_quantized(&passes::move_quantized(graph)?, working),
        false => Ok(graph.clone()),
    }
}

/// Chooses layouts where convolutions are computed on tensor cores. Other templates take operands in their plain order.
///
/// # Errors
/// Those of the passes.
pub(crate) fn choose_layouts(
    graph: &Graph,
    options: &Options,
    working: DataType,
) -> Result<Graph, PassError> {
    if on_tensor_cores(options) {
        return passes::choose_device_layouts(graph, BLOCK_AND_CHUNK, working);
    }
    match multiplies_bytes(options) {
        true => {
            let packed = passes::choose_device_integer_layouts(graph, BYTES_AND_CHUNK, working)?;
            passes::multiply_device_integers(&packed, BYTES_AND_CHUNK[1])
        }
        false => Ok(graph.clone()),
    }
}

/// Joins the nodes of attentions where tensor cores compute them whole, but for those of some names.
///
/// # Errors
/// Those of the pass.
pub(crate) fn fuse_attention(
    graph: &Graph,
    (options, left): (&Options, &Names),
    working: DataType,
) -> Result<Graph, PassError> {
    let joins = |name: &str| !left.contains(name);
    match on_tensor_cores(options) {
        true => passes::fuse_device_attention(graph, &nvptx::ATTENTION_LENGTHS, working, &joins),
        false => Ok(graph.clone()),
    }
}

/// Whether a program becomes the kernel of an attention on tensor cores.
///
/// # Errors
/// What a schedule finds.
pub(crate) fn is_attention(options: &Options, program: &Program) -> Result<bool, ScheduleError> {
    match options.target.accelerator.and_then(architecture) {
        Some(architecture) => Ok(attention(architecture, program)?.is_some()),
        None => Ok(false),
    }
}

/// A program with its maps inlined where that is an attention on tensor cores.
fn attention(
    architecture: Architecture,
    program: &Program,
) -> Result<Option<Schedule>, ScheduleError> {
    if !has_softmax(program) {
        return Ok(None);
    }
    let schedule = with_maps_inlined(program)?;
    let is_written = nvptx::is_attention(schedule.program(), architecture);
    Ok(is_written.then_some(schedule))
}

/// The passes for an accelerator, in order: in front of what is done with quantized numbers, of the choice of layouts, and behind
/// it. But for tensor cores no operand is packed.
pub(crate) const PASSES: [&[Pass<'static>]; 3] = [DECOMPOSING, BEFORE_LAYOUTS, BEHIND_LAYOUTS];

const DECOMPOSING: &[Pass<'static>] = &[
    ("extend_precision", &passes::extend_precision),
    ("eliminate_common_subexpressions", &passes::eliminate_common_subexpressions),
    ("decompose", &passes::decompose),
];

const BEFORE_LAYOUTS: &[Pass<'static>] = &[
    ("fold_constants", &passes::fold_constants),
    ("fold_batch_norm", &passes::fold_batch_norm),
    ("simplify", &passes::simplify),
    ("divide_by_multiplying", &passes::divide_by_multiplying),
];

const BEHIND_LAYOUTS: &[Pass<'static>] = &[
    ("fold_constants", &passes::fold_constants),
    ("simplify", &passes::simplify),
    ("separate_outputs", &passes::separate_outputs),
];

/// Schedules programs, writes them, and says how they are launched.
///
/// # Errors
/// A program that cannot be bound or has no text in the device's language.
pub(crate) fn compile_kernels(
    accelerator: Accelerator,
    graphs: Vec<LoweredGraph>,
    programs: &[Unscheduled],
    edit: Edit<'_>,
    lap: &mut dyn FnMut(&'static str),
) -> Result<CompiledKernels, CompileError> {
    let scheduled = in_order(programs, |unscheduled| {
        scheduled(accelerator, &unscheduled.program).map_err(|source| CompileError::Schedule {
            nodes: unscheduled.nodes.clone(),
            source: Box::new(source),
        })
    });
    let mut kernels = Vec::with_capacity(programs.len());
    for (number, scheduled) in scheduled.into_iter().enumerate() {
        let DeviceSchedule { schedule, template } = scheduled?;
        let trace = schedule.trace().to_string();
        let mut program = schedule.into_program();
        edit(number, &mut program);
        let symbol = symbol_stem(number);
        let functions =
            vec![Kernel { symbol: symbol.clone(), tasks: 1, waves: None, scratch_bytes: 0 }];
        kernels.push(KernelInfo { symbol, program, template, trace, functions });
    }
    lap("schedule");
    let written = in_order(&kernels, |kernel| written(accelerator, kernel));
    let mut texts = Vec::with_capacity(kernels.len());
    for (text, unscheduled) in written.into_iter().zip(programs) {
        texts.push(text.map_err(|source| CompileError::Text {
            nodes: unscheduled.nodes.clone(),
            accelerator,
            source,
        })?);
    }
    let launches = kernels.iter_mut().zip(&texts).map(|(kernel, text)| {
        keep_in_registers(&mut kernel.program, &text.steps);
        DeviceKernel {
            symbol: kernel.symbol.clone(),
            commands: commands(&kernel.program, &text.steps, &mut Vec::new()),
        }
    });
    let limits = device_limits(accelerator);
    let device = DeviceCode {
        language: accelerator.language(),
        limits: DeviceLimits {
            lanes: limits.lanes as u64,
            lanes_along: limits.lanes_along.map(|extent| extent as u64),
            shared_bytes: most_shared(&texts).max(limits.shared_bytes) as u64,
            alignment: DEVICE_BUFFER_ALIGNMENT,
            storage_buffers: storage_buffers(accelerator, &texts),
        },
        kernels: launches.collect(),
    };
    let code = source(accelerator, texts).into_bytes();
    lap("code generation");
    Ok(CompiledKernels { kernels, code, device: Some(device), graphs, records_digest: None })
}

/// Bytes of shared memory of the largest launch: products of warpgroups ask for more than the limit of what is declared.
fn most_shared(texts: &[Text]) -> usize {
    let kernels = texts.iter().flat_map(|text| Step::kernels(&text.steps));
    kernels.map(|kernel| kernel.shared_bytes).max().unwrap_or(0)
}

/// The text of a kernel, and how it is launched.
struct Text {
    text: String,
    steps: Vec<Step>,
}

/// Template of products on tensor cores, which the generator of PTX has itself; their programs stay plain.
const TENSOR_CORES: &str = "tensor-cores";

/// Template of attentions on tensor cores, the same.
const ATTENTION: &str = "attention-on-tensor-cores";

/// Whether the sums and maxima of a program are those of a softmax between two products. Others are not inlined whole, which
/// may repeat a map as often as it is read.
fn has_softmax(program: &Program) -> bool {
    let combined = program.blocks_in_order().into_iter().filter_map(|block| {
        match &program.blocks[block].body {
            BlockBody::Reduce { combiner, .. } => Some(*combiner),
            BlockBody::Map(_) => None,
        }
    });
    let order = [Combiner::Sum, Combiner::Maximum, Combiner::Sum, Combiner::Sum];
    combined.eq(order)
}

/// A program with every map inlined into its readers.
fn with_maps_inlined(program: &Program) -> Result<Schedule, ScheduleError> {
    let mut schedule = Schedule::new(program.clone());
    inline_operands(&mut schedule)?;
    Ok(schedule)
}

/// A program bound to a device, or left plain where it is a product or an attention on tensor cores.
fn scheduled(accelerator: Accelerator, program: &Program) -> Result<DeviceSchedule, ScheduleError> {
    if let Some(architecture) = architecture(accelerator) {
        if let Some(schedule) = attention(architecture, program)? {
            return Ok(DeviceSchedule { schedule, template: ATTENTION });
        }
        let mut schedule = plain_for_device(program.clone())?;
        inline_operands(&mut schedule)?;
        let options = ProductOptions::default();
        // The template maps each sum to a result; where nothing is done with the sums they are copied.
        if let [only] = schedule.program().blocks_in_order()[..] {
            // A refused primitive changes nothing.
            let _ = schedule.cache_write(only, Scope::Global);
        }
        if nvptx::is_product(schedule.program(), architecture, &options) {
            return Ok(DeviceSchedule { schedule, template: TENSOR_CORES });
        }
    }
    schedule_for_device(program.clone(), &device_limits(accelerator))
}

/// Inlines what sums of products read, as a border of zeros, which becomes part of their copies.
fn inline_operands(schedule: &mut Schedule) -> Result<(), ScheduleError> {
    let blocks = schedule.program().blocks_in_order();
    let Some((_, front)) = blocks.split_last() else { return Ok(()) };
    for block in front {
        let program = schedule.program();
        let buffer = &program.buffers[program.blocks[*block].buffer];
        if buffer.role != Role::Temporary
            || !matches!(program.blocks[*block].body, BlockBody::Map(_))
        {
            continue;
        }
        match schedule.compute_inline(*block) {
            Ok(()) | Err(ScheduleError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

type TextError = Box<dyn std::error::Error + Send + Sync>;

fn written(accelerator: Accelerator, kernel: &KernelInfo) -> Result<Text, TextError> {
    let KernelInfo { program, symbol, .. } = kernel;
    let limits = device_limits(accelerator);
    let Some(architecture) = architecture(accelerator) else {
        let module = match accelerator.language() {
            Language::Wgsl => emit(program, &ANY_BUFFERS, &limits, symbol)?,
            _ => emit(program, &OpenClC, &limits, symbol)?,
        };
        let Module { text, steps } = module;
        return Ok(Text { text, steps });
    };
    let product = match kernel.template {
        TENSOR_CORES => nvptx::product(program, architecture, &ProductOptions::default(), symbol)?,
        ATTENTION => nvptx::attention(program, architecture, symbol)?,
        _ => None,
    };
    let nvptx::Module { text, steps } = match product {
        Some(module) => module,
        None => nvptx::emit(program, architecture, &limits, symbol)?,
    };
    Ok(Text { text, steps })
}

/// WGSL of kernels with any number of buffers; the artifact says how many they have at most.
const ANY_BUFFERS: Wgsl = Wgsl { storage_buffers: usize::MAX };

/// The most buffers of a launch, for devices that have a limit of them.
fn storage_buffers(accelerator: Accelerator, texts: &[Text]) -> Option<u64> {
    if accelerator.language() != Language::Wgsl {
        return None;
    }
    let kernels = texts.iter().flat_map(|text| Step::kernels(&text.steps));
    let buffers = kernels.map(|kernel| {
        let arguments = kernel.arguments.iter();
        arguments.filter(|argument| matches!(argument, Argument::Buffer(_))).count() as u64
    });
    buffers.max()
}

/// One text of those of all kernels.
fn source(accelerator: Accelerator, texts: Vec<Text>) -> String {
    let dialect: &dyn Dialect = match accelerator.language() {
        Language::OpenClC => &OpenClC,
        Language::Wgsl => &ANY_BUFFERS,
        Language::Ptx => {
            let texts: Vec<&str> = texts.iter().map(|text| text.text.as_str()).collect();
            return nvptx::source(&texts);
        }
    };
    let modules = texts.into_iter().map(|text| Module { text: text.text, steps: text.steps });
    let modules: Vec<Module> = modules.collect();
    hone_codegen_text::source(dialect, &modules.iter().collect::<Vec<&Module>>())
}

/// Temporaries that no launch takes are in registers: the sums of products on tensor cores.
fn keep_in_registers(program: &mut Program, steps: &[Step]) {
    fn taken(steps: &[Step], buffer: BufferId) -> bool {
        steps.iter().any(|step| match step {
            Step::Launch(kernel) => kernel.arguments.contains(&Argument::Buffer(buffer)),
            Step::Repeat { body, .. } => taken(body, buffer),
        })
    }
    let ids: Vec<BufferId> = program.buffers.iter().map(|(id, _)| id).collect();
    for id in ids {
        let buffer = &mut program.buffers[id];
        if buffer.role == Role::Temporary && buffer.scope == Scope::Global && !taken(steps, id) {
            buffer.scope = Scope::Register;
        }
    }
}

/// The launches of a program, with the step's arguments in place of its buffers: parameters, then temporaries.
fn commands(program: &Program, steps: &[Step], counters: &mut Vec<VarId>) -> Vec<Command> {
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        all.push(match step {
            Step::Launch(kernel) => {
                let argument = |argument: &Argument| match argument {
                    Argument::Buffer(buffer) => {
                        LaunchArgument::Buffer(argument_of(program, *buffer))
                    }
                    Argument::Counter(counter) => {
                        let depth = counters.iter().position(|known| known == counter);
                        LaunchArgument::Counter(depth.unwrap_or(0) as u32)
                    }
                };
                Command::Launch(Launch {
                    kernel: kernel.name.clone(),
                    grid: kernel.groups.map(|extent| extent as u64),
                    block: kernel.items.map(|extent| extent as u64),
                    shared_bytes: kernel.shared_bytes as u64,
                    arguments: kernel.arguments.iter().map(argument).collect(),
                })
            }
            Step::Repeat { counter, times, body } => {
                counters.push(*counter);
                let body = commands(program, body, counters);
                counters.pop();
                Command::Repeat { times: *times as u64, body }
            }
        });
    }
    all
}

/// Which argument of its step a buffer in global memory is.
fn argument_of(program: &Program, buffer: BufferId) -> u32 {
    let temporaries = program
        .buffers
        .iter()
        .filter(|(_, buffer)| buffer.role == Role::Temporary && buffer.scope == Scope::Global);
    let all = program.parameters().into_iter().chain(temporaries.map(|(id, _)| id));
    // Every buffer in global memory is a parameter or such a temporary.
    all.enumerate().find(|(_, found)| *found == buffer).map_or(0, |(index, _)| index as u32)
}
