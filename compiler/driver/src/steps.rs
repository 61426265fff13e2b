//! The step table: which kernel runs when, on which memory.
//!
//! Values of all graphs, those inside of nodes too, get their memory in one walk in the order of the steps. Time is
//! counted in calls. What a branch computes for itself is not alive while the other one runs, so temporaries of both
//! share their place; what a loop reads again lives until its end ([`crate::plan_regions`]).

use crate::kernels::{Call, CompiledKernels, KernelInfo, LoweredGraph, LoweredItem};
use crate::storage::{Buffers, Home, Place};
use hone_artifact::{Access, Argument, BUFFER_ALIGNMENT, OutputExtent, Part, Slot, Step};
use hone_graph::{Definition, ValueId};
use hone_ops::Graph;
use hone_passes::{Lifetime, plan_memory};
use hone_tensor::{Program, Role, Statement, Waves};
use hone_tune::{StatementWork, min_parts_per_thread, work};
use hone_types::Tensor;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Steps with their memory.
pub(crate) struct StepPlan {
    pub(crate) steps: Vec<Step>,
    /// Empty where the steps run one after another.
    pub(crate) program: Vec<Part>,
    pub(crate) extents: Vec<OutputExtent>,
    pub(crate) arena_bytes: u64,
    pub(crate) arena_lower_bound: u64,
}

/// An argument before the arena is laid out.
struct Operand {
    home: Home,
    bytes: u64,
    access: Access,
}

/// Lays out the arena, adds constants to the weights, and lists the steps of one of the graphs of `kernels`.
pub(crate) fn plan_steps(
    graph: &Graph,
    lowered: &LoweredGraph,
    kernels: &CompiledKernels,
    weights: &mut Weights,
) -> StepPlan {
    let mut planner = Planner::new(kernels, std::mem::take(weights));
    let inputs: Vec<Home> = (0..graph.inputs().len()).map(Home::Input).collect();
    let outputs: Vec<Home> =
        (0..graph.outputs().len()).map(|index| Home::Output(index, 0)).collect();
    let mut frame = Frame::new(graph, lowered, &inputs, &outputs);
    let mut program = planner.graph(&mut frame);
    let mut extents = Vec::new();
    for extent in graph.extents() {
        let home = planner.home(&mut frame, extent.value);
        planner.touch(home, planner.time);
        let (output, axis) = (extent.output as u32, extent.axis as u32);
        extents.push(OutputExtent { output, axis, slot: planner.slot(home) });
    }
    if let [Part::Steps { .. }] | [] = program[..] {
        program.clear();
    }
    let (plan, filled) = planner.finish(program, extents);
    *weights = filled;
    plan
}

/// One graph while its values get their memory.
pub(crate) struct Frame<'a> {
    pub(crate) graph: &'a Graph,
    lowered: &'a LoweredGraph,
    buffers: Buffers,
    homes: HashMap<ValueId, Home>,
}

impl<'a> Frame<'a> {
    /// A graph whose inputs and outputs lie where it is said; each output has memory of its own.
    pub(crate) fn new(
        graph: &'a Graph,
        lowered: &'a LoweredGraph,
        inputs: &[Home],
        outputs: &[Home],
    ) -> Self {
        let buffers = Buffers::new(&lowered.aliases, &lowered.sub_buffers);
        let given = graph.inputs().iter().zip(inputs).chain(graph.outputs().iter().zip(outputs));
        // No input and no output of a graph is part of another value.
        let homes = given.map(|(port, home)| (buffers.of(port.value).0, *home)).collect();
        Self { graph, lowered, buffers, homes }
    }
}

/// The walk; see the head of this file.
pub(crate) struct Planner<'a> {
    kernels: &'a CompiledKernels,
    buffers: Vec<Lifetime>,
    /// What values lie in, and what lies inside of them.
    places: Vec<Place>,
    weights: Weights,
    calls: Vec<(&'a Call, Vec<Operand>)>,
    /// Steps of the calls so far.
    steps: usize,
    /// Now.
    pub(crate) time: usize,
}

impl<'a> Planner<'a> {
    fn new(kernels: &'a CompiledKernels, mut weights: Weights) -> Self {
        // The manifest's alignment, or the coarser one that the accelerator asks for.
        let device = kernels.device.as_ref().map(|device| device.limits.alignment);
        weights.alignment = device.unwrap_or(BUFFER_ALIGNMENT);
        let (buffers, places, calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { kernels, buffers, places, weights, calls, steps: 0, time: 0 }
    }

    /// Gives the values of a graph their memory; returns what runs. Slots in the arena have the number of their
    /// place in `places` instead of an offset.
    pub(crate) fn graph(&mut self, frame: &mut Frame<'a>) -> Vec<Part> {
        let mut parts = Vec::new();
        for item in &frame.lowered.items {
            match item {
                LoweredItem::Regions(node, regions) => {
                    parts.push(self.regions(frame, *node, regions));
                }
                LoweredItem::Call(call) => {
                    let operands = self.operands(frame, call);
                    let (first, added) =
                        (self.steps, self.kernels.kernels[call.kernel].functions.len());
                    self.calls.push((call, operands));
                    self.steps += added;
                    // What may run at the same time lies apart.
                    self.time += usize::from(!call.beside_next);
                    match parts.last_mut() {
                        Some(Part::Steps { count, .. }) => *count += added as u32,
                        _ => parts.push(Part::Steps { first: first as u32, count: added as u32 }),
                    }
                }
            }
        }
        parts
    }

    fn operands(&mut self, frame: &mut Frame<'a>, call: &Call) -> Vec<Operand> {
        let kernel = &self.kernels.kernels[call.kernel];
        let mut operands = Vec::new();
        for (value, buffer) in call.parameters.iter().zip(kernel.program.parameters()) {
            let home = self.home(frame, *value);
            self.touch(home, self.time);
            let access = match kernel.program.buffers[buffer].role {
                Role::Input(_) => Access::Read,
                // A kernel of several functions or launches reads back what an earlier one wrote.
                Role::Output(_) if kernel.functions.len() > 1 || self.kernels.device.is_some() => {
                    Access::ReadWrite
                }
                Role::Output(_) | Role::Temporary => Access::Write,
            };
            let bytes = frame.graph.tensor_type(*value).bytes() as u64;
            operands.push(Operand { home, bytes, access });
        }
        for bytes in kernel.temporaries() {
            let home = self.buffer(bytes);
            self.touch(home, self.time);
            operands.push(Operand { home, bytes, access: Access::ReadWrite });
        }
        operands
    }

    /// Where a value lies.
    pub(crate) fn home(&mut self, frame: &mut Frame<'_>, value: ValueId) -> Home {
        let own = frame.buffers.root(value);
        if let Some(home) = frame.homes.get(&own) {
            return *home;
        }
        let (outermost, offset) = frame.buffers.of(value);
        let whole = match frame.homes.get(&outermost) {
            Some(home) => *home,
            None => match &frame.graph.values()[outermost].definition {
                Definition::Constant(tensor) => Home::Weight(self.weights.offset_of(tensor)),
                _ => self.buffer(frame.graph.tensor_type(outermost).bytes() as u64),
            },
        };
        frame.homes.insert(outermost, whole);
        let home = self.inside(whole, offset);
        frame.homes.insert(own, home);
        home
    }

    /// So many bytes behind the beginning of some memory.
    fn inside(&mut self, whole: Home, bytes: u64) -> Home {
        match whole {
            whole if bytes == 0 => whole,
            Home::Output(index, offset) => Home::Output(index, offset + bytes),
            Home::Arena(place) => {
                let Place { buffer, offset } = self.places[place];
                self.place(buffer, offset + bytes)
            }
            // Only what is computed has anything inside.
            Home::Input(_) | Home::Weight(_) => whole,
        }
    }

    fn place(&mut self, buffer: usize, offset: u64) -> Home {
        self.places.push(Place { buffer, offset });
        Home::Arena(self.places.len() - 1)
    }

    /// A new buffer in the arena, alive at no time yet.
    pub(crate) fn buffer(&mut self, bytes: u64) -> Home {
        self.buffers.push(Lifetime { bytes, first: usize::MAX, last: 0 });
        self.place(self.buffers.len() - 1, 0)
    }

    /// Says that memory is in use at a time.
    pub(crate) fn touch(&mut self, home: Home, time: usize) {
        if let Home::Arena(place) = home {
            let life = &mut self.buffers[self.places[place].buffer];
            (life.first, life.last) = (life.first.min(time), life.last.max(time));
        }
    }

    /// The slot of some memory, before the arena is laid out.
    pub(crate) fn slot(&self, home: Home) -> Slot {
        match home {
            Home::Input(index) => Slot::Input { index: index as u32, offset: 0 },
            Home::Output(index, offset) => Slot::Output { index: index as u32, offset },
            Home::Weight(offset) => Slot::Weight { offset },
            Home::Arena(place) => Slot::Arena { offset: place as u64 },
        }
    }

    /// Lays out the arena.
    fn finish(
        mut self,
        mut program: Vec<Part>,
        mut extents: Vec<OutputExtent>,
    ) -> (StepPlan, Weights) {
        for life in self.buffers.iter_mut().filter(|life| life.first > life.last) {
            (life.first, life.last) = (0, 0);
        }
        let arena = plan_memory(&self.buffers, self.weights.alignment);
        let settle = |slot: &mut Slot| {
            if let Slot::Arena { offset } = slot {
                let place = self.places[*offset as usize];
                *offset = arena.offsets[place.buffer] + place.offset;
            }
        };
        crate::plan_regions::each_slot(&mut program, &settle);
        extents.iter_mut().for_each(|extent| settle(&mut extent.slot));
        let mut steps = Vec::new();
        for (call, operands) in &self.calls {
            let arguments: Vec<Argument> = operands
                .iter()
                .map(|operand| {
                    let mut slot = self.slot(operand.home);
                    settle(&mut slot);
                    Argument { slot, bytes: operand.bytes, access: operand.access }
                })
                .collect();
            steps.push(call_steps(self.kernels, call, &arguments));
        }
        let next = self.calls.iter().skip(1);
        for ((own, next), steps) in self.calls.iter().zip(next).zip(&mut steps) {
            if own.0.beside_next
                && let Some(first) = steps.first_mut()
            {
                first.beside = self.beside([own.0, next.0]);
            }
        }
        let steps = steps.into_iter().flatten().collect();
        let plan = StepPlan {
            steps,
            program,
            extents,
            arena_bytes: arena.bytes,
            arena_lower_bound: arena.lower_bound,
        };
        (plan, self.weights)
    }
}

impl Planner<'_> {
    /// The numbers of steps of two calls, where each has a step of one task that is worth a thread of its own.
    fn beside(&self, calls: [&Call; 2]) -> Option<[u32; 2]> {
        let kernels = calls.map(|call| &self.kernels.kernels[call.kernel]);
        let is_worth = |kernel: &KernelInfo| {
            let mut functions = kernel.functions.iter().zip(&kernel.program.body);
            functions.any(|(function, statement)| {
                function.tasks == 1 && work(&kernel.program, statement).is_worth_a_thread()
            })
        };
        let is_device = self.kernels.device.is_some();
        let steps = kernels.map(|kernel| kernel.functions.len() as u32);
        (!is_device && kernels.into_iter().all(is_worth)).then_some(steps)
    }
}

/// One step for each of the kernel's functions.
fn call_steps(kernels: &CompiledKernels, call: &Call, arguments: &[Argument]) -> Vec<Step> {
    let kernel = &kernels.kernels[call.kernel];
    let functions = &kernel.functions;
    let program = &kernel.program;
    let works: Vec<StatementWork> =
        program.body.iter().map(|statement| work(program, statement)).collect();
    let all = works.iter().fold(0, |sum: u64, work| sum.saturating_add(work.operations));
    // The kernel's operations are those of the nodes; each function does its part of them.
    let share = |work: &StatementWork| {
        let part = u128::from(call.flops) * u128::from(work.operations) / u128::from(all.max(1));
        u64::try_from(part).unwrap_or(call.flops)
    };
    let steps = functions.iter().zip(&works).zip(&program.body);
    let steps = steps.map(|((function, work), statement)| Step {
        nodes: call.nodes.clone(),
        kernel: function.symbol.clone(),
        tasks: function.tasks,
        min_tasks_per_thread: work.min_tasks_per_thread(function.tasks),
        beside: None,
        waves: waves(program, statement).filter(|_| function.waves.is_some()),
        arguments: arguments.to_vec(),
        flops: share(work),
        bytes_read: work.bytes_read,
        bytes_written: work.bytes_written,
    });
    steps.collect()
}

/// How threads may divide a statement that runs in waves.
fn waves(program: &Program, statement: &Statement) -> Option<hone_artifact::Waves> {
    let waves = Waves::of(statement)?;
    let min_parts_per_thread = min_parts_per_thread(program, statement, waves);
    Some(hone_artifact::Waves { waves: waves.count(), parts: waves.parts, min_parts_per_thread })
}

/// The packed weights; equal constants lie once. They are not copied together.
#[derive(Default)]
pub(crate) struct Weights {
    /// The first constant of each length and beginning, while no other has both.
    by_beginning: HashMap<(usize, [u8; 32]), Option<usize>>,
    /// Where constants lie that have them in common with others.
    by_content: HashMap<[u8; 32], u64>,
    /// Where each constant lies, in order.
    constants: Vec<(u64, Tensor)>,
    /// Of every offset.
    alignment: u64,
}

/// Bytes of constants that are compared before the rest.
const BEGINNING: usize = 4096;

impl Weights {
    /// Where a constant lies.
    fn offset_of(&mut self, constant: &Tensor) -> u64 {
        let digest = |bytes: &[u8]| *blake3::hash(bytes).as_bytes();
        let bytes = constant.bytes();
        let beginning = (bytes.len(), digest(&bytes[..bytes.len().min(BEGINNING)]));
        let offset = self.length().next_multiple_of(self.alignment.max(1));
        let is_first = match self.by_beginning.entry(beginning) {
            Entry::Vacant(entry) => {
                entry.insert(Some(self.constants.len()));
                true
            }
            Entry::Occupied(mut entry) => {
                if let Some(first) = entry.get_mut().take() {
                    let (offset, first) = &self.constants[first];
                    self.by_content.insert(digest(first.bytes()), *offset);
                }
                false
            }
        };
        if !is_first {
            match self.by_content.entry(digest(bytes)) {
                Entry::Occupied(entry) => return *entry.get(),
                Entry::Vacant(entry) => entry.insert(offset),
            };
        }
        self.constants.push((offset, constant.clone()));
        offset
    }

    /// Bytes of all together.
    pub(crate) fn length(&self) -> u64 {
        self.constants.last().map_or(0, |(offset, last)| offset + last.bytes().len() as u64)
    }

    /// The constants as they lie one behind the other, and the zeros between them.
    pub(crate) fn pieces(&self) -> Vec<Cow<'_, [u8]>> {
        let mut pieces = Vec::with_capacity(2 * self.constants.len());
        let mut end = 0;
        for (offset, constant) in &self.constants {
            pieces.push(Cow::Owned(vec![0; (offset - end) as usize]));
            pieces.push(Cow::Borrowed(constant.bytes()));
            end = offset + constant.bytes().len() as u64;
        }
        pieces
    }
}
