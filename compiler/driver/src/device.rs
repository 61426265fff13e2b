//! Kernels for an accelerator: programs bound to blocks and lanes, their text, and how they are launched.

use crate::error::CompileError;
use crate::kernels::{CompiledKernels, Edit, KernelInfo, LoweredGraph, symbol_stem};
use crate::options::Options;
use crate::pipeline::Pass;
use crate::schedule::{Unscheduled, in_order};
use hone_artifact::{
    Accelerator, Command, DeviceCode, DeviceKernel, DeviceLimits, Language, Launch, LaunchArgument,
};
use hone_codegen::Kernel;
use hone_codegen_text::{Argument, Module, OpenClC, Step, emit, source};
use hone_passes as passes;
use hone_tensor::{BufferId, Limits, Program, Role, Scope, VarId};
use hone_tune::{DeviceSchedule, schedule_for_device};
use hone_types::DataType;

/// What code for accelerators keeps to: what every device has.
pub const LIMITS: Limits = Limits::PORTABLE;

/// Alignment in bytes of buffers in the arena and the weights: the coarsest `CL_DEVICE_MEM_BASE_ADDR_ALIGN` of
/// current drivers, NVIDIA's 4,096 bits.
const ALIGNMENT: u64 = 512;

/// What an accelerator is not there for yet.
///
/// # Errors
/// [`CompileError::Accelerator`] for arithmetic below `f32`.
pub(crate) fn check_options(options: &Options) -> Result<(), CompileError> {
    match options.target.accelerator {
        Some(accelerator) if options.precision != DataType::F32 => {
            let (what, advice) = ("arithmetic below f32", "leave f32");
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

/// The passes for an accelerator, in order. Its templates take operands in their plain order: no layout is chosen and
/// no operand packed.
pub(crate) const PASSES: &[Pass<'static>] = &[
    ("extend_precision", &passes::extend_precision),
    ("decompose", &passes::decompose),
    ("fold_constants", &passes::fold_constants),
    ("fold_batch_norm", &passes::fold_batch_norm),
    ("simplify", &passes::simplify),
    ("divide_by_multiplying", &passes::divide_by_multiplying),
    ("fold_constants", &passes::fold_constants),
    ("simplify", &passes::simplify),
    ("separate_outputs", &passes::separate_outputs),
];

/// Schedules programs, writes them, and says how they are launched.
///
/// # Errors
/// A program that cannot be bound or has no text in the device's language.
pub(crate) fn compile_kernels(
    graphs: Vec<LoweredGraph>,
    programs: &[Unscheduled],
    edit: Edit<'_>,
    lap: &mut dyn FnMut(&'static str),
) -> Result<CompiledKernels, CompileError> {
    let scheduled = in_order(programs, |own| {
        schedule_for_device(own.program.clone(), &LIMITS).map_err(|source| CompileError::Schedule {
            nodes: own.nodes.clone(),
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
        let functions = vec![Kernel { symbol: symbol.clone(), tasks: 1, scratch_bytes: 0 }];
        kernels.push(KernelInfo { symbol, program, template, trace, functions });
    }
    lap("schedule");
    let modules = in_order(&kernels, |own| emit(&own.program, &OpenClC, &LIMITS, &own.symbol));
    let mut texts = Vec::with_capacity(kernels.len());
    for (module, unscheduled) in modules.into_iter().zip(programs) {
        texts.push(module.map_err(|source| CompileError::Text {
            nodes: unscheduled.nodes.clone(),
            accelerator: Accelerator::OpenCl,
            source: Box::new(source),
        })?);
    }
    let text = source(&OpenClC, &texts.iter().collect::<Vec<&Module>>());
    let launches = kernels.iter().zip(&texts).map(|(kernel, module)| DeviceKernel {
        symbol: kernel.symbol.clone(),
        commands: commands(&kernel.program, &module.steps, &mut Vec::new()),
    });
    let device = DeviceCode {
        language: Language::OpenClC,
        limits: DeviceLimits {
            lanes: LIMITS.lanes as u64,
            lanes_along: LIMITS.lanes_along.map(|extent| extent as u64),
            shared_bytes: LIMITS.shared_bytes as u64,
            alignment: ALIGNMENT,
        },
        kernels: launches.collect(),
    };
    lap("code generation");
    let (code, device) = (text.into_bytes(), Some(device));
    Ok(CompiledKernels { kernels, code, device, graphs, records_digest: None })
}

/// The launches of a program, with the step's arguments in place of its buffers: parameters, then temporaries.
fn commands(program: &Program, steps: &[Step], counters: &mut Vec<VarId>) -> Vec<Command> {
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        all.push(match step {
            Step::Launch(kernel) => {
                let argument = |argument: &Argument| match argument {
                    Argument::Buffer(buffer) => LaunchArgument::Buffer(place(program, *buffer)),
                    Argument::Counter(own) => {
                        let depth = counters.iter().position(|known| known == own);
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
fn place(program: &Program, buffer: BufferId) -> u32 {
    let temporaries = program
        .buffers
        .iter()
        .filter(|(_, own)| own.role == Role::Temporary && own.scope == Scope::Global);
    let all = program.parameters().into_iter().chain(temporaries.map(|(id, _)| id));
    // Every buffer in global memory is a parameter or such a temporary.
    all.enumerate().find(|(_, own)| *own == buffer).map_or(0, |(place, _)| place as u32)
}
