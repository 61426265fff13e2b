//! The step table: which kernel runs when, on which memory.

use crate::kernels::{Call, CompiledKernels};
use crate::storage::{Home, Storage};
use hone_artifact::{Access, Argument, BUFFER_ALIGNMENT, Slot, Step};
use hone_graph::ValueId;
use hone_ops::Graph;
use hone_passes::{Lifetime, plan_memory};
use hone_tensor::Role;
use hone_tune::min_tasks_per_thread;
use std::collections::HashMap;

/// Steps with their memory.
pub(crate) struct StepPlan {
    pub(crate) steps: Vec<Step>,
    pub(crate) weights: Vec<u8>,
    pub(crate) arena_bytes: u64,
    pub(crate) arena_lower_bound: u64,
}

/// An argument before the arena is laid out.
struct Operand {
    memory: Memory,
    bytes: u64,
    access: Access,
}

/// Memory before the arena is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Memory {
    Home(Home),
    /// A temporary of a call: the call's number and the temporary's.
    Temporary(usize, usize),
}

/// Lays out arena and weights, and lists the steps.
pub(crate) fn plan_steps(graph: &Graph, kernels: &CompiledKernels) -> StepPlan {
    let storage = Storage::new(graph, &kernels.aliases);
    let operands: Vec<Vec<Operand>> = kernels
        .calls
        .iter()
        .enumerate()
        .map(|(number, call)| operands(graph, kernels, &storage, number, call))
        .collect();
    let arena = ArenaPlan::new(&operands);
    let weights = Weights::new(graph, &operands);
    let mut steps = Vec::new();
    for (call, operands) in kernels.calls.iter().zip(&operands) {
        let arguments: Vec<Argument> = operands
            .iter()
            .map(|operand| Argument {
                slot: slot(operand.memory, &arena, &weights),
                bytes: operand.bytes,
                access: operand.access,
            })
            .collect();
        steps.extend(call_steps(kernels, call, &arguments));
    }
    StepPlan {
        steps,
        weights: weights.bytes,
        arena_bytes: arena.bytes,
        arena_lower_bound: arena.lower_bound,
    }
}

fn operands(
    graph: &Graph,
    kernels: &CompiledKernels,
    storage: &Storage,
    number: usize,
    call: &Call,
) -> Vec<Operand> {
    let kernel = &kernels.kernels[call.kernel];
    let buffers = kernel.program.parameters();
    let parameters = call.parameters.iter().zip(buffers).map(|(value, buffer)| Operand {
        memory: Memory::Home(storage.home(*value)),
        bytes: graph.tensor_type(*value).bytes() as u64,
        access: match kernel.program.buffers[buffer].role {
            Role::Input(_) => Access::Read,
            // A kernel of several functions reads back what an earlier one wrote.
            Role::Output(_) if kernel.functions.len() > 1 => Access::ReadWrite,
            Role::Output(_) | Role::Temporary => Access::Write,
        },
    });
    let temporaries = kernel.temporaries().into_iter().enumerate().map(|(place, bytes)| Operand {
        memory: Memory::Temporary(number, place),
        bytes,
        access: Access::ReadWrite,
    });
    parameters.chain(temporaries).collect()
}

/// One step for each of the kernel's functions.
fn call_steps(kernels: &CompiledKernels, call: &Call, arguments: &[Argument]) -> Vec<Step> {
    let kernel = &kernels.kernels[call.kernel];
    let functions = &kernel.functions;
    let sum = |access: &[Access]| -> u64 {
        let matching = arguments.iter().filter(|argument| access.contains(&argument.access));
        matching.map(|argument| argument.bytes).sum()
    };
    let (read, written) =
        (sum(&[Access::Read, Access::ReadWrite]), sum(&[Access::Write, Access::ReadWrite]));
    let share = functions.len().max(1) as u64;
    let statements = functions.iter().zip(&kernel.program.body);
    let steps = statements.map(|(function, statement)| Step {
        nodes: call.nodes.clone(),
        kernel: function.symbol.clone(),
        tasks: function.tasks,
        min_tasks_per_thread: min_tasks_per_thread(&kernel.program, statement, function.tasks),
        arguments: arguments.to_vec(),
        flops: call.flops / share,
        bytes_read: read,
        bytes_written: written,
    });
    steps.collect()
}

fn slot(memory: Memory, arena: &ArenaPlan, weights: &Weights) -> Slot {
    match memory {
        Memory::Home(Home::Input(place)) => Slot::Input { index: place as u32, offset: 0 },
        Memory::Home(Home::Output(place)) => Slot::Output { index: place as u32, offset: 0 },
        Memory::Home(Home::Weight(value)) => Slot::Weight { offset: weights.offsets[&value] },
        Memory::Home(Home::Arena(_)) | Memory::Temporary(..) => {
            Slot::Arena { offset: arena.offsets[&memory] }
        }
    }
}

/// Offsets of everything that lives in the arena.
struct ArenaPlan {
    offsets: HashMap<Memory, u64>,
    bytes: u64,
    lower_bound: u64,
}

impl ArenaPlan {
    fn new(operands: &[Vec<Operand>]) -> Self {
        let mut order: Vec<Memory> = Vec::new();
        let mut lives: HashMap<Memory, Lifetime> = HashMap::new();
        for (number, operands) in operands.iter().enumerate() {
            for Operand { memory, bytes, .. } in operands {
                if !matches!(memory, Memory::Home(Home::Arena(_)) | Memory::Temporary(..)) {
                    continue;
                }
                let life = lives.entry(*memory).or_insert_with(|| {
                    order.push(*memory);
                    Lifetime { bytes: *bytes, first: number, last: number }
                });
                life.last = number;
                life.bytes = life.bytes.max(*bytes);
            }
        }
        let lifetimes: Vec<Lifetime> = order.iter().map(|memory| lives[memory]).collect();
        let plan = plan_memory(&lifetimes, BUFFER_ALIGNMENT);
        let offsets = order.into_iter().zip(plan.offsets).collect();
        Self { offsets, bytes: plan.bytes, lower_bound: plan.lower_bound }
    }
}

/// The packed weights and where each constant lies; equal constants lie once.
struct Weights {
    offsets: HashMap<ValueId, u64>,
    bytes: Vec<u8>,
}

impl Weights {
    fn new(graph: &Graph, operands: &[Vec<Operand>]) -> Self {
        let mut weights = Self { offsets: HashMap::new(), bytes: Vec::new() };
        let mut by_content: HashMap<[u8; 32], u64> = HashMap::new();
        for operand in operands.iter().flatten() {
            let Memory::Home(Home::Weight(value)) = operand.memory else { continue };
            let Some(tensor) = graph.constant(value) else { continue };
            if weights.offsets.contains_key(&value) {
                continue;
            }
            let content = *blake3::hash(tensor.bytes()).as_bytes();
            let bytes = &mut weights.bytes;
            let offset = *by_content.entry(content).or_insert_with(|| {
                bytes.resize(bytes.len().next_multiple_of(BUFFER_ALIGNMENT as usize), 0);
                let offset = bytes.len() as u64;
                bytes.extend_from_slice(tensor.bytes());
                offset
            });
            weights.offsets.insert(value, offset);
        }
        weights
    }
}
